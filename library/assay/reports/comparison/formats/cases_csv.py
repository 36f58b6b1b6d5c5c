"""comparison_cases.csv: one line per case, with its values in every run and the differences."""

from __future__ import annotations

import csv
from typing import IO, TYPE_CHECKING

from assay.comparison.model import PASS_RATE
from assay.text.csv_text import csv_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.reports.comparison.document.compared_cases import ComparedCase, ComparedCases
    from assay.reports.comparison.document.comparison_report import ComparisonReport

    Cell = str | float | None

_DECIMALS = 12
_LINE_END = "\r\n"  # RFC 4180's


def write_cases(report: ComparisonReport, cases: ComparedCases, file: IO[str]) -> None:
    """Write a line per case of the compared runs; texts that spreadsheets would evaluate are neutralised."""
    comparison = report.comparison
    metrics = [
        PASS_RATE,
        *(metric.metric for metric in report.shown(comparison.pairs[0]) if metric.metric != PASS_RATE),
    ]
    labels = [variant.label for variant in comparison.variants]
    places = [(report.place(pair.a), report.place(pair.b)) for pair in comparison.pairs]
    writer = csv.writer(file, lineterminator=_LINE_END)
    heading = ["Case", "Category", *(f"{label} {name}" for label in labels for name in metrics)]
    heading += [f"{pair.b} - {pair.a} {name}" for pair in comparison.pairs for name in metrics]
    writer.writerow([csv_text(name) for name in heading])
    writer.writerows(_cells(case, metrics, places) for case in cases.cases())


def _cells(case: ComparedCase, metrics: list[str], places: list[tuple[int, int]]) -> Iterator[Cell]:
    yield csv_text(case.case_id)
    yield csv_text(case.category)
    for values in case.values:
        yield from (_plain((values or {}).get(name)) for name in metrics)
    for a, b in places:
        yield from (_rounded(case.difference(name, a, b)) for name in metrics)


def _rounded(difference: float | None) -> float | int | None:
    """Return a difference without the digits that subtracting adds."""
    return None if difference is None else _plain(round(difference, _DECIMALS))


def _plain(value: float | None) -> float | int | None:
    """Return a number without a needless ".0"."""
    return int(value) if value is not None and value == int(value) and abs(value) < 1 << 53 else value
