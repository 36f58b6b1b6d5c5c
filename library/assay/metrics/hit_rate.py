"""Hit rate: the share of questions for which an expected source was retrieved.

    hit = 1 when any retrieved source equals any expected one, else 0

A source equals an expected one when its title, its address or its id does: as texts without regard to case,
underscores and spacing; the last part of an address against a title; two addresses by host, path and query.
Nothing similar counts. With `k`, only the first k sources do. A case without expected sources is skipped;
nothing retrieved is 0, and so is an agent error that brought none. A row passes with 1. The aggregate is the
mean; threshold and target apply to it, as "more than".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import retrieved_sentence
from assay.metrics.core.fold import MeanFold
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.score import not_computed, scored
from assay.metrics.core.source_matching import (
    first_match,
    matching_work,
    missed,
    ranked_sources,
    unread_names,
    usable_sources,
)
from assay.model.run import Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.metrics.core.score import Row

INFO = MetricInfo(
    "hit_rate",
    "Hit rate",
    "Share of questions for which an expected source was retrieved.",
    (
        Parameter("k", "integer", None, "How many sources count, from the top; none for all.", 1),
        Parameter("threshold", "number", 0.80, "The run's rate must be more than this.", 0.0, 1.0),
        Parameter("target", "number", 0.90, "The run's rate should be more than this.", 0.0, 1.0),
    ),
    reads=("sources", "expected_sources"),
    decides="always",
    needs="expected_sources",
    values="0 or 1",
    rule="more_than",
    unit="%",
    stats=(
        "hits",
        "total",
    ),
)


class HitRate:
    """Parameters: `k`, `threshold` and `target` (on the rate)."""

    info = INFO
    version = "1"
    embedding: EmbeddingSettings | None = None

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self._k: int | None = parameters["k"]
        self._threshold: float | None = parameters["threshold"]
        self._target: float | None = parameters["target"]

    def work(self, row: Row) -> int:
        """Return how much work matching the sources is at most."""
        return matching_work(row)

    def score(self, row: Row) -> Score:
        """Return 1 or 0."""
        expected = usable_sources(row.case)
        if not expected:
            return Score(self.name, ScoreStatus.SKIPPED, reason="no_expected_sources")
        sources = ranked_sources(row.response)
        position = first_match(expected, sources, self._k)
        hit = position is not None
        detail = {"version": self.version, "position": position, "retrieved": len(sources)}
        if position is None and (unread := unread_names(expected, row.response, sources[: self._k])):
            detail["message"] = unread
            return not_computed(self.name, "sources_without_names", decides=True, **detail)
        return scored(self.name, float(hit), passed=hit, reason="" if hit else missed(row), detail=detail)

    def explain(self, row: Row, score: Score) -> str:
        """Return which sources were expected, and which were retrieved."""
        return retrieved_sentence(usable_sources(row.case), ranked_sources(row.response), self._k)

    def aggregate(self) -> _Fold:
        """Return an empty fold."""
        return _Fold(self.name, self._threshold, target=self._target, rule=self.info.rule)


class _Fold(MeanFold):
    def detail(self, value: float | None) -> dict[str, Any]:
        return {
            "avg_hit_rate": value,
            "hits": self.passed,
            "total": self.values.count,
            "interval": self.interval(),
        }
