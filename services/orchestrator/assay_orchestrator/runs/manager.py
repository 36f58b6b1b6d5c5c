"""The runs of this process: created, started, paused, resumed, ended, and recovered after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING

from assay.errors import AssayError, NotFoundError, SpecError, StorageError
from assay.gates.stopping_text import stopped_sentence
from assay.model.run import Run, RunSpec, RunState
from assay.model.run_spec import UNREADABLE
from assay.model.scope import Scope
from assay.process.failpoints import failpoint
from assay.telemetry.tracing import is_tracing
from assay_orchestrator.engine.worker import ShardWorker
from assay_orchestrator.identity.service_scopes import ServiceScopes
from assay_orchestrator.pipeline.case_traces import CaseTraces
from assay_orchestrator.pipeline.session import Session
from assay_orchestrator.pipeline.storage_pauses import STORAGE_BACKOFF
from assay_orchestrator.runs.admission import check_update
from assay_orchestrator.runs.agent_hosts import AgentHosts
from assay_orchestrator.runs.budget_watch import BudgetWatch
from assay_orchestrator.runs.catalogue import Catalogue
from assay_orchestrator.runs.creation import Creation
from assay_orchestrator.runs.deletion import Deleter
from assay_orchestrator.runs.destination_watch import DestinationWatch
from assay_orchestrator.runs.peers import Peers
from assay_orchestrator.runs.recovery import recover_runs
from assay_orchestrator.runs.run_lists import RunLists
from assay_orchestrator.runs.team_access import TeamAccess
from assay_orchestrator.runs.unattended_runs import UnattendedRuns
from assay_orchestrator.store import control, updates
from assay_orchestrator.store.control import Resumption
from assay_orchestrator.store.removal import deletions
from assay_orchestrator.store.rows import stops
from assay_orchestrator.store.runs import attendance, datasets, lifecycle, runs
from assay_orchestrator.store.runs.lifecycle import (
    ACTIVE_STATES,
    PHASES_AT_REST,
    Command,
    Phase,
    client_view,
    phase_of,
    require_transition,
)
from assay_orchestrator.store.shards import shards
from assay_orchestrator.store.shards.fairness import FairShares
from assay_orchestrator.store.teams import quotas, tokens
from assay_orchestrator.summary.partial import PartialSummaries, fold_done
from assay_orchestrator.watch.notifier import Notifier

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import sqlalchemy as sa

    from assay.model.run import DatasetRef, Deletion, RunSummary
    from assay.storage.database import Database
    from assay_orchestrator.agents.access import AgentAccess
    from assay_orchestrator.agents.hosted import Attachment
    from assay_orchestrator.engine.dispatcher import Dispatcher
    from assay_orchestrator.pipeline.run_context import RunContext
    from assay_orchestrator.pipeline.storage_pauses import Backoff, RunStore
    from assay_orchestrator.runs.planner import Planner
    from assay_orchestrator.settings import Settings
    from assay_orchestrator.store.rows.stops import StopLook
    from assay_orchestrator.store.runs.runs import RunStatus
    from assay_orchestrator.store.shards.shards import ShardJob
    from assay_orchestrator.store.updates import RunUpdate

_log = logging.getLogger(__name__)


class RunManager:
    """Owns the runs of this process.

    Args:
        database: The store.
        settings: Limits and the recovery policy.
        planner: Builds the context of a stored run.
        dispatcher: Delivers shards to this process.
        pause_wait_s: How long a pause waits for questions in flight before it returns, in seconds.
        storage_backoff: How long rows that could not be stored wait before the next attempt.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        planner: Planner,
        dispatcher: Dispatcher,
        *,
        pause_wait_s: float = 3.0,
        storage_backoff: Backoff = STORAGE_BACKOFF,
    ) -> None:
        self._database = database
        self._settings = settings
        self._planner = planner
        self._dispatcher = dispatcher
        self._catalogue = Catalogue(database)
        self._service_scopes = ServiceScopes(database)
        self.access = TeamAccess(database, settings)
        self._pause_wait_s = pause_wait_s
        self.lists = RunLists(database, self.storage_problem)
        self._partial = PartialSummaries(database)
        self._deleter = Deleter(database)
        self._pausing: set[str] = set()
        self.notifier = Notifier()
        shares = FairShares(settings.team_weights, settings.agent_limits)
        self._worker = ShardWorker(
            database,
            self._dispatcher,
            shares,
            self,
            self._session,
            max_attempts=settings.row_try_limit,
            storage_backoff=storage_backoff,
        )
        self._creation = Creation(database, self._worker, settings)
        self._hosts = AgentHosts(database, planner, dispatcher, self._worker)
        self._unattended = UnattendedRuns(database, self, limit_s=settings.unattended_pause_s)
        # A file without identities has one team. A worker on a shared database does not know whether there are more.
        self._may_have_teams = settings.auth != "none" or bool(settings.database_url)
        self._budgets = BudgetWatch(database, self)
        self._destinations = DestinationWatch(self.access, planner, self._worker.sessions, self)
        self._peers = Peers(database, dispatcher, self._worker, self, reconcile_s=settings.reconcile_s)

    async def start(self) -> None:
        """Start working; without other processes, resume or pause every run that a stop interrupted."""
        await self._database.write(datasets.discard_unfinished_uploads)
        if self._dispatcher.alone:
            resume = partial(self._resume, is_recovery=True)
            await recover_runs(self._database, resume, resumes=self._settings.recover == "auto")
        # After recovery, which releases every shard, also one that a job would just have started.
        self._dispatcher.open(self._worker.work)
        if not self._dispatcher.alone:
            self._peers.start()
        self._unattended.start()
        for checks in (self._budgets, self._destinations) if self._may_have_teams else ():
            checks.start()
        await self._deleter.recover()

    async def create(
        self, scope: Scope, request_id: str, settings: RunSpec, dataset: DatasetRef, asked: RunSpec
    ) -> Run:
        """Accept a run and start it; a repeated request returns the run of the first. See `Creation.create`.

        Raises:
            ConflictError: The request id was used for something else.
            OverloadedError: Too many runs are active.
        """
        return await self.get(scope, await self._creation.create(scope, request_id, settings, dataset, asked))

    async def preflight(self, scope: Scope, settings: RunSpec, access: AgentAccess) -> None:
        """Raise unless the services of a run work for its team: its agent, the embedder and the judge.

        Args:
            settings: Checked settings.
            access: What its agent may reach and be sent.

        Raises:
            SpecError: A service would refuse the run; contains every problem.
        """
        planner, known_as = self._planner, await self._service_scopes.of(scope.team)
        checks = (
            planner.agent_problems(settings, access),
            planner.embedder_problems(settings, known_as),
            planner.judge_problems(settings, access),
        )
        if problems := [problem for refusals in await asyncio.gather(*checks) for problem in refusals]:
            raise SpecError(problems)

    async def get(self, scope: Scope, run_id: str) -> Run:
        """Return a stored run.

        Raises:
            NotFoundError: The scope cannot reach the run.
        """
        return await self._catalogue.get(scope, run_id)

    async def get_summarised(self, scope: Scope, run_id: str) -> Run:
        """Return a stored run, with a partial summary if it has no final one.

        Raises:
            NotFoundError: The scope cannot reach the run.
        """
        run = await self.get(scope, run_id)
        if run.summary is not None or run.spec.agent.adapter == UNREADABLE:
            return run
        return dataclasses.replace(run, summary=await self._partial.of(run))

    async def cancel(self, scope: Scope, run_id: str, *, message: str = "") -> Run:
        """Cancel a run; stored rows are kept.

        Args:
            scope: The scope of the caller.
            run_id: The run.
            message: Why, as its watchers see it; empty if its owner cancels it.

        Raises:
            WrongStateError: The run has already ended in another state.
        """
        if not await self._database.write(lambda c: control.cancel(c, scope, run_id, message=message)):
            raise self._catalogue.not_found(run_id)
        _log.info("cancelled run: run=%s", run_id)
        self._hosts.forget(run_id, message or "the run was cancelled")
        await self._worker.cancel(run_id)
        self.notifier.notify(run_id)
        return await self.get(scope, run_id)

    async def pause(self, scope: Scope, run_id: str, *, message: str = runs.PAUSED_BY_OWNER) -> Run:
        """Let a run's questions in flight end and ask no more; the run is then PAUSED.

        Returns:
            The run, after a few seconds at most; still PAUSING if questions in flight take longer.

        Raises:
            WrongStateError: The run has ended.
        """
        # Before the change: a pause that completes at once must not be missed.
        moved = self.notifier.subscribe(run_id)
        try:
            state = await self._database.write(lambda c: control.pause(c, scope, run_id, message=message))
            if state is None:
                raise self._catalogue.not_found(run_id)
            if state is RunState.PAUSED:
                self.on_paused(run_id, message)
            else:
                _log.info("pausing run once its questions in flight have ended: run=%s", run_id)
                self._pausing.add(run_id)
                self._hosts.hold(run_id)
            run = await self._until_paused(scope, run_id, moved)
        finally:
            self.notifier.unsubscribe(run_id, moved)
        if run.state not in ACTIVE_STATES:
            await self._worker.until_left(run_id)
        return run

    async def _until_paused(self, scope: Scope, run_id: str, moved: asyncio.Event) -> Run:
        """Return a run once it has paused, its state has changed otherwise, or a few seconds have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause_wait_s):
                while (run := await self.get(scope, run_id)).state is RunState.PAUSING:
                    await moved.wait()
                    moved.clear()
                return run
        return await self.get(scope, run_id)

    async def resume(self, scope: Scope, run_id: str, *, retry_errors: bool = False) -> Run:
        """Resume a paused run; do nothing for a running one.

        Args:
            scope: The scope of the caller.
            run_id: The run.
            retry_errors: Also retry rows with errors, of a run that is paused, has completed or has failed.

        Raises:
            InvalidInputError: A host or a secret that the team may no longer use.
            OverloadedError: The team has reached a quota.
            WrongStateError: The run has ended, or it is active and the call retries errors.
        """
        run = await self.get(scope, run_id)
        self._planner.check_access(run.spec, await self.access.of(scope.team))
        self._worker.pauses.retry(run_id)
        await self._resume(scope, run_id, retry_errors=retry_errors)
        return await self.get(scope, run_id)

    async def update(self, scope: Scope, run_id: str, update: RunUpdate) -> Run:
        """Change a run, and return it.

        Raises:
            InvalidInputError: A value is invalid; contains every problem.
            WrongStateError: The spend cap differs, and the run is active.
        """
        check_update(await self.get(scope, run_id), update)
        if not await self._database.write(lambda c: updates.update_run(c, scope, run_id, update)):
            raise self._catalogue.not_found(run_id)
        self.notifier.notify(run_id)
        return await self.get(scope, run_id)

    async def delete(self, scope: Scope, run_id: str, *, validate_only: bool, with_baselines: bool) -> Deletion:
        """Remove a run with all its rows; its dataset stays.

        Args:
            scope: The scope of the caller.
            run_id: The run.
            validate_only: Delete nothing; only return what would be deleted.
            with_baselines: Also delete a run that a baseline names.

        Raises:
            NotFoundError: The scope cannot reach the run.
            WrongStateError: The run is running, or a baseline names it.
        """
        self._require_at_rest(await self.get(scope, run_id))
        deletion = await self._catalogue.estimate_deletion(scope, run_id)
        if validate_only:
            return deletion
        begin = partial(deletions.begin_deletion, scope=scope, run_id=run_id, with_baselines=with_baselines)
        while (pending := await self._database.write(begin)) is None:
            self._require_at_rest(await self.get(scope, run_id))  # another call has just resumed it
        failpoint("deletion.begun")
        await self.finish_deletion(pending)
        _log.info("deleted run: run=%s rows=%d", run_id, deletion.row_count)
        return deletion

    async def finish_deletion(self, pending: deletions.PendingDeletion) -> None:
        """Remove the rows of a run, or the cases of a dataset, whose deletion has begun."""
        if pending.run_id:
            await self.drop(pending.run_id, "deleted")
        await self._deleter.finish(pending)

    async def drop(self, run_id: str, why: str) -> None:
        """End what watches, hosts or works on a deleted run here; `why` names the deletion."""
        self._end_here(run_id, why)
        await self._worker.until_left(run_id)
        if not self._dispatcher.alone:
            await self._database.write(lambda c: self._dispatcher.remove_jobs(c, run_id))

    def _end_here(self, run_id: str, why: str) -> None:
        self._hosts.forget(run_id, f"the run was {why}")
        self.notifier.close_watches(run_id, NotFoundError(f"run {run_id} was {why}", reason="RUN_NOT_FOUND"))
        self._worker.cancel_soon(run_id)

    def _require_at_rest(self, run: Run) -> None:
        if run.state not in ACTIVE_STATES:
            return
        is_stuck = self.shown(run).state is RunState.PAUSED
        phase = Phase.WAITING_FOR_STORAGE if is_stuck else phase_of(run.state, run.pause_cause)
        require_transition(run.run_id, phase, Command.DELETE)

    async def attach(self, scope: Scope, run: Run, concurrency: int) -> Attachment:
        """Attach a client that hosts the run's agent; a run paused as unattended resumes.

        Raises:
            WrongStateError: The run has ended.
        """
        if run.finished:  # refused as any other request, such as a pause, would be
            require_transition(run.run_id, phase_of(run.state, run.pause_cause), Command.PAUSE)
        with contextlib.suppress(StorageError):  # a host may return before the store accepts writes again
            if await self._database.write(lambda c: attendance.attend(c, scope, run.run_id)):
                await self._resume(scope, run.run_id)
        return await self._hosts.attach(run.run_id, concurrency)

    def detach(self, run_id: str, attachment: Attachment) -> None:
        """Detach a client that hosts the run's agent."""
        self._hosts.detach(run_id, attachment)
        _log.info("client no longer hosts the agent: run=%s", run_id)

    def storage_problem(self, run_id: str) -> str:
        """Return why a run's rows cannot be stored in this process; empty if they can."""
        return self._worker.pauses.message(run_id)

    def shown(self, run: Run) -> Run:
        """Return a run as clients see it: PAUSED if its rows cannot be stored."""
        return client_view(run, self.storage_problem(run.run_id))

    async def aclose(self, *, at_once: bool = False) -> None:
        """Stop work on all runs, `at_once` or after half of the grace period; the next start resumes them."""
        # First, since a check that finds work would start it again.
        for checks in (self._peers, self._unattended, self._budgets, self._destinations):
            await checks.aclose()
        self._hosts.aclose()
        for session in self._worker.sessions.all():
            self._hosts.hold(session.context.run_id)
        failpoint("stop.draining")
        closing = asyncio.create_task(self._dispatcher.aclose())
        # The other half of the grace period is for requeueing what is still in flight then.
        await asyncio.wait([closing], timeout=0 if at_once else self._settings.grace_s / 2)
        await self._worker.hand_over()
        await closing  # an unreachable store delays it by a few seconds at most
        await self._worker.repoll_timers.aclose()
        await self._deleter.aclose()
        await self._partial.aclose()
        # After the sessions, which score with its scorers until they end.
        await self._planner.aclose()
        self.notifier.notify_all()

    # For `UnattendedRuns`.

    def attended(self) -> Collection[str]:
        """Return the runs that clients of this process host."""
        return self._planner.attended()

    async def pause_here(self, run_id: str) -> None:
        """Drop the work of this process on a run that was paused."""
        self._hosts.forget(run_id, "the run has paused")
        await self._worker.cancel(run_id)
        self.notifier.notify(run_id)

    # For `BudgetWatch`.

    def on_pausing(self, run_id: str) -> None:
        """Ask no more questions of a run."""
        self._pausing.add(run_id)
        self._hosts.hold(run_id)
        self.notifier.notify(run_id)

    async def requeue_idle(self) -> None:
        """Enqueue the next jobs of active runs without a queued shard: a quota that held them back has changed."""
        await self._worker.requeue_idle()

    # For `Peers`.

    def local_runs(self) -> set[str]:
        """Return the runs that are in progress, hosted or watched here."""
        here = {session.context.run_id for session in self._worker.sessions.all()}
        return here | {*self.notifier.watched_runs, *self._planner.hosted}

    def watcher_count(self) -> int:
        """Return the number of watchers here."""
        return self.notifier.watcher_count

    def on_run_changed(self, run_id: str, status: RunStatus | None) -> None:
        """Apply a change of a run that another process may have made."""
        if status is None:
            self._end_here(run_id, "deleted")
            return
        if status.phase in PHASES_AT_REST:
            self._pausing.discard(run_id)
            self._hosts.forget(run_id, f"the run {lifecycle.ended_text(RunState(status.phase.value))}")
            self._worker.cancel_soon(run_id)
        elif status.phase is Phase.PAUSING:
            self._pausing.add(run_id)
            self._hosts.hold(run_id)
        else:
            self._pausing.discard(run_id)
            self._planner.release(run_id)
        self.notifier.notify(run_id)

    # For `ShardWorker`.

    async def context_of(self, run_id: str) -> RunContext:
        """Return the context of a run's shards."""
        pause_count, is_stopped, (team, traceparent) = await self._database.read(
            lambda c: (runs.count_pauses(c, run_id), stops.is_stopped(c, run_id), runs.read_origin(c, run_id))
        )
        run, access = await self._catalogue.load(run_id), await self.access.of(team)
        if run.spec.stopping is not None:
            # Takes half a second, too long for the first stop look, which holds its locks.
            await asyncio.to_thread(importlib.import_module, "scipy.special")
        scope = await self._service_scopes.of(team)
        budget = await self._budgets.open(team, run_id)
        if self._may_have_teams:
            self._destinations.add(run_id, team, run.spec, access)
        context = self._planner.context_of(run, access, budget, scope=scope, pause_count=pause_count)
        if is_tracing():
            traces = CaseTraces.of_run(run, context.team, traceparent, self._settings.traced_cases)
            context = dataclasses.replace(context, traces=traces)
        if is_stopped:
            context.stopped.set()
        return context

    async def conclude_run(self, run_id: str) -> None:
        """End a run whose shards are all done; a run that has ended, is paused, or has rows to retry stays as it is.

        If shards lack rows, they are reopened instead.
        """
        while (folded := await self._sum_up(run_id)) is not None:
            sequence, summary = folded
            if summary is None:
                await self._worker.reopen_incomplete(run_id)
            elif await self._succeed(run_id, sequence, summary):
                return

    async def _sum_up(self, run_id: str) -> tuple[int, RunSummary | None] | None:
        """Return the last event and summary of a run whose shards are all done; no summary if rows are missing."""
        try:
            run = await self._catalogue.load(run_id)
        except NotFoundError:
            return None  # it was deleted
        folded = await self._database.read(lambda c: fold_done(c, run))
        if folded is None:
            return None
        record, summary = folded
        if summary is not None and summary.judging is not None:
            access, scope = await self.access.of(record.team), await self._service_scopes.of(record.team)
            summary = await self._planner.with_judge_account(run, summary, team=access.team, scope=scope)
        return record.last_sequence, summary

    async def fail_run(self, run_id: str, problem: Exception) -> None:
        """End a run as failed; it cannot resume."""
        await self._worker.cancel(run_id)
        if isinstance(problem, AssayError):
            await self._fail(run_id, problem.message)
        else:
            error_id = uuid.uuid4().hex[:12]
            _log.error("internal error in run: run=%s error_id=%s", run_id, error_id, exc_info=problem)
            await self._fail(run_id, f"internal error {error_id}: see the orchestrator's log")

    def on_state_changed(self, run_id: str) -> None:
        """Notify watchers that a run's state has changed."""
        self.notifier.notify(run_id)

    def on_paused(self, run_id: str, message: str) -> None:
        """Detach the clients of a paused run, and notify its watchers."""
        _log.info("paused run: run=%s reason=%s", run_id, message)
        self._pausing.discard(run_id)
        self._hosts.hold(run_id)  # its draining session here takes no shards when the run is resumed
        self._hosts.forget(run_id, message)
        self.notifier.notify(run_id)

    def _session(self, context: RunContext, store: RunStore) -> Session:
        session = Session(
            store,
            context,
            alone=self._dispatcher.alone,
            on_results=lambda rows: self.notifier.publish(context.run_id, rows),
            known_s=self._dispatcher.held_s,
            until_sure=self._dispatcher.until_sure,
            on_stopped=lambda look: self._on_stopped_early(store, look),
        )
        if context.run_id in self._pausing:  # requested after its first shard was queued
            session.stop_asking()
            self._planner.hold(context.run_id)
        return session

    async def _on_stopped_early(self, store: RunStore, look: StopLook) -> None:
        """Ask no further rows of runs that have stopped early; for newly stopped ones, enqueue the rest."""
        for run_id in look.run_ids:
            session = self._worker.sessions.of(run_id)
            if session is not None:
                session.context.stopped.set()
        if look.is_new:
            _log.info("stopped early: runs=%s", ",".join(look.run_ids))
            with contextlib.suppress(
                StorageError
            ):  # given up: the process is stopping, and the next one resumes the runs
                await store.outlast(lambda: self._worker.end_early(look.run_ids))

    async def _resume(
        self,
        scope: Scope,
        run_id: str,
        *,
        retry_errors: bool = False,
        is_recovery: bool = False,
    ) -> None:
        """Bring a run into RUNNING and enqueue its next jobs; a recovery ignores the quotas."""
        active = await self._database.read(lambda c: shards.list_active(c, run_id))
        gone = set(await self._dispatcher.find_lost([shard.job for shard in active]))
        lost = [shard for shard in active if shard.job in gone]
        resumption = Resumption(retry_errors, self._settings.row_try_limit, lost)
        is_there = True

        def change(connection: sa.Connection) -> list[ShardJob]:
            nonlocal is_there
            tokens.require_enabled(connection, scope.team)
            if not is_recovery:
                quotas.require_resumption(connection, scope, run_id)
            is_running = control.resume(connection, scope, run_id, resumption)
            is_there = is_running is not None
            return self._worker.next_jobs(connection, run_id) if is_running else []

        await self._worker.enqueue(change)
        if not is_there:
            raise self._catalogue.not_found(run_id)
        _log.info("resumed run: run=%s retry_errors=%s", run_id, retry_errors)
        self._pausing.discard(run_id)
        self._planner.release(run_id)
        self.notifier.notify(run_id)

    async def _succeed(self, run_id: str, sequence: int, summary: RunSummary) -> bool:
        data = dataclasses.asdict(summary)
        message = stopped_sentence(summary.stopped_early) if summary.stopped_early is not None else ""
        has_ended = await self._end(run_id, lambda c: control.conclude(c, run_id, sequence, data, message=message))
        if has_ended:
            outcome = run_id, summary.row_count, summary.agent_error_count, summary.verdict.value
            _log.info("run completed: run=%s rows=%s agent_errors=%s verdict=%s", *outcome)
        return has_ended

    async def _fail(self, run_id: str, message: str) -> None:
        def fail(connection: sa.Connection) -> bool:
            return runs.apply_command(connection, run_id, Command.FAIL, message=message) is not None

        has_ended = await self._worker.pauses.outlast(run_id, lambda: self._end(run_id, fail))
        if has_ended:
            _log.error("run failed: run=%s reason=%s", run_id, message)

    async def _end(self, run_id: str, stop: Callable[[sa.Connection], bool]) -> bool:
        """End a run; return False if it was not to end or had already ended."""

        def end(connection: sa.Connection) -> RunState | None:
            if not stop(connection):
                return None
            failpoint("summary.before_commit")
            return run.state if (run := runs.load_run(connection, run_id)) is not None else None

        state = await self._database.write(end)
        if state is None:
            return False
        failpoint("summary.after_commit")
        self._hosts.forget(run_id, f"the run {lifecycle.ended_text(state)}")
        self.notifier.notify(run_id)
        return True
