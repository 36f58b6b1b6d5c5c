"""The runs of this process: created, started, stopped, resumed, and brought back after a restart."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import logging
import re
import secrets
import uuid
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from assay.errors import (
    AssayError,
    ConflictError,
    NotFoundError,
    OverloadedError,
    StorageError,
    WrongStateError,
)
from assay.results import PauseCause, Run, RunSettings, RunState
from assay.version import __version__
from assay_orchestrator.catalogue import Catalogue
from assay_orchestrator.deletion import Deleter
from assay_orchestrator.notifier import Notifier
from assay_orchestrator.partial import PartialSummaries, fold
from assay_orchestrator.retries import set_errors_aside
from assay_orchestrator.runner import Runner
from assay_orchestrator.settings_json import settings_to_json, summary_to_json
from assay_orchestrator.store import attempts, datasets, deletions, results, runs
from assay_orchestrator.store.times import now

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.results import DatasetRef, Deletion, RunSummary
    from assay_orchestrator.agents.hosted import HostedAgent
    from assay_orchestrator.planning import Planner
    from assay_orchestrator.settings import Settings
    from assay_orchestrator.store.database import Database
    from assay_orchestrator.store.runs import RunRecord

__all__ = ["RunManager"]

_GOING = (RunState.PENDING, RunState.RUNNING)
_PAUSE_PATIENCE_S = 3.0
_PAUSED_BY_OWNER = "paused by its owner"
_INTERRUPTED = "the orchestrator stopped while the run was going on; nothing stored is lost"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Drive:
    """A run that is going on, and whether it is to be paused."""

    task: asyncio.Task[None]
    pausing: asyncio.Event = field(default_factory=asyncio.Event)
    retries_errors: bool = False


class RunManager:
    """Owns every run that is going on in this process.

    Args:
        database: The store.
        settings: Limits and the recovery policy.
        planner: Turns a stored run into what the runner needs.
    """

    def __init__(self, database: Database, settings: Settings, planner: Planner) -> None:
        self._database = database
        self._settings = settings
        self._planner = planner
        self._drives: dict[str, _Drive] = {}
        self._broken: dict[str, AssayError] = {}
        self._catalogue = Catalogue(database)
        self._partial = PartialSummaries(database)
        self._deleter = Deleter(database)
        self._deleting: set[str] = set()
        self.notifier = Notifier()

    async def recover(self) -> None:
        """Continue, or pause, every run that a stop interrupted; one that was to be paused is paused."""

        def tidy(connection: sa.Connection) -> list[RunRecord]:
            datasets.discard_unfinished(connection)
            return runs.list_unfinished(connection)

        for record in await self._database.write(tidy):
            if record.pause_cause is PauseCause.OWNER:
                await self._change(record.run_id, RunState.PAUSED, reason=_PAUSED_BY_OWNER, cause=PauseCause.OWNER)
            elif self._settings.recover == "auto":
                self._start(record.run_id, careful=True)
            else:
                await self._change(record.run_id, RunState.PAUSED, reason=_INTERRUPTED, cause=PauseCause.INTERRUPTED)
        await self._deleter.recover()

    async def create(self, request_id: str, settings: RunSettings, dataset: DatasetRef) -> Run:
        """Accept a run and start it; a repeated request returns the run of the first.

        Raises:
            ConflictError: The request id was used for something else.
            OverloadedError: Too many runs are going on.
        """
        content = json.dumps([settings_to_json(settings), dataset.dataset_id], sort_keys=True)
        request_hash = hashlib.sha256(content.encode()).hexdigest()
        existing = await self._database.read(lambda c: runs.get_by_request(c, request_id))
        if existing is None:
            existing = await self._accept(request_id, request_hash, settings, dataset)
        if existing.request_hash != request_hash:
            raise ConflictError(
                f"request id {request_id!r} already created run {existing.run_id} with another spec or dataset: "
                "use a new request id"
            )
        return await self.get(existing.run_id)

    async def get(self, run_id: str) -> Run:
        """Return a run as it stands.

        Raises:
            NotFoundError: There is no such run; the message names the one that was probably meant.
        """
        return await self._catalogue.get(run_id)

    async def get_summarised(self, run_id: str) -> Run:
        """Return a run as it stands, with a partial summary where it has no final one.

        Raises:
            NotFoundError: There is no such run.
        """
        run = await self.get(run_id)
        return run if run.summary is not None else dataclasses.replace(run, summary=await self._partial.of(run))

    async def list_newest(self, count: int, before: tuple[str, str] | None) -> list[Run]:
        """Return up to `count` runs, newest first, older than (created_at, run_id) `before`."""
        return await self._catalogue.list_newest(count, before)

    async def cancel(self, run_id: str) -> Run:
        """Stop a run for good; what is stored stays.

        Raises:
            WrongStateError: The run has already ended in another way.
        """
        run = await self.get(run_id)
        if run.state is RunState.CANCELLED:
            return run
        _require_unfinished(run)
        await self._stop(run_id)
        if not (await self.get(run_id)).finished:
            await self._change(run_id, RunState.CANCELLED)
        self._planner.forget(run_id, "the run was cancelled")
        return await self.get(run_id)

    async def pause(self, run_id: str) -> Run:
        """Let a run's questions in flight end and ask nothing more; the run is then PAUSED.

        Returns:
            The run as it stands after a few seconds at most; RUNNING still where questions in flight take longer.

        Raises:
            WrongStateError: The run has ended.
        """
        run = await self.get(run_id)
        _require_unfinished(run)
        drive = self._drives.get(run_id)
        if drive is None:
            if run.pause_cause is not PauseCause.OWNER:
                await self._change(run_id, RunState.PAUSED, reason=_PAUSED_BY_OWNER, cause=PauseCause.OWNER)
            return await self.get(run_id)
        drive.pausing.set()
        self._planner.hold(run_id)
        await self._database.write(lambda c: runs.request_pause(c, run_id))
        await asyncio.wait([drive.task], timeout=_PAUSE_PATIENCE_S)
        return await self.get(run_id)

    async def resume(self, run_id: str, *, retry_errors: bool = False) -> Run:
        """Continue a paused run; on one that is going on this does nothing.

        Args:
            run_id: The run.
            retry_errors: Also try rows with errors again, of a run that is paused, has succeeded or has failed.

        Raises:
            WrongStateError: The run has ended, or is going on while errors are to be retried.
        """
        drive = self._drives.get(run_id)
        if drive is not None and drive.pausing.is_set():
            await asyncio.wait([drive.task])
        run = await self.get(run_id)
        if retry_errors:
            if (drive := self._drives.get(run_id)) is not None and drive.retries_errors:
                return run  # the same call, come again
            self._require_retryable(run)
            retry_errors = await self._database.read(
                lambda c: attempts.has_errors(c, run_id, self._settings.row_try_limit)
            )
            if run.finished and run.state is not RunState.FAILED and not retry_errors:
                return run
        else:
            _require_unfinished(run)
        moved = self.notifier.subscribe(run_id)
        try:
            if run_id in self._deleting:
                raise await self._catalogue.not_found(run_id)
            if run_id not in self._drives:
                careful = run.pause_cause is PauseCause.INTERRUPTED
                self._start(run_id, careful=careful, retry_errors=retry_errors)
            # Whoever resumed must not find it as it was still.
            before = run.last_sequence
            while run.state not in _GOING and run.last_sequence == before and run_id in self._drives:
                await moved.wait()
                moved.clear()
                run = await self.get(run_id)
        finally:
            self.notifier.unsubscribe(run_id, moved)
        self.raise_if_broken(run_id)
        return await self.get(run_id)

    async def delete(self, run_id: str, *, only_check: bool = False) -> Deletion:
        """Remove a run with all its rows, and its dataset where no other run uses it.

        Args:
            run_id: The run.
            only_check: Delete nothing; only return what would go.

        Raises:
            NotFoundError: There is no such run.
            WrongStateError: The run is going on.
        """
        run = await self.get(run_id)
        if run_id in self._drives or not (run.finished or run.state is RunState.PAUSED):
            raise WrongStateError(
                f"run {run_id} is going on: pause or cancel it before deleting it", reason="RUN_ACTIVE"
            )
        if only_check or run_id in self._deleting:
            return await self._catalogue.estimate_deletion(run_id)
        self._deleting.add(run_id)
        try:
            deletion = await self._catalogue.estimate_deletion(run_id)
            pending = await self._database.write(lambda c: deletions.begin(c, run_id))
        finally:
            self._deleting.discard(run_id)
        if pending is None:
            raise await self._catalogue.not_found(run_id)
        self._planner.forget(run_id, "the run was deleted")
        self.notifier.end(run_id, NotFoundError(f"run {run_id} was deleted", reason="RUN_NOT_FOUND"))
        await self._deleter.finish(pending)
        return deletion

    def hosted_agent(self, run: Run) -> HostedAgent:
        """Return the broker through which a client answers the run's questions.

        Raises:
            WrongStateError: The run has ended.
        """
        _require_unfinished(run)
        return self._planner.hosted_agent(run.run_id)

    def raise_if_broken(self, run_id: str) -> None:
        """Raise what stopped the run, where not even that could be stored."""
        if run_id in self._broken:
            raise self._broken[run_id]

    async def aclose(self) -> None:
        """Stop all runs where they are; what is stored stays, and the next start goes on from there."""
        for run_id in list(self._drives):
            await self._stop(run_id)
        await self._deleter.aclose()
        await self._partial.aclose()
        self.notifier.notify_all()

    async def _accept(
        self, request_id: str, request_hash: str, settings: RunSettings, dataset: DatasetRef
    ) -> RunRecord:
        if len(self._drives) >= self._settings.active_run_limit:
            raise OverloadedError(
                f"{len(self._drives)} runs are going on, which is the limit: try again when one has ended",
                retry_after_s=10.0,
            )
        record = runs.RunRecord(
            run_id=_new_run_id(settings.name),
            request_id=request_id,
            request_hash=request_hash,
            spec=settings_to_json(settings),
            dataset_id=dataset.dataset_id,
            total_count=dataset.case_count * settings.repeats,
            assay_version=__version__,
            created_at=now(),
        )

        stored, is_new = await self._database.write(lambda c: runs.create(c, record))
        if is_new:
            self._start(stored.run_id)
        return stored

    def _require_retryable(self, run: Run) -> None:
        if run.run_id in self._drives or run.state in _GOING:
            raise WrongStateError(
                f"run {run.run_id} is going on: pause it, or wait for its end, before its errors are tried again",
                reason="RUN_ACTIVE",
            )
        if run.state is RunState.CANCELLED:
            raise WrongStateError(f"run {run.run_id} was cancelled for good: start a new one", reason="RUN_FINISHED")

    def _start(self, run_id: str, *, careful: bool = False, retry_errors: bool = False) -> None:
        self._broken.pop(run_id, None)
        pausing = asyncio.Event()
        task = asyncio.create_task(
            self._drive(run_id, pausing, careful=careful, retry_errors=retry_errors), name=f"run {run_id}"
        )
        self._drives[run_id] = _Drive(task, pausing, retry_errors)

        def ended(_: asyncio.Task[None]) -> None:
            self._drives.pop(run_id, None)
            self.notifier.notify(run_id)

        task.add_done_callback(ended)

    async def _stop(self, run_id: str) -> None:
        drive = self._drives.get(run_id)
        if drive is not None:
            drive.task.cancel()
            await asyncio.wait([drive.task])

    async def _drive(self, run_id: str, pausing: asyncio.Event, *, careful: bool, retry_errors: bool) -> None:
        """Take one run to its end, or to its pause; the supervisor of everything that happens in it."""
        try:
            await self._change(run_id, RunState.RUNNING, cause=PauseCause.OWNER if pausing.is_set() else None)
            if retry_errors:
                await set_errors_aside(self._database, run_id, self._settings.row_try_limit)
            run = await self.get(run_id)
            plan = self._planner.plan(run, pausing, careful=careful)
            async with aclosing(plan.agent):
                await Runner(self._database, plan, lambda rows: self.notifier.tell(run_id, rows)).run()
            await self._complete(run, pausing)
        except asyncio.CancelledError:
            raise
        except StorageError as problem:
            await self._pause(run_id, problem)
        except AssayError as problem:
            await self._end(run_id, RunState.FAILED, problem.message)
        except Exception:  # noqa: BLE001 - the supervisor of a run: a defect ends this run alone
            error_id = uuid.uuid4().hex[:12]
            _log.exception("run %s failed, error id %s", run_id, error_id)
            await self._end(run_id, RunState.FAILED, f"internal error {error_id}: see the orchestrator's log")
        finally:
            if pausing.is_set():
                self._planner.forget(run_id, _PAUSED_BY_OWNER)

    async def _complete(self, run: Run, pausing: asyncio.Event) -> None:
        stored = await self._database.read(lambda c: results.count_finished(c, run.run_id))
        if stored != run.counts.total:
            if pausing.is_set():
                await self._change(run.run_id, RunState.PAUSED, reason=_PAUSED_BY_OWNER, cause=PauseCause.OWNER)
                return
            raise StorageError(
                f"{stored} of {run.counts.total} rows of run {run.run_id} are stored: resume the run to finish it"
            )
        summary = await self._database.read(lambda c: fold(c, run))
        await self._end(run.run_id, RunState.SUCCEEDED, summary=summary)

    async def _pause(self, run_id: str, problem: StorageError) -> None:
        _log.error("run %s paused: %s", run_id, problem.message)
        try:
            await self._change(run_id, RunState.PAUSED, reason=problem.message, cause=PauseCause.STORAGE)
        except StorageError:
            # The store cannot even take that: watchers are told directly.
            self._broken[run_id] = problem
            self.notifier.notify(run_id)

    async def _end(self, run_id: str, state: RunState, reason: str = "", summary: RunSummary | None = None) -> None:
        try:
            await self._change(run_id, state, reason=reason, summary=summary)
        except StorageError as problem:
            self._broken[run_id] = problem
            self.notifier.notify(run_id)
        finally:
            self._planner.forget(run_id, f"the run has {state.value}")

    async def _change(
        self,
        run_id: str,
        state: RunState,
        *,
        reason: str = "",
        cause: PauseCause | None = None,
        summary: RunSummary | None = None,
    ) -> None:
        data = summary_to_json(summary) if summary is not None else None
        await self._database.write(
            lambda c: runs.change_state(c, run_id, state, reason=reason, cause=cause, summary=data)
        )
        self.notifier.notify(run_id)


def _require_unfinished(run: Run) -> None:
    if run.finished:
        raise WrongStateError(f"run {run.run_id} has already {run.state.value}", reason="RUN_FINISHED")


def _new_run_id(name: str) -> str:
    """Return a readable id that is unique and safe as a file name."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "run"
    return f"{slug}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
