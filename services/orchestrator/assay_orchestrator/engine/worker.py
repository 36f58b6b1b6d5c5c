"""Works on shards: starts them, runs their rows, then ends them and queues the next in one transaction."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from assay.errors import AssayError, StorageError
from assay.process.failpoints import failpoint
from assay.telemetry.context import added_fields
from assay_orchestrator.engine.dispatcher import TryAgainError, exit_at_once
from assay_orchestrator.instruments import SHARDS_IN_WORK
from assay_orchestrator.pipeline.session import Session, Sessions
from assay_orchestrator.pipeline.shard_runner import ShardRunner
from assay_orchestrator.pipeline.storage_pauses import STORAGE_BACKOFF, StoragePauses
from assay_orchestrator.store import control
from assay_orchestrator.store.rows import attempts, stops
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import Command
from assay_orchestrator.store.shards import fairness, shards, unjudged
from assay_orchestrator.store.shards.shards import SUMMARY, FencedError, RunStoppedError, ShardJob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.engine.dispatcher import Dispatcher
    from assay_orchestrator.pipeline.run_context import RunContext
    from assay_orchestrator.pipeline.storage_pauses import Backoff, RunStore
    from assay_orchestrator.store.shards.fairness import FairShares
    from assay_orchestrator.store.shards.shards import Shard

_STORAGE_RETRY_S = 1.0

_log = logging.getLogger(__name__)
_USUAL_REPOLL_S = 30.0


class RunSupervisor(Protocol):
    """The owner of this process's runs, as the worker calls it."""

    async def context_of(self, run_id: str) -> RunContext:
        """Return the context of a run's shards."""

    async def conclude_run(self, run_id: str) -> None:
        """Summarise a run whose shards are all done."""

    async def fail_run(self, run_id: str, problem: Exception) -> None:
        """End a run as failed."""

    def on_state_changed(self, run_id: str) -> None:
        """Handle a change of a run's state."""

    def on_paused(self, run_id: str, reason: str) -> None:
        """Handle the pause of a run, by its owner or because only unjudged shards are left."""


@dataclass(frozen=True, slots=True)
class _NextWork:
    """The next work of a run after one of its shards has ended.

    Args:
        jobs: Its next jobs.
        paused: Why it is paused; empty if it is not.
        awaits: Whether it can only wait for ordered verdicts.
    """

    jobs: list[ShardJob]
    paused: str
    awaits: bool


class ShardWorker:
    """Works on the shards that the dispatcher delivers.

    Args:
        database: The store.
        dispatcher: Delivers jobs, and takes follow-up jobs.
        shares: How teams and agents share the workers.
        supervisor: Owns the runs.
        make_session: Creates the session that a run's shards share.
        max_attempts: Maximum attempts at a row with an error.
        storage_backoff: How long rows that could not be stored wait before the next attempt.
        on_fenced: Called when another worker has been given a shard of this one: exits the process.
    """

    def __init__(
        self,
        database: Database,
        dispatcher: Dispatcher,
        shares: FairShares,
        supervisor: RunSupervisor,
        make_session: Callable[[RunContext, RunStore], Session],
        *,
        max_attempts: int = 3,
        storage_backoff: Backoff = STORAGE_BACKOFF,
        on_fenced: Callable[[], None] = exit_at_once,
    ) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._shares = shares
        self._supervisor = supervisor
        self._on_fenced = on_fenced
        self._max_attempts = max_attempts
        self._handing_over = False

        self.pauses = StoragePauses(
            database, supervisor.on_state_changed, self.resume_from_storage, backoff=storage_backoff
        )

        async def make(run_id: str) -> Session:
            return make_session(await supervisor.context_of(run_id), self.pauses.of(run_id))

        self.sessions = Sessions(make)
        self.repoll_timers = RepollTimers(self._repoll)
        self._ordered: set[tuple[str, int]] = set()

    async def work(self, run_id: str, shard_index: int, ticket: int) -> None:
        """Do one job.

        Args:
            shard_index: The shard's index, or SUMMARY.
            ticket: How many times the shard had been queued when the job was created.

        Raises:
            TryAgainError: The store does not answer and the job was not started; it is retried later.
        """
        with added_fields(run=run_id):
            await self._work(run_id, shard_index, ticket)

    async def _work(self, run_id: str, shard_index: int, ticket: int) -> None:
        try:
            if shard_index == SUMMARY:
                await self.pauses.outlast(run_id, lambda: self._supervisor.conclude_run(run_id))
            else:
                await self._take(run_id, shard_index, ticket)
        except FencedError as problem:
            _log.error("%s", problem.message)
            self._on_fenced()
        except RunStoppedError as problem:
            _log.info("dropping shard: run=%s shard=%s: %s", run_id, shard_index, problem.message)
        except StorageError as problem:
            _log.warning("retrying shard later: run=%s shard=%s: %s", run_id, shard_index, problem.message)
            raise TryAgainError(_STORAGE_RETRY_S) from problem
        except Exception as problem:  # noqa: BLE001 - the boundary of a task: a defect ends its run alone
            await self._supervisor.fail_run(run_id, problem)

    async def enqueue(self, change: Callable[[sa.Connection], list[ShardJob]]) -> None:
        """Apply a change and enqueue the jobs that it returns, in one transaction."""

        def with_jobs(connection: sa.Connection) -> list[ShardJob]:
            jobs = change(connection)
            self._dispatcher.enqueue(connection, jobs)
            return jobs

        self._dispatcher.committed(await self._database.write(with_jobs))

    def next_jobs(self, connection: sa.Connection, run_id: str) -> list[ShardJob]:
        """Return the next jobs of a run, and of the runs that share its agent."""
        return fairness.next_jobs(connection, run_id, self._shares)

    async def requeue_idle(self) -> None:
        """Enqueue the next jobs of active runs that have no queued or taken shard."""
        for run_id in await self._database.read(runs.list_idle):
            await self.enqueue(lambda c, run_id=run_id: self.next_jobs(c, run_id))  # type: ignore[misc]

    async def cancel(self, run_id: str) -> None:
        """Cancel this process's work on a run, and wait until it has ended."""
        self.cancel_soon(run_id)
        await self.until_left(run_id)

    def cancel_soon(self, run_id: str) -> None:
        """Cancel this process's work on a run, without waiting."""
        self.pauses.give_up(run_id)
        session = self.sessions.of(run_id)
        if session is not None:
            session.stop_asking()
            for task in list(session.tasks):
                task.cancel()

    async def until_left(self, run_id: str) -> None:
        """Wait until this process has no session of a run that has stopped."""
        session = self.sessions.of(run_id)
        if session is not None:
            await session.ended.wait()

    async def hand_over(self) -> None:
        """Cancel all work of this process, and requeue it at once for other processes."""
        self._handing_over = True
        self.pauses.close()
        for session in self.sessions.all():
            await self.cancel(session.context.run_id)

    async def _take(self, run_id: str, shard_index: int, ticket: int) -> None:
        store = self.pauses.of(run_id)
        begun, since = await store.outlast(lambda: self._begin(run_id, shard_index, ticket))
        failpoint("shard.start_after_commit")
        if begun.shard is not None and begun.shard.retry_errors:
            failpoint("retry.after_commit")
        if begun.paused:
            self._supervisor.on_paused(run_id, begun.paused)
        if begun.is_first:
            _log.info("started run: run=%s", run_id)
            self._supervisor.on_state_changed(run_id)
        shard = begun.shard
        if shard is None:
            return
        try:
            async with AsyncExitStack() as stack:
                session = await stack.enter_async_context(self.sessions.join(run_id))
                # A cancel that came before the session existed had nothing to end.
                await self._database.read(lambda c: shards.require_active(c, run_id, keep=False))
                runner = ShardRunner(store, session, shard, is_ordered=(run_id, shard_index) in self._ordered)
                async with session.share(shard, since):
                    SHARDS_IN_WORK.series().inc()
                    stack.callback(SHARDS_IN_WORK.series().dec)
                    await runner.run()
                await self._leave(store, shard, runner)
        except BaseException as problem:
            is_for_others = self._handing_over and not self._dispatcher.alone
            enqueue = isinstance(problem, StorageError) or is_for_others
            # Not cancelled with the work: a shard that is not released waits until this process counts as dead.
            await asyncio.shield(self._release(shard, enqueue=enqueue))
            raise

    async def _begin(self, run_id: str, shard_index: int, ticket: int) -> tuple[_ShardStart, float]:
        # Taken before the write: the shard is this process's for a limited time from the commit on, never longer.
        since, limit = monotonic(), self._max_attempts
        return await self._database.write(lambda c: _begin(c, run_id, shard_index, ticket, limit)), since

    async def _leave(self, store: RunStore, shard: Shard, runner: ShardRunner) -> None:
        def leave(connection: sa.Connection) -> _NextWork:
            if runner.may_stop_early:
                stops.drop_unasked(connection, shard)
            _settle(connection, shard, runner)
            outcome = self._enqueue_next(connection, shard.run_id)
            failpoint("shard.leave_before_commit")
            return outcome

        (self._ordered.add if runner.has_ordered else self._ordered.discard)((shard.run_id, shard.shard_index))
        if runner.repoll_after_s is not None:
            self.repoll_timers.note_delay(shard.run_id, runner.repoll_after_s)

        # One transaction: a crash between the end of a shard and the next jobs would leave the run without any.
        outcome = await store.write(leave)
        self._after_commit(shard.run_id, outcome)
        failpoint("shard.leave_after_commit")

    def _enqueue_next(self, connection: sa.Connection, run_id: str) -> _NextWork:
        """Enqueue the next jobs of a run; if there are none, pause it if it is pausing or can only wait."""
        jobs = self.next_jobs(connection, run_id)
        self._dispatcher.enqueue(connection, jobs)
        is_active = any(job.run_id == run_id for job in jobs)
        paused = "" if is_active else _pause(connection, run_id)
        awaits = not is_active and not paused and unjudged.await_batch(connection, run_id)
        return _NextWork(jobs, paused, awaits)

    def _after_commit(self, run_id: str, outcome: _NextWork) -> None:
        """Apply the result of `_enqueue_next` once it is committed."""
        self._dispatcher.committed(outcome.jobs)
        if outcome.paused:
            self._supervisor.on_paused(run_id, outcome.paused)
        if outcome.awaits:
            self.repoll_timers.schedule(run_id)
            self._supervisor.on_state_changed(run_id)

    async def resume_from_storage(self, run_id: str) -> None:
        """Resume a run that was paused because its rows could not be stored, unless its owner has paused it since.

        Raises:
            StorageError: The change of state cannot be stored either.
        """

        def resume(connection: sa.Connection) -> _NextWork | None:
            shards.lock_sharing(connection, run_id)
            if runs.apply_command(connection, run_id, Command.REGAIN_STORAGE) is None:
                return None
            return self._enqueue_next(connection, run_id)

        outcome = await self._database.write(resume)
        if outcome is not None:
            self._after_commit(run_id, outcome)
            self._supervisor.on_state_changed(run_id)

    async def reopen_incomplete(self, run_id: str) -> None:
        """Reopen a run's shards that are done but lack rows; a complete run stays unchanged.

        Raises:
            WrongStateError: The missing rows belong to no shard.
        """

        def reopen(connection: sa.Connection) -> _NextWork | None:
            is_reopened = control.reopen_incomplete(connection, run_id)
            return self._enqueue_next(connection, run_id) if is_reopened else None

        outcome = await self._database.write(reopen)
        if outcome is not None:
            _log.warning("reopening shards that lack rows: run=%s", run_id)
            self._after_commit(run_id, outcome)

    async def end_early(self, run_ids: Sequence[str]) -> None:
        """Enqueue the rest of runs that have stopped early: their waiting shards may all have ended."""

        def change(connection: sa.Connection) -> list[ShardJob]:
            return [job for run_id in run_ids for job in self.next_jobs(connection, run_id)]

        await self.enqueue(change)

    async def _repoll(self, run_id: str) -> None:
        def change(connection: sa.Connection) -> list[ShardJob]:
            return self.next_jobs(connection, run_id) if unjudged.requeue_ordered(connection, run_id) else []

        await self.enqueue(change)

    async def _release(self, shard: Shard, *, enqueue: bool) -> None:
        """Release a shard whose work was cancelled; with `enqueue`, requeue it.

        If the release cannot be stored, its job is retried.
        """

        def release(connection: sa.Connection) -> list[ShardJob]:
            shards.lock_sharing(connection, shard.run_id)
            shards.release_shard(connection, shard.run_id, shard.shard_index, shard.epoch)
            return self.next_jobs(connection, shard.run_id) if enqueue else []

        try:
            await self.enqueue(release)
        except StorageError as problem:
            _log.warning("cannot requeue shard: run=%s shard=%s: %s", shard.run_id, shard.shard_index, problem.message)


@dataclass(frozen=True, slots=True)
class _ShardStart:
    """The result of starting a job: a shard or None, whether its run began with it, and why the run was paused."""

    shard: Shard | None
    is_first: bool = False
    paused: str = ""


def _settle(connection: sa.Connection, shard: Shard, runner: ShardRunner) -> None:
    """Store the state of a shard whose work has ended here."""
    if shards.complete_shard(connection, shard):
        if runner.has_judged:  # so other shards may now get verdicts they could not get before
            unjudged.release_unjudged(connection, shard.run_id)
    elif runner.repoll_after_s is not None:
        unjudged.mark_ordered(connection, shard)
    elif runner.trouble:
        unjudged.mark_unjudged(connection, shard, runner.trouble)
    else:
        shards.release_shard(connection, shard.run_id, shard.shard_index, shard.epoch)


def _pause(connection: sa.Connection, run_id: str) -> str:
    """Pause a run that is pausing or can only wait; return the reason, or the empty string if neither applies."""
    return shards.finish_pause(connection, run_id) or unjudged.pause_if_stuck(connection, run_id)


def _begin(connection: sa.Connection, run_id: str, shard_index: int, ticket: int, max_attempts: int) -> _ShardStart:
    shard = shards.start_shard(connection, run_id, shard_index, ticket)
    if shard is None:
        return _ShardStart(None, paused=shards.finish_pause(connection, run_id))
    is_first = runs.apply_command(connection, run_id, Command.START) is not None
    if shard.retry_errors:
        attempts.archive_failed_rows(connection, shard, max_attempts)
        failpoint("retry.before_commit")
    failpoint("shard.start_before_commit")
    return _ShardStart(shard, is_first=is_first)


class RepollTimers:
    """Polls the runs that await ordered verdicts, with at most one timer per run.

    Timers exist in memory only: if the process ends, the search for orphaned shards schedules the run again.

    Args:
        repoll: Requeues the shards of a run that await ordered verdicts.
    """

    def __init__(self, repoll: Callable[[str], Awaitable[None]]) -> None:
        self._repoll = repoll
        self._after_s: dict[str, float] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}

    def note_delay(self, run_id: str, after_s: float) -> None:
        """Record in how many seconds some of a run's verdicts may be ready."""
        self._after_s[run_id] = min(after_s, self._after_s.get(run_id, after_s))

    def schedule(self, run_id: str) -> None:
        """Poll a run when its first verdicts may be ready, unless a timer is already set."""
        if run_id not in self._timers:
            after_s = self._after_s.pop(run_id, _USUAL_REPOLL_S)
            self._timers[run_id] = asyncio.create_task(self._wait(run_id, after_s), name=f"repoll verdicts of {run_id}")

    async def aclose(self) -> None:
        """Cancel all timers."""
        timers = list(self._timers.values())
        for timer in timers:
            timer.cancel()
        await asyncio.gather(*timers, return_exceptions=True)

    async def _wait(self, run_id: str, after_s: float) -> None:
        try:
            await asyncio.sleep(after_s)
        finally:
            del self._timers[run_id]
        try:
            await self._repoll(run_id)
        except AssayError as problem:
            _log.warning("cannot poll the verdicts of a run, retrying: run=%s: %s", run_id, problem.message)
            self.schedule(run_id)
