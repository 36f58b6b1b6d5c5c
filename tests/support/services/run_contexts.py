"""What the shards of a run work with, for tests in which no question is asked."""

from __future__ import annotations

from assay_orchestrator.agents.replay import ReplayAgent
from assay_orchestrator.agents.retrying import RetryingAgent
from assay_orchestrator.pipeline.run_context import RunContext
from assay_orchestrator.scorers.pool import ScorerPool
from assay_orchestrator.scorers.row_scorer import RowScorer
from assay_orchestrator.settings import ScoringLimits


def plain_context(run_id: str, case_count: int) -> RunContext:
    """Return the context of a run of recorded answers without metrics, with eight questions in flight."""
    return RunContext(
        run_id=run_id,
        case_count=case_count,
        repeats=1,
        concurrency=8,
        timeout_s=1.0,
        agent=RetryingAgent(ReplayAgent(), retries=0),
        metrics=(),
        scorer=RowScorer(ScorerPool(ScoringLimits()), run_id, (), ()),
        embedders={},
    )
