"""`assay cache`: the vectors of texts that local runs keep on this machine."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from assay.errors import SetupError
from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.options.shared import debug_option

if TYPE_CHECKING:
    from assay.local_stack.home import Home


@click.group(cls=Group)
def cache() -> None:
    """Delete the vectors that local runs keep, so that no text is embedded twice."""


@cache.command()
@debug_option
def clear() -> int:
    """Delete the vectors that local runs have kept; later runs compute them again.

    Stops an idle embedder, which also has vectors in memory. Runs, reports and verdicts of judges stay.
    """
    from assay.local_stack.home import VECTORS_FILE, Home
    from assay.local_stack.stack import without_service

    home = Home.open()
    with without_service(home, "embedder"):
        size_bytes = vectors_bytes(home)
        for file in home.vectors.glob(f"{VECTORS_FILE}*"):
            try:
                file.unlink()
            except OSError as error:
                raise SetupError(f"{file} cannot be deleted ({error.strerror})") from error
    click.echo(f"deleted the vectors in {clean(str(home.vectors))}, {size_bytes / 1024**2:.1f} MiB")
    return 0


def vectors_bytes(home: Home) -> int:
    """Return the size of the kept vectors in bytes."""
    size_bytes = 0
    for file in home.vectors.glob("*"):
        with suppress(FileNotFoundError):  # SQLite deletes its log when the embedder ends
            size_bytes += file.stat().st_size
    return size_bytes
