"""RunService on the wire: maps requests to domain calls and results to responses."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from contextlib import aclosing
from typing import TYPE_CHECKING

from assay.errors import NotFoundError, Problem, SpecError, WatchBehindError
from assay.filters.run_filter import parse_run_query
from assay.identity.audit import record_export
from assay.model.run import SpendCap
from assay.model.views import RowView, RunView
from assay.parsing.names import name_problem
from assay.process.failpoints import failpoint
from assay.v1 import row_pb2, run_pb2, run_pb2_grpc, spec_pb2
from assay.wire.field_masks import masked_names
from assay.wire.filters import (
    case_detail_to_wire,
    facets_to_wire,
)
from assay.wire.pages import first_page
from assay.wire.run import ATTEMPT, DATASET_REFERENCE, DELETION, ROW_VIEWS, RUN, RUN_VIEWS, SETTINGS, settings_from_wire
from assay_orchestrator.identity.scopes import call_scope
from assay_orchestrator.queries.row_pages import PageRequest, RowPages
from assay_orchestrator.runs.admission import check_settings, check_source
from assay_orchestrator.runs.run_lists import RunPosition, RunQuery
from assay_orchestrator.runs.run_views import in_view
from assay_orchestrator.store import history
from assay_orchestrator.store.page_tokens import PageTokens
from assay_orchestrator.store.runs import datasets
from assay_orchestrator.store.teams import calibrations
from assay_orchestrator.store.updates import RunUpdate
from assay_orchestrator.watch.watches import Watches, WatchMessageCache

if TYPE_CHECKING:
    from assay.model.run import DatasetRef, Run, RunSpec
    from assay.model.scope import Scope
    from assay.rpc.access import Context
    from assay.storage.database import Database
    from assay_orchestrator.runs.manager import RunManager
    from assay_orchestrator.settings import Settings

_MAX_REQUEST_ID_CHARS = 100


class RunService(run_pb2_grpc.RunServiceServicer):
    """Creates, lists, controls and watches runs, and reads their rows.

    Args:
        database: The store.
        tokens: Creates and reads page tokens.
        manager: The runs.
        settings: Limits.
        stopping: Set when the process begins to stop. Long streams end then, and clients resume them elsewhere.
        scope: The scope of every call; None takes the scope of each caller's identity.
    """

    def __init__(
        self,
        database: Database,
        tokens: PageTokens,
        manager: RunManager,
        settings: Settings,
        stopping: asyncio.Event,
        scope: Scope | None,
    ) -> None:
        self._database = database
        self._manager = manager
        self._settings = settings
        self._stopping = stopping
        self._fixed_scope = scope
        self._tokens = tokens
        self._rows = RowPages(database, tokens)
        self._messages = WatchMessageCache()
        self._watches = Watches(
            database,
            manager.notifier,
            manager.get,
            manager.storage_problem,
            stopping,
            bookmark_s=settings.watch_bookmark_s,
        )

    async def CreateRun(self, request: run_pb2.CreateRunRequest, context: Context) -> run_pb2.CreateRunResponse:
        """Accept a run."""
        try:
            return await self._create_run(self._scope(), request)
        except SpecError as refusal:
            raise SpecError([_of_request(problem) for problem in refusal.problems], reason=refusal.reason) from None

    async def _create_run(self, scope: Scope, request: run_pb2.CreateRunRequest) -> run_pb2.CreateRunResponse:
        requested, unreadable = settings_from_wire(request.spec)
        if self._fixed_scope is None:  # the interceptor has already refused specs of other teams
            requested = dataclasses.replace(requested, team=scope.team)
        access = await self._manager.access.of(scope.team)
        # In a thread: checking a schema of 64 kB takes half a second.
        settings = await asyncio.to_thread(check_settings, requested, self._settings, access, unreadable)
        if settings.source_run_id:
            check_source(await self._manager.get(scope, settings.source_run_id), settings, request.dataset_id)
        await self._manager.preflight(scope, settings, access)
        if not request.validate_only and (problem := name_problem(request.request_id, _MAX_REQUEST_ID_CHARS)):
            raise SpecError([Problem(problem, "request_id")])
        dataset = await self._database.read(lambda c: datasets.get_dataset(c, scope.team, request.dataset_id))
        if request.validate_only and (dataset is not None or not request.dataset_id):
            return run_pb2.CreateRunResponse(run=_planned(settings, dataset))
        if dataset is None:
            raise NotFoundError(
                f"there is no dataset {request.dataset_id!r}: upload it first", reason="DATASET_NOT_FOUND"
            )
        run = await self._manager.create(scope, request.request_id, settings, dataset, requested)
        return run_pb2.CreateRunResponse(run=self._to_wire(run))

    async def GetRun(self, request: run_pb2.GetRunRequest, context: Context) -> run_pb2.GetRunResponse:
        """Return one run."""
        scope = self._scope()
        view = RUN_VIEWS.from_wire(request.view) or RunView.FULL
        is_partial = view is RunView.FULL and not request.omit_partial_summary
        get = self._manager.get_summarised if is_partial else self._manager.get
        run = in_view(await get(scope, request.run_id), view)
        judging = run.summary.judging if run.summary is not None else None
        if judging is not None and judging.fingerprints:
            team = scope.team if self._fixed_scope is not None else run.spec.team
            stored = await self._database.read(lambda c: calibrations.calibrations_of(c, team, judging.fingerprints))
            run = dataclasses.replace(run, calibrations=stored)
        return run_pb2.GetRunResponse(run=self._to_wire(run))

    async def ListRuns(self, request: run_pb2.ListRunsRequest, context: Context) -> run_pb2.ListRunsResponse:
        """Return a page of runs."""
        scope = self._scope()
        run_filter, order = parse_run_query(request.filter, request.order_by, names=("filter", "order_by"))
        query = RunQuery(
            run_filter,
            order,
            view=RUN_VIEWS.from_wire(request.view) or RunView.BASIC,
            with_total=request.include_total_count,
        )
        bound_to = ("ListRuns", request.filter, request.order_by)
        position = await self._tokens.read(scope, bound_to, request.page_token, (str, str, str))
        after = None
        if position is not None:
            after = RunPosition(json.loads(str(position[0])), str(position[1]), str(position[2]))
        page = await self._manager.lists.read(scope, query, after, min(request.page_size or 50, 500))
        token = ""
        if page.end is not None:
            end = (json.dumps(page.end.value, ensure_ascii=False), page.end.created_at, page.end.run_id)
            token = await self._tokens.make(scope, bound_to, end)
        return run_pb2.ListRunsResponse(runs=page.runs, next_page_token=token, total_count=page.total_count)

    async def CancelRun(self, request: run_pb2.CancelRunRequest, context: Context) -> run_pb2.CancelRunResponse:
        """Stop a run."""
        scope = self._scope()
        return run_pb2.CancelRunResponse(run=self._to_wire(await self._manager.cancel(scope, request.run_id)))

    async def PauseRun(self, request: run_pb2.PauseRunRequest, context: Context) -> run_pb2.PauseRunResponse:
        """Let the questions in flight end and ask nothing more."""
        scope = self._scope()
        return run_pb2.PauseRunResponse(run=self._to_wire(await self._manager.pause(scope, request.run_id)))

    async def ResumeRun(self, request: run_pb2.ResumeRunRequest, context: Context) -> run_pb2.ResumeRunResponse:
        """Resume a paused run."""
        scope = self._scope()
        return run_pb2.ResumeRunResponse(run=self._to_wire(await self._manager.resume(scope, request.run_id)))

    async def RetryRun(self, request: run_pb2.RetryRunRequest, context: Context) -> run_pb2.RetryRunResponse:
        """Retry the failed rows of a run."""
        scope = self._scope()
        run = await self._manager.resume(scope, request.run_id, retry_errors=True)
        return run_pb2.RetryRunResponse(run=self._to_wire(run))

    async def UpdateRun(self, request: run_pb2.UpdateRunRequest, context: Context) -> run_pb2.UpdateRunResponse:
        """Change labels, note, weight or spend cap of a run."""
        scope = self._scope()
        run = await self._manager.update(scope, request.run_id, _update_in(request))
        return run_pb2.UpdateRunResponse(run=self._to_wire(run))

    async def DeleteRun(self, request: run_pb2.DeleteRunRequest, context: Context) -> run_pb2.DeleteRunResponse:
        """Remove a run."""
        scope = self._scope()
        gone = await self._manager.delete(
            scope, request.run_id, validate_only=request.validate_only, with_baselines=request.with_baselines
        )
        return DELETION.to_wire(gone)

    async def WatchRun(  # type: ignore[override]
        self, request: run_pb2.WatchRunRequest, context: Context
    ) -> None:
        """Send a snapshot, then events in order, and bookmarks while nothing happens."""
        scope = self._scope()
        with_answers = ROW_VIEWS.from_wire(request.view) is RowView.FULL
        following = self._watches.follow(scope, request.run_id, request.after_sequence, with_answers=with_answers)
        is_first = True
        if with_answers:
            await self._manager.get(scope, request.run_id)
            await record_export(request.run_id)
        async with aclosing(following) as steps:
            async for step in steps:
                if is_first:
                    is_first = False
                    # Left to the first message, headers would count as unsent while it waits for its reader; gRPC would
                    # then send them twice and could not end the call: the client would wait forever.
                    await context.send_initial_metadata(())
                message = self._messages.message(request.run_id, step, with_answers=with_answers)
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

    async def ListRows(self, request: row_pb2.ListRowsRequest, context: Context) -> row_pb2.ListRowsResponse:
        """Return a page of results."""
        scope = self._scope()
        page_request = PageRequest(
            filter_text=request.filter,
            order_text=request.order_by,
            page_size=min(request.page_size or 200, 1000),
            page_token=request.page_token,
            with_answers=ROW_VIEWS.from_wire(request.view) is RowView.FULL,
            with_total=request.include_total_count,
            with_facets=request.include_facets,
        )
        run = await self._manager.get(scope, request.run_id)
        page = await self._rows.read(scope, run, page_request)
        if page_request.with_answers and not (request.page_token or page.is_of_cases):
            await record_export(run.run_id)
        return row_pb2.ListRowsResponse(
            rows=page.results,
            next_page_token=page.next_page_token,
            total_count=page.total_count,
            facets=facets_to_wire(page.facets) if page.facets is not None else None,
        )

    async def GetCase(self, request: row_pb2.GetCaseRequest, context: Context) -> row_pb2.GetCaseResponse:
        """Return a case with its neighbours."""
        scope = self._scope()
        run = await self._manager.get(scope, request.run_id)
        stored_case = await self._rows.read_case(scope, run, request.case_id, request.filter, request.order_by)
        return row_pb2.GetCaseResponse(case_detail=case_detail_to_wire(stored_case))

    async def ListAttempts(
        self, request: row_pb2.ListAttemptsRequest, context: Context
    ) -> row_pb2.ListAttemptsResponse:
        """Return a page of the attempts at the rows of a case."""
        scope = self._scope()
        run_id, case_id = (await self._manager.get(scope, request.run_id)).run_id, request.case_id
        bound_to = ("ListAttempts", run_id, case_id)
        after = await self._tokens.read(scope, bound_to, request.page_token, (int, int))
        attempts = [
            attempt
            for attempt in await self._database.read(lambda c: history.read_attempts(c, scope, run_id, case_id))
            if after is None or (attempt.repeat, attempt.attempt_index) > after
        ]
        page = first_page(map(ATTEMPT.to_wire, attempts[: min(request.page_size or 100, 500)]))
        token = ""
        if len(page) < len(attempts):
            token = await self._tokens.make(scope, bound_to, (page[-1].repeat, page[-1].attempt_index))
        return row_pb2.ListAttemptsResponse(attempts=page, next_page_token=token)

    def _scope(self) -> Scope:
        """Return the scope of the current call; must be called in the handler's own task, not in a thread."""
        return call_scope(self._fixed_scope)

    def _to_wire(self, run: Run) -> run_pb2.Run:
        return RUN.to_wire(self._manager.shown(run))


def _planned(settings: RunSpec, dataset: DatasetRef | None) -> run_pb2.Run:
    """Return the message of a run as it would be created; without a dataset it has no rows."""
    run = run_pb2.Run(spec=SETTINGS.to_wire(settings), state=run_pb2.RUN_STATE_PENDING)
    if dataset is not None:
        run.dataset.CopyFrom(DATASET_REFERENCE.to_wire(dataset))
        run.counts.total_count = dataset.case_count * settings.repeats
    return run


def _update_in(request: run_pb2.UpdateRunRequest) -> RunUpdate:
    names = masked_names(request.update_mask, ("labels", "note", "weight", "spend_cap_nano_usd"))
    cap = request.spend_cap_nano_usd if request.HasField("spend_cap_nano_usd") else None
    return RunUpdate(
        labels=dict(request.labels) if "labels" in names else None,
        note=request.note if "note" in names else None,
        weight=request.weight if "weight" in names else None,
        spend_cap=SpendCap(cap) if "spend_cap_nano_usd" in names else None,
    )


def _of_request(problem: Problem) -> Problem:
    """Return a problem of a run's settings with its path in the request; others are fields of the request itself."""
    field = problem.field
    is_of_spec = re.split(r"[.\[]", field, maxsplit=1)[0] in spec_pb2.RunSpec.DESCRIPTOR.fields_by_name
    return dataclasses.replace(problem, field=f"spec.{field}") if is_of_spec else problem
