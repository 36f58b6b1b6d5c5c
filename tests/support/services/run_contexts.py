"""The context of a run's shards, for tests that ask no question."""

from __future__ import annotations

from assay_orchestrator.agents.replay import ReplayAgent
from assay_orchestrator.agents.retrying import RetryingAgent
from assay_orchestrator.pipeline.run_context import RunContext
from assay_orchestrator.scorers.pool import ScorerPool
from assay_orchestrator.scorers.row_scorer import RowScorer
from assay_orchestrator.settings import ScoringLimits


def plain_context(run_id: str, case_count: int) -> RunContext:
    """Return the context of a run over recorded answers, without metrics and with eight questions in flight."""
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
