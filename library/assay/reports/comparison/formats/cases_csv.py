"""comparison_cases.csv: one line per case, with its values in every run and the differences."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from assay.comparison.model import PASS_RATE
from assay.text.csv_text import plain_number, write_csv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.reports.comparison.document.compared_cases import ComparedCase, ComparedCases
    from assay.reports.comparison.document.comparison_report import ComparisonReport

    Cell = str | float | None

_DECIMALS = 12


def write_cases(report: ComparisonReport, cases: ComparedCases, file: IO[str]) -> None:
    """Write a line per case of the compared runs; texts that spreadsheets would evaluate are neutralised."""
    comparison = report.comparison
    metrics = [
        PASS_RATE,
        *(metric.metric for metric in report.shown(comparison.pairs[0]) if metric.metric != PASS_RATE),
    ]
    labels = [variant.label for variant in comparison.variants]
    places = [(report.place(pair.a.label), report.place(pair.b.label)) for pair in comparison.pairs]
    heading = ["Case", "Category", *(f"{label} {name}" for label in labels for name in metrics)]
    heading += [f"{pair.b.label} - {pair.a.label} {name}" for pair in comparison.pairs for name in metrics]
    write_csv(file, heading, (_cells(case, metrics, places) for case in cases.cases()))


def _cells(case: ComparedCase, metrics: list[str], places: list[tuple[int, int]]) -> Iterator[Cell]:
    yield case.case_id
    yield case.category
    for values in case.values:
        yield from (plain_number((values or {}).get(name)) for name in metrics)
    for a, b in places:
        differences = (case.difference(name, a, b) for name in metrics)
        # Subtracting adds digits that no value has.
        yield from (None if value is None else plain_number(round(value, _DECIMALS)) for value in differences)
