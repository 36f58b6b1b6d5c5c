"""`assay judge prices`: list token prices, from Assay's list or a file."""

from __future__ import annotations

from pathlib import Path

import click

from assay.providers.prices import read_prices
from assay.text.unsafe_text import shorten
from assay_cli.output.terminal import table

_HEAD = ("provider", "model", "input", "output")
_NAME_CHARS = 60


@click.command()
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE", help="Price list to show; default: Assay's.")
@click.option("--provider", metavar="NAME", help="Only this provider's models; default: all.")
def prices(prices: Path | None, provider: str | None) -> int:
    """List the prices of models, in US dollars per million tokens.

    Assay's list covers the providers' own services. A model at another base_url has a price only if your own file lists
    it.
    """
    entries = [entry for entry in read_prices(prices) if provider in (None, entry.get("provider"))]
    rows = [
        (
            *(shorten(str(entry.get(name, "*")), _NAME_CHARS) for name in _HEAD[:2]),
            *(f"{entry[name]:g}" for name in _HEAD[2:]),
        )
        for entry in entries
    ]
    click.echo(table([_HEAD, *rows], text_columns=2))
    return 0
