"""`assay judge sample`: draw answers of a run at random, for people to label."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.errors import InvalidInputError, NotFoundError, Problem
from assay.text.csv_text import csv_text
from assay.text.unsafe_text import clean, json_text
from assay_cli.options.cases import find_run
from assay_cli.options.shared import call_orchestrator, client_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import IO

    from assay.client.client import Client
    from assay.model.run import RowResult

COLUMNS = ("id", "question", "answer", "reference", "human", "probability")
_FORMS = (".csv", ".jsonl")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random sample of a run's rows.

    Args:
        rows: Rows in the order of the dataset.
        total: Number of rows they were drawn from.
        left_out: Number of rows left out: without an answer, or conversations.
    """

    rows: list[RowResult]
    total: int
    left_out: int

    def records(self) -> list[dict[str, Any]]:
        """Return an unlabelled record for each row."""
        return [
            dict(zip(COLUMNS, (*_material(row), None, len(self.rows) / self.total), strict=True)) for row in self.rows
        ]


@click.command()
@click.argument("run")
@click.option(
    "-n", "--count", type=click.IntRange(min=1), default=100, show_default=True, help="Number of answers to draw."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random draw.")
@click.option(
    "--output", "-o", metavar="FILE", type=click.Path(path_type=Path), required=True,
    help="CSV or JSON Lines file to write; must not exist.",
)  # fmt: skip
@client_options
def sample(run: str, count: int, seed: int, output: Path, server: str | None) -> int:
    """Draw answers of RUN at random, and write them as a file for `assay judge calibrate --labels`.

    Every answer has the same probability of being drawn, stored in the file. People fill in the column human; the file
    does not show the judge's verdicts, to avoid bias. Rows whose agent failed, and conversations, are left out.

    \b
        assay judge sample latest --output labels.csv
        assay judge calibrate --labels labels.csv --spec assay.yaml --observed 160/200
    """
    problems = []
    if output.suffix.lower() not in _FORMS:
        problems.append(Problem(f"must end with {' or '.join(_FORMS)}, not {output.suffix or 'nothing'}", "--output"))
    if output.exists():
        problems.append(Problem("exists already and may hold labels: choose another name", "--output", str(output)))
    if problems:
        raise InvalidInputError(problems)
    drawn = call_orchestrator(server, lambda client: _drawn(client, run, count, seed))
    _write(output, drawn)
    left_out = f"; {drawn.left_out} rows without an answer, or of conversations, left out" if drawn.left_out else ""
    click.echo(
        f"wrote {len(drawn.rows)} of {drawn.total} answers to {clean(str(output))}{left_out}\n"
        "fill in the column human: a score on the rubric's scale, or pass or fail"
    )
    return 0


async def _drawn(client: Client, reference: str, count: int, seed: int) -> Drawn:
    run_id = await find_run(client, reference)
    drawn = await draw(client.list_rows(run_id), count, seed)
    if not drawn.rows:
        raise NotFoundError(f"run {run_id} has no answer to label", reason="CASE_NOT_FOUND")
    return drawn


async def draw(rows: AsyncIterator[RowResult], count: int, seed: int) -> Drawn:
    """Draw answered rows with equal probability; deterministic for a seed.

    Args:
        rows: Rows in the order of the dataset.
        count: Maximum rows to draw.
        seed: Seed of the draw.

    Source: J. S. Vitter, "Random sampling with a reservoir", 1985, algorithm R.
    """
    generator = random.Random(seed)  # noqa: S311  # a sample, no secret
    reservoir: list[tuple[int, RowResult]] = []
    total = left_out = 0
    async for row in rows:
        if row.response is None or row.status.is_failed or row.turns:
            left_out += 1
            continue
        total += 1
        if len(reservoir) < count:
            reservoir.append((total, row))
        elif (place := generator.randrange(total)) < count:
            reservoir[place] = total, row
    return Drawn([row for _, row in sorted(reservoir, key=lambda numbered: numbered[0])], total, left_out)


def _material(row: RowResult) -> tuple[str, str, str, str | None]:
    from assay.metrics.core.score import reference_text

    name = f"{row.case_id}#{row.repeat}" if row.repeat > 1 else row.case_id
    answer = row.response.text if row.response is not None else ""
    return name, row.input, answer, reference_text(row.references) or None


def _write(output: Path, drawn: Drawn) -> None:
    from assay.reports.atomic import atomic_writer

    with atomic_writer(output, option="--output") as file:
        (_write_csv if output.suffix.lower() == ".csv" else _write_lines)(file, drawn.records())


def _write_csv(file: IO[str], records: list[dict[str, Any]]) -> None:
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerow("" if value is None else csv_text(str(value)) for value in record.values())


def _write_lines(file: IO[str], records: list[dict[str, Any]]) -> None:
    for record in records:
        file.write(json_text(record) + "\n")
