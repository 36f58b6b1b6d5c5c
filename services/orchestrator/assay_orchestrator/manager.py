"""The runs of this process: created, started, stopped, resumed, and brought back after a restart."""

from __future__ import annotations

import asyncio
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
from assay.metrics import build_metric
from assay.results import PauseCause, Run, RunCounts, RunSettings, RunState
from assay.version import __version__
from assay_orchestrator.notifier import Notifier
from assay_orchestrator.runner import Runner
from assay_orchestrator.settings_json import (
    settings_from_json,
    settings_to_json,
    summary_from_json,
    summary_to_json,
)
from assay_orchestrator.store import datasets, results, runs
from assay_orchestrator.store.times import now
from assay_orchestrator.summary import summarise

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.results import DatasetRef, RunSummary
    from assay_orchestrator.agents.hosted import HostedAgent
    from assay_orchestrator.planning import Planner
    from assay_orchestrator.settings import Settings
    from assay_orchestrator.store.database import Database
    from assay_orchestrator.store.runs import RunRecord

__all__ = ["RunManager"]

_PAUSE_PATIENCE_S = 3.0
_PAUSED_BY_OWNER = "paused by its owner"
_INTERRUPTED = "the orchestrator stopped while the run was going on; nothing stored is lost"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Drive:
    """A run that is going on, and whether it is to be paused."""

    task: asyncio.Task[None]
    pausing: asyncio.Event = field(default_factory=asyncio.Event)


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
                self._start(record.run_id)
            else:
                await self._change(record.run_id, RunState.PAUSED, reason=_INTERRUPTED, cause=PauseCause.INTERRUPTED)

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
            NotFoundError: There is no such run.
        """

        def load(connection: sa.Connection) -> tuple[RunRecord, DatasetRef] | None:
            record = runs.get(connection, run_id)
            if record is None:
                return None
            dataset = datasets.get(connection, record.dataset_id)
            assert dataset is not None, "a foreign key holds the dataset"
            return record, dataset

        loaded = await self._database.read(load)
        if loaded is None:
            raise NotFoundError(
                f"there is no run {run_id!r}: `assay runs list` shows the runs there are",
                reason="RUN_NOT_FOUND",
            )
        return self._run(*loaded)

    async def list_newest(self, count: int, before: tuple[str, str] | None) -> list[Run]:
        """Return up to `count` runs, newest first, older than (created_at, run_id) `before`."""

        def load(connection: sa.Connection) -> list[tuple[RunRecord, DatasetRef]]:
            found = runs.list_newest(connection, count, before)
            known = {record.dataset_id: datasets.get(connection, record.dataset_id) for record in found}
            return [(record, dataset) for record in found if (dataset := known[record.dataset_id]) is not None]

        return [self._run(record, dataset) for record, dataset in await self._database.read(load)]

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

    async def resume(self, run_id: str) -> Run:
        """Continue a paused run; on one that is going on this does nothing.

        Raises:
            WrongStateError: The run has ended.
        """
        drive = self._drives.get(run_id)
        if drive is not None and drive.pausing.is_set():
            await asyncio.wait([drive.task])
        run = await self.get(run_id)
        _require_unfinished(run)
        moved = self.notifier.subscribe(run_id)
        try:
            if run_id not in self._drives:
                self._start(run_id)
            # Whoever resumed must not find it paused still.
            while run.state is RunState.PAUSED and run_id in self._drives:
                await moved.wait()
                moved.clear()
                run = await self.get(run_id)
        finally:
            self.notifier.unsubscribe(run_id, moved)
        self.raise_if_broken(run_id)
        return await self.get(run_id)

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

    def _start(self, run_id: str) -> None:
        self._broken.pop(run_id, None)
        pausing = asyncio.Event()
        task = asyncio.create_task(self._drive(run_id, pausing), name=f"run {run_id}")
        self._drives[run_id] = _Drive(task, pausing)

        def ended(_: asyncio.Task[None]) -> None:
            self._drives.pop(run_id, None)
            self.notifier.notify(run_id)

        task.add_done_callback(ended)

    async def _stop(self, run_id: str) -> None:
        drive = self._drives.get(run_id)
        if drive is not None:
            drive.task.cancel()
            await asyncio.wait([drive.task])

    async def _drive(self, run_id: str, pausing: asyncio.Event) -> None:
        """Take one run to its end, or to its pause; the supervisor of everything that happens in it."""
        try:
            await self._change(run_id, RunState.RUNNING, cause=PauseCause.OWNER if pausing.is_set() else None)
            run = await self.get(run_id)
            plan = self._planner.plan(run, pausing)
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
        summary = await self._database.read(lambda c: _fold(c, run))
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

    def _run(self, record: RunRecord, dataset: DatasetRef) -> Run:
        return Run(
            run_id=record.run_id,
            settings=settings_from_json(record.spec),
            dataset=dataset,
            state=record.state,
            state_reason=record.state_reason,
            counts=RunCounts(
                total=record.total_count,
                finished=record.finished_count,
                passed=record.passed_count,
                failed=record.failed_count,
                agent_errors=record.agent_error_count,
            ),
            created_at=record.created_at,
            started_at=record.started_at or "",
            ended_at=record.ended_at or "",
            last_sequence=record.last_sequence,
            summary=summary_from_json(record.summary) if record.summary is not None else None,
            assay_version=record.assay_version,
            pause_cause=record.pause_cause,
        )


def _require_unfinished(run: Run) -> None:
    if run.finished:
        raise WrongStateError(f"run {run.run_id} has already {run.state.value}", reason="RUN_FINISHED")


def _fold(connection: sa.Connection, run: Run) -> RunSummary:
    metrics = [build_metric(metric) for metric in run.settings.metrics]
    return summarise(results.read_all(connection, run.run_id), metrics, run.settings.gates)


def _new_run_id(name: str) -> str:
    """Return a readable id that is unique and safe as a file name."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "run"
    return f"{slug}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
