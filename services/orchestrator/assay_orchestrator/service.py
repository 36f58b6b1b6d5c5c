"""RunService on the wire: maps requests to domain calls and results to responses."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from assay.datasets.cases.case_rules import case_problems, excess
from assay.errors import (
    DatasetError,
    InvalidInputError,
    NotFoundError,
    Problem,
    SpecError,
    WatchBehindError,
    WrongStateError,
    first_problems,
)
from assay.identity.audit import record_export
from assay.model.baseline import MAX_NAME_CHARS
from assay.model.limits import MAX_BYTES_PER_CHAR, MAX_CASE_BYTES
from assay.model.run import DatasetRef
from assay.parsing.names import name_problem
from assay.process.failpoints import failpoint
from assay.v1 import orchestrator_pb2 as pb
from assay.v1 import orchestrator_pb2_grpc
from assay.wire.case import case_from_wire
from assay.wire.filters import (
    case_detail_to_wire,
    facets_to_wire,
    row_filter_from_wire,
    row_order_from_wire,
    run_filter_from_wire,
    run_order_from_wire,
)
from assay.wire.judging import SPEND_CAP
from assay.wire.run import ATTEMPT, BASELINE, CALIBRATION, DATASET, DELETION, RUN, SETTINGS, result_to_wire
from assay_orchestrator.agent_streams import AgentStreams
from assay_orchestrator.identity.scopes import call_scope
from assay_orchestrator.queries.row_pages import PageRequest, RowPages
from assay_orchestrator.runs.admission import check_settings, check_source
from assay_orchestrator.runs.run_lists import RunPosition, RunQuery
from assay_orchestrator.store import history
from assay_orchestrator.store.page_tokens import PageTokens
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.teams import audit, baselines, calibrations, quotas, tokens
from assay_orchestrator.watch.watches import Watches, WatchMessageCache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import sqlalchemy as sa

    from assay.model.case import Case
    from assay.model.run import Run
    from assay.model.scope import Scope
    from assay.rpc.access import Context
    from assay.storage.database import Database
    from assay_orchestrator.comparison_handlers import ComparisonCalls
    from assay_orchestrator.runs.manager import RunManager
    from assay_orchestrator.settings import Settings

_UPLOAD_BATCH = 500
_MAX_PROBLEMS = 50
_MAX_DATASET_NAME_CHARS = 4096  # the value is, or once was, a file's path
_MAX_REQUEST_ID_CHARS = 100
_MAX_PLAIN_BYTES = MAX_CASE_BYTES // MAX_BYTES_PER_CHAR  # a smaller message stays within the limit as JSON

_log = logging.getLogger(__name__)


class RunService(orchestrator_pb2_grpc.RunServiceServicer):
    """The RPCs of the contract: maps requests to domain calls and results to responses.

    Args:
        database: The store.
        manager: The runs.
        settings: Limits.
        stopping: Set when the process begins to stop. Long streams end then, and clients resume them elsewhere.
        scope: The scope of every call; None takes the scope of each caller's identity.
    """

    def __init__(
        self, database: Database, manager: RunManager, settings: Settings, stopping: asyncio.Event, scope: Scope | None
    ) -> None:
        self._database = database
        self._manager = manager
        self._settings = settings
        self._stopping = stopping
        self._fixed_scope = scope
        self._tokens = PageTokens(database)
        self._rows = RowPages(database, self._tokens)
        self._messages = WatchMessageCache()
        self._agent_streams = AgentStreams(manager, stopping)
        self._watches = Watches(
            database,
            manager.notifier,
            manager.get,
            manager.storage_problem,
            stopping,
            bookmark_s=settings.watch_bookmark_s,
        )

    async def UploadDataset(
        self, request_iterator: AsyncIterator[pb.UploadDatasetRequest], context: Context
    ) -> pb.UploadDatasetResponse:
        """Store a dataset."""
        scope = self._scope()
        upload = _Upload(self._database, scope)
        try:
            async for part in request_iterator:
                if part.HasField("header"):
                    upload.begin(part.header)
                else:
                    await upload.add(part.cases.cases)
            return pb.UploadDatasetResponse(dataset=DATASET.to_wire(await upload.finish()))
        finally:
            await upload.aclose()

    async def CreateRun(self, request: pb.CreateRunRequest, context: Context) -> pb.CreateRunResponse:
        """Accept a run."""
        scope = self._scope()
        try:
            requested = SETTINGS.from_wire(request.spec)
        except ValueError as refusal:
            raise SpecError([Problem(str(refusal), "spec")]) from None
        if self._fixed_scope is None:  # the interceptor has already refused specs of other teams
            requested = dataclasses.replace(requested, team=scope.team)
        access = await self._manager.access.of(scope.team)
        # In a thread: checking a schema of 64 kB takes half a second.
        settings = await asyncio.to_thread(check_settings, requested, self._settings, access)
        if settings.source_run_id:
            check_source(await self._manager.get(scope, settings.source_run_id), settings, request.dataset_id)
        await self._manager.preflight(scope, settings, access)
        if request.validate_only:
            return pb.CreateRunResponse()
        if problem := name_problem(request.request_id, _MAX_REQUEST_ID_CHARS):
            raise SpecError([Problem(problem, "request_id")])
        dataset = await self._database.read(lambda c: datasets.get_dataset(c, scope.team, request.dataset_id))
        if dataset is None:
            raise NotFoundError(
                f"there is no dataset {request.dataset_id!r}: upload it first", reason="DATASET_NOT_FOUND"
            )
        run = await self._manager.create(scope, request.request_id, settings, dataset, requested)
        return pb.CreateRunResponse(run=self._to_wire(run))

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:
        """Return one run."""
        scope = self._scope()
        get = self._manager.get if request.final_summary_only else self._manager.get_summarised
        run = await get(scope, request.run_id)
        judging = run.summary.judging if run.summary is not None else None
        if judging is not None and judging.fingerprints:
            team = scope.team if self._fixed_scope is not None else run.settings.team
            stored = await self._database.read(lambda c: calibrations.calibrations_of(c, team, judging.fingerprints))
            run = dataclasses.replace(run, calibrations=stored)
        return pb.GetRunResponse(run=self._to_wire(run))

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:
        """Return a page of runs."""
        scope = self._scope()
        query = RunQuery(
            run_filter_from_wire(request),
            run_order_from_wire(request),
            with_figures=request.include_figures,
            with_total=request.include_total_count,
        )
        bound_to = ("ListRuns", *_conditions(query))
        position = await self._tokens.read(scope, bound_to, request.page_token, (str, str, str))
        after = None
        if position is not None:
            after = RunPosition(json.loads(str(position[0])), str(position[1]), str(position[2]))
        page = await self._manager.list_runs(scope, query, after, min(request.page_size or 50, 500))
        token = ""
        if page.end is not None:
            end = (json.dumps(page.end.value, ensure_ascii=False), page.end.created_at, page.end.run_id)
            token = await self._tokens.make(scope, bound_to, end)
        return pb.ListRunsResponse(
            runs=map(_listed, page.runs), next_page_token=token, total_count=page.total_count, conditions_applied=True
        )

    async def CancelRun(self, request: pb.CancelRunRequest, context: Context) -> pb.CancelRunResponse:
        """Stop a run."""
        scope = self._scope()
        return pb.CancelRunResponse(run=self._to_wire(await self._manager.cancel(scope, request.run_id)))

    async def PauseRun(self, request: pb.PauseRunRequest, context: Context) -> pb.PauseRunResponse:
        """Let the questions in flight end and ask nothing more."""
        scope = self._scope()
        return pb.PauseRunResponse(run=self._to_wire(await self._manager.pause(scope, request.run_id)))

    async def ResumeRun(self, request: pb.ResumeRunRequest, context: Context) -> pb.ResumeRunResponse:
        """Resume a paused run, or retry the failed rows of a run."""
        scope = self._scope()
        cap = SPEND_CAP.from_wire(request.spend_cap) if request.HasField("spend_cap") else None
        run = await self._manager.resume(scope, request.run_id, retry_errors=request.retry_errors, spend_cap=cap)
        return pb.ResumeRunResponse(run=self._to_wire(run))

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: Context) -> pb.DeleteRunResponse:
        """Remove a run."""
        scope = self._scope()
        gone = await self._manager.delete(
            scope, request.run_id, only_check=request.validate_only, with_baselines=request.with_baselines
        )
        return DELETION.to_wire(gone)

    async def WatchRun(  # type: ignore[override]
        self, request: pb.WatchRunRequest, context: Context
    ) -> None:
        """Send a snapshot, then events in order, and bookmarks while nothing happens."""
        scope = self._scope()
        following = self._watches.follow(
            scope, request.run_id, request.after_sequence, with_answers=request.include_answers
        )
        is_first = True
        if request.include_answers:
            await self._manager.get(scope, request.run_id)
            await record_export(request.run_id)
        async with aclosing(following) as steps:
            async for step in steps:
                if is_first:
                    is_first = False
                    # Left to the first message, headers would count as unsent while it waits for its reader; gRPC would
                    # then send them twice and could not end the call: the client would wait forever.
                    await context.send_initial_metadata(())
                message = self._messages.message(request.run_id, step, with_answers=request.include_answers)
                try:
                    async with asyncio.timeout(self._settings.watch_stall_s):
                        await context.write(message)
                        failpoint("watch.events_sent")
                except TimeoutError:
                    raise WatchBehindError(
                        f"the watcher read nothing for {self._settings.watch_stall_s:g} s: watch again after event "
                        f"{step.before}",
                        resume_sequence=step.before,
                    ) from None

    async def ListResults(self, request: pb.ListResultsRequest, context: Context) -> pb.ListResultsResponse:
        """Return a page of results."""
        scope = self._scope()
        page_request = PageRequest(
            row_filter=row_filter_from_wire(request.filter),
            order=row_order_from_wire(request.order_by),
            failed_only=request.failed_only,
            case_id=request.case_id,
            page_size=min(request.page_size or 200, 1000),
            page_token=request.page_token,
            with_answers=request.include_answers or not request.HasField("include_answers"),
            with_total=request.include_total_count,
            with_facets=request.include_facets,
        )
        run = await self._manager.get(scope, request.run_id)
        page = await self._rows.read(scope, run, page_request)
        if page_request.with_answers and not (request.case_id or request.page_token):
            await record_export(run.run_id)
        return pb.ListResultsResponse(
            results=page.results,
            next_page_token=page.next_page_token,
            total_count=page.total_count,
            facets=facets_to_wire(page.facets) if page.facets is not None else None,
            conditions_applied=True,
        )

    async def GetCase(self, request: pb.GetCaseRequest, context: Context) -> AsyncIterator[pb.GetCaseResponse]:
        """Send a case with its neighbours, then the results of its repeats."""
        scope = self._scope()
        conditions, order = row_filter_from_wire(request.filter), row_order_from_wire(request.order_by)
        run = await self._manager.get(scope, request.run_id)
        stored_case = await self._rows.read_case(scope, run, request.case_id, conditions, order)
        yield pb.GetCaseResponse(case_detail=case_detail_to_wire(stored_case))
        for result in stored_case.results:
            yield pb.GetCaseResponse(result=result_to_wire(result))

    async def ListAttempts(
        self, request: pb.ListAttemptsRequest, context: Context
    ) -> AsyncIterator[pb.ListAttemptsResponse]:
        """Send every attempt at the rows of a case."""
        scope = self._scope()
        run = await self._manager.get(scope, request.run_id)
        attempts = await self._database.read(lambda c: history.read_attempts(c, scope, run.run_id, request.case_id))
        for attempt in attempts:
            yield pb.ListAttemptsResponse(attempt=ATTEMPT.to_wire(attempt))

    async def SetBaseline(self, request: pb.SetBaselineRequest, context: Context) -> pb.SetBaselineResponse:
        """Point a baseline name at a run."""
        scope = self._scope()
        if problem := name_problem(request.name, MAX_NAME_CHARS):
            raise InvalidInputError([Problem(problem, "name")])
        run = await self._manager.get(scope, request.run_id)
        if not run.finished or run.summary is None:
            raise WrongStateError(
                f"run {run.run_id} is {run.state.value}: a baseline is a run that has ended, with rows",
                reason="RUN_NOT_FINISHED",
            )
        baseline = await self._database.write(lambda c: baselines.set_baseline(c, scope, request.name, run.run_id))
        return pb.SetBaselineResponse(baseline=BASELINE.to_wire(baseline))

    async def ListBaselines(self, request: pb.ListBaselinesRequest, context: Context) -> pb.ListBaselinesResponse:
        """Return all baselines."""
        scope = self._scope()
        stored = await self._database.read(lambda c: baselines.list_baselines(c, scope))
        return pb.ListBaselinesResponse(baselines=map(BASELINE.to_wire, stored))

    async def DeleteBaseline(self, request: pb.DeleteBaselineRequest, context: Context) -> pb.DeleteBaselineResponse:
        """Delete a baseline name."""
        scope = self._scope()
        await self._database.write(lambda c: baselines.delete_baseline(c, scope, request.name))
        return pb.DeleteBaselineResponse()

    async def SetCalibration(self, request: pb.SetCalibrationRequest, context: Context) -> pb.SetCalibrationResponse:
        """Store a calibration of a judge."""
        scope = self._scope()
        calibration = CALIBRATION.from_wire(request.calibration)
        calibrations.check_calibration(calibration)
        stored = await self._database.write(lambda c: calibrations.set_calibration(c, scope, calibration))
        return pb.SetCalibrationResponse(calibration=CALIBRATION.to_wire(stored))

    async def ListCalibrations(
        self, request: pb.ListCalibrationsRequest, context: Context
    ) -> pb.ListCalibrationsResponse:
        """Return all calibrations."""
        scope = self._scope()
        stored = await self._database.read(lambda c: calibrations.list_calibrations(c, scope.team))
        return pb.ListCalibrationsResponse(calibrations=map(CALIBRATION.to_wire, stored))

    async def DeleteCalibration(
        self, request: pb.DeleteCalibrationRequest, context: Context
    ) -> pb.DeleteCalibrationResponse:
        """Delete a calibration."""
        scope = self._scope()
        deleted = await self._database.write(
            lambda c: calibrations.delete_calibration(c, scope, request.calibration_id)
        )
        return pb.DeleteCalibrationResponse(calibration=CALIBRATION.to_wire(deleted))

    async def CompareRuns(self, request: pb.CompareRunsRequest, context: Context) -> pb.CompareRunsResponse:
        """Return the figures of a comparison."""
        return await self._comparisons.compare_runs(self._scope(), request)

    async def ListComparedCases(
        self, request: pb.ListComparedCasesRequest, context: Context
    ) -> pb.ListComparedCasesResponse:
        """Return a page of compared cases."""
        return await self._comparisons.list_compared_cases(self._scope(), request)

    def ServeAgent(
        self, request_iterator: AsyncIterator[pb.ServeAgentRequest], context: Context
    ) -> AsyncIterator[pb.ServeAgentResponse]:
        """Ask a run's questions through the client that hosts its agent."""
        return self._agent_streams.serve(request_iterator, self._scope())

    def _scope(self) -> Scope:
        """Return the scope of the current call; must be called in the handler's own task, not in a thread."""
        return call_scope(self._fixed_scope)

    @functools.cached_property
    def _comparisons(self) -> ComparisonCalls:
        # Imported with the first comparison: runs do not need the comparison modules.
        from assay_orchestrator.comparison_handlers import ComparisonCalls

        return ComparisonCalls(self._database, self._tokens, self._manager)

    def _to_wire(self, run: Run) -> pb.Run:
        return RUN.to_wire(self._manager.shown(run))


class _Upload:
    """One upload of a dataset: checked, hashed and stored as it arrives."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope
        self._upload_id = datasets.new_upload_id()
        self._header: pb.DatasetHeader | None = None
        self._hash = hashlib.sha256()
        self._count = 0
        self._size_bytes = 0
        self._finished = False
        self._storing: asyncio.Future[None] | None = None

    def begin(self, header: pb.DatasetHeader) -> None:
        if self._header is not None or self._count:
            raise DatasetError("the header must come exactly once, first")
        names = {"name": header.name, "format": header.format}
        refusals = {
            field: name_problem(name, _MAX_DATASET_NAME_CHARS, required=field == "name")
            for field, name in names.items()
        }
        if problems := [Problem(problem, f"header.{field}") for field, problem in refusals.items() if problem]:
            raise DatasetError(problems)
        self._header = header
        # Equal cases under another name are another dataset: an answer must not reveal another client's name.
        self._hash.update(json.dumps([header.name, header.format]).encode() + b"\n")

    async def add(self, messages: Sequence[pb.Case]) -> None:
        if self._header is None:
            raise DatasetError("the header must come before the cases")
        problems: list[Problem] = []
        # In a thread: checking the schema of one case may take half a second.
        cases = await asyncio.to_thread(_cases, messages, self._count, problems)
        if problems:
            raise DatasetError(first_problems(problems, _MAX_PROBLEMS))
        for start in range(0, len(cases), _UPLOAD_BATCH):
            rows = [(case.case_id, datasets.case_text(case)) for case in cases[start : start + _UPLOAD_BATCH]]
            for _, text in rows:
                self._hash.update(text.encode() + b"\n")
            first = self._count
            # The write completes even if the caller has left; its rows are discarded afterwards.
            self._storing = asyncio.ensure_future(self._database.write(functools.partial(self._add, first, rows)))
            await asyncio.shield(self._storing)
            failpoint("dataset.after_commit")
            self._count += len(rows)
            self._size_bytes += sum(len(text.encode()) for _, text in rows)

    def _add(self, first: int, rows: Sequence[tuple[str, str]], connection: sa.Connection) -> None:
        tokens.require_not_deleted(connection, self._scope.team)
        quotas.require_bytes(connection, self._scope.team, self._size_bytes)
        if not first:
            datasets.begin_upload(connection, self._scope.team, self._upload_id)
        datasets.add_cases(connection, self._upload_id, first, rows)
        failpoint("dataset.before_commit")

    async def finish(self) -> DatasetRef:
        if self._header is None or not self._count:
            raise DatasetError("a dataset has a header and at least one case")
        record = DatasetRef(self._hash.hexdigest()[:32], self._header.name, self._header.format, self._count)
        scope = self._scope
        stored = await self._database.write(
            audit.recorded(
                lambda c: self._finish(c, record), scope.call, lambda dataset: (scope.team, dataset.dataset_id)
            )
        )
        failpoint("dataset.finished")
        self._finished = True
        return stored

    def _finish(self, connection: sa.Connection, record: DatasetRef) -> DatasetRef:
        tokens.require_not_deleted(connection, self._scope.team)
        runs.lock_creation(connection)  # of two simultaneous uploads, the second sees the rows of the first
        stored = datasets.finish_upload(connection, self._scope, self._upload_id, record)
        quotas.require_bytes(connection, self._scope.team, 0)
        return stored

    async def aclose(self) -> None:
        """Remove the rows of an interrupted upload."""
        if not self._finished and self._storing is not None:
            await asyncio.shield(self._discard(self._storing))

    async def _discard(self, storing: asyncio.Future[None]) -> None:
        await asyncio.gather(storing, return_exceptions=True)
        await self._database.write(lambda c: datasets.discard_upload(c, self._upload_id))


def _conditions(query: RunQuery) -> list[str]:
    """Return the conditions and order of a list as texts that bind its page tokens; empty for a list without any."""
    if query.is_plain and not query.run_filter.run_id_prefix:
        return []
    conditions = dataclasses.asdict(query.run_filter) | {"states": sorted(query.run_filter.states)}
    return [json.dumps(conditions, sort_keys=True), query.order.key, str(query.order.descending)]


def _listed(run: Run) -> pb.Run:
    """Return the message of a run; a run that does not fit says so and does not break the list."""
    try:
        return RUN.to_wire(run)
    except (TypeError, ValueError) as problem:
        _log.error("cannot show run: run=%s", run.run_id, exc_info=problem)
        return pb.Run(run_id=run.run_id, state_reason=f"this run cannot be shown ({problem}): delete it")


def _cases(messages: Sequence[pb.Case], first: int, problems: list[Problem]) -> list[Case]:
    return [case for offset, message in enumerate(messages) if (case := _case(message, first + offset, problems))]


def _case(message: pb.Case, index: int, problems: list[Problem]) -> Case | None:
    """Return an uploaded case, or None after adding its problems; `index` is its position, from 0."""
    try:
        case = case_from_wire(message)
    except DatasetError as refusal:
        case_errors = refusal.problems
    else:
        case_errors = case_problems(case)
        if not case_errors and message.ByteSize() > _MAX_PLAIN_BYTES and (problem := excess(case)):
            case_errors = [Problem(problem)]
        if not case_errors:
            return case
    problems += [
        dataclasses.replace(problem, field=f"cases[{index}].{problem.field}".rstrip(".")) for problem in case_errors
    ]
    return None
