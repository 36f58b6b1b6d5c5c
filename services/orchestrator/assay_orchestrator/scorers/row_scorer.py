"""The scores of a run's rows: computed here if that is little work, else in a scorer process."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import pickle
from typing import TYPE_CHECKING

from assay.metrics.core.row_work import row_work
from assay.metrics.core.score import score_from_json
from assay.metrics.rows.row_scores import score_row
from assay.model.run import Score, ScoreStatus
from assay_orchestrator.scorers.jobs import ScoreRow
from assay_orchestrator.scorers.pool import ScoringFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.metrics.core.score import Metric, Row
    from assay.model.run import MetricSpec
    from assay_orchestrator.scorers.pool import ScorerPool

WORK_AT_ONCE = 50_000
"""Rows up to this bound (half a millisecond) are scored in place."""
WORK_HERE = 500_000
"""Rows up to this bound (five milliseconds) are scored on the event loop, one per round; others in a scorer."""


class RowScorer:
    """Scores the rows of one run.

    Args:
        pool: The scorers.
        settings: The settings of its metrics.
        metrics: The metrics built from these settings.
    """

    def __init__(
        self, pool: ScorerPool, run_id: str, settings: Sequence[MetricSpec], metrics: Sequence[Metric]
    ) -> None:
        self._pool = pool
        self._run_id = run_id
        self._settings = pickle.dumps(tuple(settings), pickle.HIGHEST_PROTOCOL)
        self._metrics = metrics

    async def score(self, row: Row) -> tuple[Score, ...]:
        """Return a row's scores, in the order of the metrics; if it cannot be scored, each says why."""
        work = self._work(row)
        if work <= WORK_AT_ONCE:
            return score_row(self._metrics, row)
        if work <= WORK_HERE:
            async with self._pool.turn:
                scores = score_row(self._metrics, row)
                await asyncio.sleep(0)
                return scores
        # Recorded data of the dataset is already in the answer, or belongs to another row.
        case = dataclasses.replace(row.case.without_answers(), verdicts=())
        job = ScoreRow(self._settings, dataclasses.replace(row, case=case))
        try:
            return self._read(await self._pool.do(self._run_id, job))
        except ScoringFailedError as problem:
            return self._failed(problem.failure)

    def _work(self, row: Row) -> float:
        try:
            return row_work(self._metrics, row)
        except RecursionError:
            return math.inf

    def _read(self, result: object) -> tuple[Score, ...]:
        """Return a scorer's scores; they are checked, because the scorer has read hostile text."""
        try:
            assert isinstance(result, list)
            scores = tuple(score_from_json(score) for score in result)
        except (AssertionError, AttributeError, KeyError, TypeError):
            return self._failed("scoring_crashed")
        names = [metric.name for metric in self._metrics]
        return scores if [score.metric for score in scores] == names else self._failed("scoring_crashed")

    def _failed(self, failure: str) -> tuple[Score, ...]:
        message = self._message(failure) if failure in _MESSAGES else ""
        return tuple(Score(metric.name, ScoreStatus.ERROR, reason=failure, message=message) for metric in self._metrics)

    def _message(self, failure: str) -> str:
        limits = self._pool.limits
        return _MESSAGES[failure].format(timeout_s=limits.timeout_s, memory_mib=limits.memory_mib)


_MESSAGES = {
    "scoring_timeout": "scoring this row takes more than {timeout_s:g} s of processor time: shorten the answer or "
    "simplify the metric's schema or pattern; the operator sets the limit with --scoring-timeout-s",
    "scoring_memory": "scoring this row takes more than {memory_mib} MiB of memory: shorten the answer or simplify the "
    "metric's schema or pattern; the operator sets the limit with --scoring-memory-mib",
    "scoring_failed": "scoring this row raised an unexpected error: report it with its traceback from the "
    "orchestrator's log; after the fix, `assay runs resume RUN --retry-errors` scores the row again",
    "scoring_crashed": "the scorer process crashed twice on this row: see the orchestrator's log",
    "scoring_unavailable": "no scorer process can be started: see the orchestrator's log",
}
