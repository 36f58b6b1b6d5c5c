"""Figures of the page over all rows, from a single pass."""

from __future__ import annotations

import json
import math
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
    """Counts of all rows, and the first cases in full.

    Args:
        metrics: The names of the run's metrics.
        longest_s: The longest latency of an answer, in seconds; None where there is none.
        first_count: How many cases are kept.
    """

    def __init__(self, metrics: Sequence[str], longest_s: float | None, first_count: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.case_count = 0
        self.size = 0
        """Characters of all rows as JSON."""
        self.first: list[CaseLine] = []
        self.bin_width_s = round_up(longest_s / _MOST_BINS) if longest_s else _LEAST_BIN_S
        self.latency_bins = [0] * max(math.ceil((longest_s or 0.0) / self.bin_width_s - 1e-9), 1)
        self.sources: dict[str, dict[str, list[str]]] = {}
        """By metric, what produced its scores: versions, models, revisions, precisions and engines."""
        self._metrics = metrics
        self._first_count = first_count
        self._case_id: str | None = None

    def take(self, lines: Iterable[str]) -> None:
        """Take rows, each as JSON, in dataset order."""
        for line in lines:
            self.size += len(line)
            self._take_row(json.loads(line))

    def _take_row(self, row: Mapping[str, Any]) -> None:
        self.outcomes[outcome_of(row)] += 1
        if row["case_id"] != self._case_id:
            self._case_id = row["case_id"]
            self.case_count += 1
            if self.case_count <= self._first_count:
                self.first.append(CaseLine(row["case_id"], row["category"] or "", preview(row["question"])))
        if self.case_count <= self._first_count:
            self.first[-1].take(row, self._metrics)
        if row["latency_ms"] is not None and row["status"] not in FAILED_STATUSES:
            place = int(row["latency_ms"] / 1000 / self.bin_width_s)
            self.latency_bins[max(0, min(place, len(self.latency_bins) - 1))] += 1
        for name, score in row["scores"].items():
            self._take_sources(name, score["detail"])

    def _take_sources(self, metric: str, detail: Mapping[str, Any]) -> None:
        named = {**detail, "vectors": vectors_text(detail)}
        for key in _SOURCES:
            value = named.get(key)
            if isinstance(value, str) and value:
                values = self.sources.setdefault(metric, {}).setdefault(key, [])
                if value not in values and len(values) < _MOST_SOURCES:
                    values.append(value)
