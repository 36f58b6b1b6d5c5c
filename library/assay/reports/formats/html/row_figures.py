"""Figures of the page over all rows."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.metrics.core.embedding import vectors_text
from assay.model.answers.agent_response import FAILED_STATUSES
from assay.reports.charts.scales import round_up
from assay.reports.document.row_outcome import outcome_of
from assay.reports.formats.html.row_data import preview

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MOST_BINS = 30
_LEAST_BIN_S = 0.05
_SOURCES = ("version", "model", "revision", "precision", "engine", "vectors")
_MOST_SOURCES = 5  # of a metric: rows of one run hardly differ


@dataclass(slots=True)
class CaseLine:
    """One case with all its repeats, as the list of cases shows it.

    Args:
        case_id: The case.
        category: Its category, or empty.
        question: Its beginning.
        outcomes: What each repeat came to.
        values: The values of each metric.
        latencies_ms: Of the repeats that have one.
        status: The agent's, of the last repeat.
    """

    case_id: str
    category: str
    question: str
    outcomes: list[str] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    status: str = ""

    def take(self, row: Mapping[str, Any], metrics: Sequence[str]) -> None:
        """Take one repeat."""
        self.outcomes.append(outcome_of(row))
        self.status = row["status"]
        for name in metrics:
            value = row["scores"].get(name, {}).get("value")
            if value is not None:
                self.values.setdefault(name, []).append(value)
        if row["latency_ms"] is not None:
            self.latencies_ms.append(row["latency_ms"])


class RowFigures:
    """Counts of all rows, which may be taken in any order."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.size = 0
        """Characters of all rows as JSON."""
        self.sources: dict[str, dict[str, list[str]]] = {}
        """By metric, what produced its scores, sorted: versions, models, revisions, precisions and engines."""
        self._latencies_s = array("d")
        self._cases = bytearray()  # by case: whether it has a row

    def take(self, case: int, row: Mapping[str, Any], size: int) -> None:
        """Add a row.

        Args:
            case: Number of its case.
            row: The row.
            size: Characters of the row as JSON.
        """
        self.size += size
        self.outcomes[outcome_of(row)] += 1
        self._cases.extend(bytes(max(case + 1 - len(self._cases), 0)))
        self._cases[case] = 1
        if row["latency_ms"] is not None and row["status"] not in FAILED_STATUSES:
            self._latencies_s.append(row["latency_ms"] / 1000)
        for name, score in row["scores"].items():
            self._take_sources(name, score["detail"])

    @property
    def case_count(self) -> int:
        """The number of cases."""
        return self._cases.count(1)

    def latency_bins(self, longest_s: float | None) -> tuple[float, list[int]]:
        """Return the width of the bins of latencies in seconds, and the number of answers in each.

        Args:
            longest_s: The longest latency of an answer, in seconds; None if there is none.
        """
        width_s = round_up(longest_s / _MOST_BINS) if longest_s else _LEAST_BIN_S
        bins = [0] * max(math.ceil((longest_s or 0.0) / width_s - 1e-9), 1)
        for latency_s in self._latencies_s:
            bins[max(0, min(int(latency_s / width_s), len(bins) - 1))] += 1
        return width_s, bins

    def _take_sources(self, metric: str, detail: Mapping[str, Any]) -> None:
        named = {**detail, "vectors": vectors_text(detail)}
        for key in _SOURCES:
            value = named.get(key)
            if isinstance(value, str) and value:
                values = self.sources.setdefault(metric, {}).setdefault(key, [])
                if value not in values:
                    values[:] = sorted([*values, value])[:_MOST_SOURCES]


def first_cases(rows: Iterable[Mapping[str, Any]], metrics: Sequence[str], count: int) -> list[CaseLine]:
    """Return the first cases of a report in full.

    Args:
        rows: The rows, in dataset order.
        metrics: The names of the run's metrics.
        count: How many cases are returned.
    """
    lines: list[CaseLine] = []
    for row in rows:
        if not lines or row["case_id"] != lines[-1].case_id:
            if len(lines) == count:
                break
            lines.append(CaseLine(row["case_id"], row["category"] or "", preview(row["question"])))
        lines[-1].take(row, metrics)
    return lines
