"""Figures of the charts from a single pass over the rows: counts, samples and the table's rows."""

from __future__ import annotations

import math
import statistics
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import FAILED_STATUSES
from assay.reports.charts.outcomes import AGENT_ERROR, FAILED, NAMES, NO_VERDICT, PASSED
from assay.reports.charts.scales import axis_end
from assay.reports.document.row_outcome import outcome_of
from assay.reports.words.metric_text import latency_s
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.reports.document.report import Report

BIN_COUNT = 30
_MOST_DOTS = 1000
_WINDOWS = 40
_SMALLEST_WINDOW = 5
_MOST_TABLE_ROWS = 40
_MOST_CHARACTERS = 300
TABLE_ORDER = (FAILED, AGENT_ERROR, NO_VERDICT, PASSED)
"""The order of outcomes in the table."""


@dataclass(slots=True)
class LatencyFigures:
    """Latencies of answered rows.

    Args:
        upper_s: Upper end of the axes, in seconds.
        bins: Counts of rows in BIN_COUNT equal bins from 0 to upper_s.
        above: Number of rows above upper_s.
        dots: Row numbers, from 1, and latencies in seconds, of every row or of a regular sample.
        dot_step: Sampling interval of the dots, in rows.
        windows: First and last row number and median in seconds of rows that follow each other; empty for few rows.
        window_rows: Number of rows per window.
    """

    upper_s: float
    bins: list[int] = field(default_factory=lambda: [0] * BIN_COUNT)
    above: int = 0
    dots: list[tuple[int, float]] = field(default_factory=list)
    dot_step: int = 1
    windows: list[tuple[int, int, float]] = field(default_factory=list)
    window_rows: int = 0


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the table, with texts cut to fit.

    Args:
        name: Id of the case, with the repeat if there are several.
        outcome: An outcome of `assay.reports.charts.outcomes`.
        category: Empty for none.
        question: What was asked.
        message: Why it failed; empty if it did not.
        latency_s: Latency in seconds; None if it was not measured.
        scores: Value and verdict by metric.
    """

    name: str
    outcome: str
    category: str
    question: str
    message: str
    latency_s: float | None
    scores: Mapping[str, tuple[float | None, bool | None]]


@dataclass(frozen=True, slots=True)
class RowFigures:
    """The rows' figures for charts.

    Args:
        latency: Latencies.
        table: The first rows of each outcome, in TABLE_ORDER.
    """

    latency: LatencyFigures
    table: Sequence[TableRow]


def row_figures(report: Report) -> RowFigures:
    """Compute the figures in one pass over the rows, in bounded memory."""
    latencies = _LatencyReader(report.head["summary"]["latency"], report.row_count)
    repeats = report.head["config"]["repeats"] > 1
    kept: dict[str, list[TableRow]] = {outcome: [] for outcome in TABLE_ORDER}
    for number, row in enumerate(report.rows(), 1):
        latency_s = latency_of(row)
        latencies.take(number, latency_s)
        if len(rows := kept[NAMES[outcome_of(row)]]) < _MOST_TABLE_ROWS:
            rows.append(_table_row(row, latency_s, repeats=repeats))
    table = [row for outcome in TABLE_ORDER for row in kept[outcome]]
    return RowFigures(latencies.result(), table[:_MOST_TABLE_ROWS])


def latency_of(row: Mapping[str, Any]) -> float | None:
    """Return the latency of a row's answer in seconds; None without an answer."""
    latency_ms = row["latency_ms"]
    if row["status"] in FAILED_STATUSES or latency_ms is None or not math.isfinite(latency_ms) or latency_ms < 0:
        return None
    return float(latency_ms) / 1000


def _table_row(row: Mapping[str, Any], latency_s: float | None, *, repeats: bool) -> TableRow:
    return TableRow(
        name=shorten(row["case_id"], _MOST_CHARACTERS) + (f" #{row['repeat']}" if repeats else ""),
        outcome=NAMES[outcome_of(row)],
        category=shorten(row["category"] or "", _MOST_CHARACTERS),
        question=shorten(row["question"], _MOST_CHARACTERS),
        message=shorten(row["message"] or "", _MOST_CHARACTERS),
        latency_s=latency_s,
        scores={name: (score["value"], score["passed"]) for name, score in row["scores"].items()},
    )


class _LatencyReader:
    def __init__(self, latency: Mapping[str, Any], row_count: int) -> None:
        self._found = LatencyFigures(_upper_end(latency), dot_step=math.ceil(row_count / _MOST_DOTS) or 1)
        self._found.window_rows = math.ceil(row_count / _WINDOWS)
        self._window, self._first, self._last = array("d"), 1, 0

    def take(self, number: int, latency_s: float | None) -> None:
        latencies = self._found
        if number >= self._first + latencies.window_rows:
            self._close()
            self._first = number
        self._last = number
        if latency_s is None:
            return
        if latency_s > latencies.upper_s:
            latencies.above += 1
        else:
            latencies.bins[min(int(latency_s / latencies.upper_s * BIN_COUNT), BIN_COUNT - 1)] += 1
        if (number - 1) % latencies.dot_step == 0:
            latencies.dots.append((number, latency_s))
        self._window.append(latency_s)

    def _close(self) -> None:
        if self._window:
            self._found.windows.append((self._first, self._last, statistics.median(self._window)))
        self._window = array("d")

    def result(self) -> LatencyFigures:
        self._close()
        if self._found.window_rows < _SMALLEST_WINDOW:
            self._found.windows = []
        return self._found


def _upper_end(latency: Mapping[str, Any]) -> float:
    """Return the end of latency axes: the maximum, or well above the 95th percentile if there are a few outliers."""
    greatest, p95 = latency_s(latency, "max"), latency_s(latency, "p95")
    if not greatest or p95 is None:
        return 1.0
    return axis_end(greatest if greatest <= 3 * p95 else 1.5 * p95)
