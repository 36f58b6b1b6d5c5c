"""Summaries of stored runs: the final summary, and partial summaries over the rows stored so far."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.gates.run_verdict import with_verdict
from assay.metrics import build_metric
from assay_orchestrator.store.rows import attempts, results
from assay_orchestrator.store.rows.unused_approvals import find_unused_approvals
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import ACTIVE_STATES
from assay_orchestrator.store.shards import shards
from assay_orchestrator.summary.clusters import copies_of
from assay_orchestrator.summary.recommendations import recommendations
from assay_orchestrator.summary.row_notes import row_notes
from assay_orchestrator.summary.run_summary import SummaryRules, summarise
from assay_orchestrator.summary.stopped_early import stopped_early

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

    from assay.model.run import Run, RunSummary
    from assay.storage.database import Database
    from assay_orchestrator.store.runs.runs import RunRecord

_MOST_RUNS = 200
_LEAST_AGE_S = 1.0
_MOST_SHARE = 0.1


def fold(connection: sa.Connection, run: Run) -> RunSummary:
    """Return the summary over the stored rows of a run."""
    metrics = [build_metric(metric) for metric in run.spec.metrics]
    rows = results.read_all(connection, run.run_id)
    rules = SummaryRules.of(run.spec, copies_of(connection, run))
    summary = summarise(rows, metrics, run.spec.gates, rules=rules)
    asked_again, scored_again = attempts.count_repeated(connection, run.run_id)
    return dataclasses.replace(
        summary,
        stopped_early=stopped_early(connection, run, summary.judging),
        asked_again_count=asked_again,
        scored_again_count=scored_again,
    )


def fold_done(connection: sa.Connection, run: Run) -> tuple[RunRecord, RunSummary | None] | None:
    """Return a stored run and its final summary, or None as the summary if rows are missing.

    Returns:
        None if the run has ended, is paused, or has unfinished shards.
    """
    record = runs.load_run(connection, run.run_id)
    if record is None or record.state not in ACTIVE_STATES or not shards.all_done(connection, run.run_id):
        return None
    is_complete = results.count_finished(connection, run.run_id) == record.total_count
    if not is_complete:
        return record, None
    unused = find_unused_approvals(connection, run)
    return record, described(dataclasses.replace(fold(connection, run), unused_approvals=unused), run)


def described(summary: RunSummary, run: Run) -> RunSummary:
    """Return a summary with the verdict, reasons, notes and recommendations that follow from it and from the run."""
    decided = with_verdict(summary)
    return dataclasses.replace(
        decided,
        notes=(*decided.notes, *row_notes(run, decided)),
        recommendations=recommendations(decided, run.spec),
    )


@dataclass(frozen=True, slots=True)
class _Known:
    summary: RunSummary
    version: tuple[int, int]
    fresh_until: float


def _version(run: Run) -> tuple[int, int]:
    """Return a value that changes with a run's rows; removing rows stores no event."""
    return run.last_sequence, run.counts.finished_count


class PartialSummaries:
    """Partial summaries, each folded at most once a second, and for at most a tenth of the time.

    A run that has not changed is not folded again.

    Args:
        database: The store.
        clock: Seconds that only increase.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._folding: dict[str, asyncio.Task[RunSummary]] = {}

    async def of(self, run: Run) -> RunSummary | None:
        """Return the summary over a run's stored rows, marked as partial; None while it has none."""
        if not run.counts.finished_count:
            return None
        cached = self._known.get(run.run_id)
        if cached is not None and (cached.version == _version(run) or self._clock() < cached.fresh_until):
            return cached.summary
        task = self._folding.get(run.run_id)
        if task is None:
            task = self._folding[run.run_id] = asyncio.create_task(self._fold(run))
            task.add_done_callback(lambda _: self._folding.pop(run.run_id, None))
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Wait for the folds in progress."""
        await asyncio.gather(*self._folding.values(), return_exceptions=True)

    async def _fold(self, run: Run) -> RunSummary:
        begun = self._clock()
        summary = await self._database.read(lambda c: fold(c, run))
        summary = described(dataclasses.replace(summary, partial=True), run)
        ended = self._clock()
        fresh_until = ended + max(_LEAST_AGE_S, (ended - begun) / _MOST_SHARE)
        self._known[run.run_id] = _Known(summary, _version(run), fresh_until)
        self._known.move_to_end(run.run_id)
        while len(self._known) > _MOST_RUNS:
            self._known.popitem(last=False)
        return summary
