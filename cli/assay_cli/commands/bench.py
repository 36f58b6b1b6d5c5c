"""`assay bench`: the speed of a service on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay.local_stack.model_files import model_problem
from assay.metrics.core.info import DEFAULT_MODEL
from assay_cli.commands import Group
from assay_cli.options.shared import debug_option, json_option, run_async
from assay_cli.output.documents import print_document

if TYPE_CHECKING:
    from assay_cli.embedder_bench.measurement import Figures

_LEAST_TEXTS = 64


@click.group(cls=Group)
def bench() -> None:
    """Measure how fast a service is on this machine."""


@bench.command()
@click.option("--model", default=DEFAULT_MODEL, metavar="NAME", help=f"Model to measure; default: {DEFAULT_MODEL}.")
@click.option(
    "--precision",
    default="",
    metavar="PRECISION",
    help="Precision, as in the embedder's --precision; default: $ASSAY_EMBEDDER_PRECISION, else its own default.",
)
@click.option(
    "--texts",
    "text_count",
    type=click.IntRange(_LEAST_TEXTS, 100_000),
    default=500,
    metavar="COUNT",
    help="Number of texts for the throughput; default: 500.",
)
@json_option
@debug_option
def embedder(model: str, precision: str, text_count: int, as_json: bool) -> int:
    """Measure an embedder and, for comparison, sentence-transformers with batches of 32 of the same texts.

    The embedder runs as a process of its own and is called over gRPC, as in a run.
    """
    import importlib.util

    if importlib.util.find_spec("assay_embedder") is None or importlib.util.find_spec("torch") is None:
        raise SetupError(f"the embedder is not installed: {install_hint('embedder')}", reason="NOT_INSTALLED")
    if problem := model_problem(model):
        raise SetupError(f"the embedding model {model!r} {problem}", reason="MODEL_NOT_FOUND")
    from assay_cli.embedder_bench.measurement import measure_embedder, measure_sentence_transformers
    from assay_cli.output.waiting import show_waiting

    text_count -= text_count % 2
    own = run_async(show_waiting(measure_embedder(model, precision, text_count), "measuring the embedder"))
    library = measure_sentence_transformers(model, text_count)
    if as_json:
        print_document(
            "embedder-bench",
            {
                "texts": text_count,
                "embedder": asdict(own),
                "sentence_transformers": asdict(library) if library is not None else None,
            },
        )
    else:
        click.echo(_report(own, library, text_count))
    return 0


def _report(own: Figures, library: Figures | None, text_count: int) -> str:
    from assay_cli.output.terminal import table

    origin = {name: value for name, value in (own.origin or {}).items() if value}
    heading = ", ".join(f"{name} {value[:16] if name == 'revision' else value}" for name, value in origin.items())
    rows = [("", "embedder", "sentence-transformers", "ratio")]
    for name, own_value, other_value, digits in _lines(own, library):
        ratio = f"{own_value / other_value:.2f}" if own_value is not None and other_value else "-"
        rows.append((name, _text(own_value, digits), _text(other_value, digits), ratio))
    note = "" if library is not None else "\nsentence-transformers cannot load this model here: no comparison"
    return f"{heading}\n{text_count:,} texts of 6 to 160 words, 16 pairs a call\n\n{table(rows)}{note}"


def _lines(own: Figures, library: Figures | None) -> list[tuple[str, float | None, float | None, int]]:
    """Return the rows of the table: name, both values, and the number of digits."""
    return [
        ("texts/s", own.texts_per_s, library.texts_per_s if library else None, 0),
        ("tokens/s", own.tokens_per_s, library.tokens_per_s if library else None, 0),
        ("lone pair, ms", own.lone_pair_ms, library.lone_pair_ms if library else None, 1),
        ("gRPC overhead of a lone pair, ms", own.overhead_ms, None, 2),
        ("ready after, s", own.ready_s, library.ready_s if library else None, 1),
        ("memory, MiB", own.memory_mib, library.memory_mib if library else None, 0),
    ]


def _text(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
