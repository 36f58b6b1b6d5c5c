"""The base of metrics of the position of the first expected source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import retrieved_sentence
from assay.metrics.core.score import scored
from assay.metrics.core.source_matching import (
    first_match,
    matching_work,
    missed,
    ranked_sources,
    unread_names,
    usable_sources,
)
from assay.metrics.core.threshold_metric import ThresholdMetric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.run import Score


class SourceRank(ThresholdMetric):
    """A metric of the position of the first expected source; a kind adds `value_at`."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._k: int | None = parameters["k"]

    def value_at(self, position: int) -> float:
        """Return the value of a row whose first expected source has this position, counted from 1."""
        raise NotImplementedError

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of matching the sources."""
        return matching_work(row)

    def score(self, row: Row) -> Score:
        """Return the value of the position, or 0 if no expected source was retrieved."""
        expected = usable_sources(row.case)
        if not expected:
            return self._skipped("no_expected_sources")
        sources = ranked_sources(row.response)
        position = first_match(expected, sources, self._k)
        detail = {"version": self.version, "position": position, "retrieved": len(sources)}
        if position is None and (unread := unread_names(expected, row.response, sources[: self._k])):
            return self._not_computed("sources_without_names", detail, message=unread)
        value = 0.0 if position is None else self.value_at(position)
        reason = missed(row) if position is None else ""
        passed = position is not None if self.decides else None
        return scored(self.name, value, passed=passed, reason=reason, detail=detail)

    def explain(self, row: Row, score: Score) -> str:
        """Return the expected and the retrieved sources."""
        return retrieved_sentence(usable_sources(row.case), ranked_sources(row.response), self._k)
