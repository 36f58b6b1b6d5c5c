"""What a run's settings say about its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.metrics import decides_rows
from assay.model.run_settings import CANARY_LIMIT, MAX_ERRORS
from assay.records import dataclass

if TYPE_CHECKING:
    from assay.model.run_settings import RunSettings


@dataclass(frozen=True, slots=True)
class SummaryRules:
    """The settings that decide about a run beside its gates.

    Args:
        max_agent_errors: Largest share of the rows whose agent may fail.
        max_metric_errors: Largest share of the rows that a metric should have scored on which it may fail.
        left_out: Wrong records of the dataset that are no cases.
        optional: Names of the metrics that the run may end without.
        deciding: Names of the metrics that give rows a verdict.
        canary_limit: Largest rate of wrong verdicts on canaries, from 0 to 1.
        accepts_canaries: Whether failed canaries leave the verdict as it is.
    """

    max_agent_errors: float = MAX_ERRORS
    max_metric_errors: float = MAX_ERRORS
    left_out: int = 0
    optional: frozenset[str] = frozenset()
    deciding: frozenset[str] = frozenset()
    canary_limit: float = CANARY_LIMIT
    accepts_canaries: bool = False

    @classmethod
    def of(cls, settings: RunSettings) -> SummaryRules:
        """Return the rules of a run."""
        judge = settings.judge
        return cls(
            max_agent_errors=settings.max_agent_errors,
            max_metric_errors=settings.max_metric_errors,
            left_out=settings.dataset.left_out_count if settings.dataset is not None else 0,
            optional=frozenset(metric.name for metric in settings.metrics if metric.is_optional),
            deciding=frozenset(metric.name for metric in settings.metrics if decides_rows(metric)),
            canary_limit=CANARY_LIMIT if judge is None else judge.canary_limit,
            accepts_canaries=judge is not None and judge.accepts_canaries,
        )


NO_RULES = SummaryRules()
"""The rules of a spec that says nothing about them."""
