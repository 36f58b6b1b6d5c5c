"""The asynchronous client of an orchestrator, with dataclasses as arguments and results."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING

from google.protobuf.field_mask_pb2 import FieldMask

from assay.agent_host.protocol import Caller
from assay.agent_host.serve_stream import AgentHost
from assay.client import stored_datasets
from assay.client.connection import PAGE_TIMEOUT_S, Connection, Patience
from assay.client.upload import upload_messages
from assay.errors import NotFoundError, Problem, SpecError, UnavailableError, WatchBehindError, WrongStateError
from assay.filters.conditions import quoted
from assay.filters.pages import CaseDetail, ResultPage, RunPage
from assay.filters.row_text import parse_row_query
from assay.filters.run_filter import parse_run_query
from assay.model.run import Deletion, RowAttempt, RowResult, Run, StateChanged
from assay.model.run_spec import HOSTED
from assay.model.views import RowView, RunView
from assay.rpc.channel import read_stream
from assay.v1 import dataset_pb2, row_pb2, run_pb2
from assay.wire.case import case_to_wire
from assay.wire.filters import case_detail_from_wire, facets_from_wire
from assay.wire.run import (
    ATTEMPT,
    DELETION,
    ROW_VIEWS,
    RUN,
    RUN_VIEWS,
    SETTINGS,
    event_from_wire,
    result_from_wire,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from typing import Any

    from assay.agent_host.protocol import MetricCaller
    from assay.model.case import Case
    from assay.model.run import RunSpec, SpendCap
    from assay.model.stored_dataset import StoredDataset

_RUN_PAGE = 500
_QUERY = ("where", "order_by")
_RESULT_PAGE = 500
_STEPS_TO_SEND = 3  # turns of the event loop after which a started call has been sent
_DELETE_TIMEOUT_S = 600.0


class Client(Connection):
    """A connection to an orchestrator; use it with `async with`.

    If an orchestrator that has answered before becomes unreachable, every call reconnects and retries; all calls are
    idempotent.

    Args:
        address: "host:port", "dns:///host:port" or "unix:/path".
        patience_s: Seconds for which a call is retried after a lost connection, or while the orchestrator's database
            refuses it.
        on_lost: Awaited after a lost connection, before the client reconnects.
        token: An API token; None for $ASSAY_TOKEN, else that of `assay login` for this address. It is sent to other
            machines only over TLS.
        tls_ca: A PEM file with the server's certificate authorities, which switches TLS on; None for $ASSAY_TLS_CA,
            else that of `assay login`. Without any, calls to another machine use TLS if there is a token, with gRPC's
            own certificate authorities.
        tls_cert: A PEM file with the client's certificate, for a server with --tls-client-ca; None for $ASSAY_TLS_CERT,
            else that of `assay login`.
        tls_key: A PEM file with its private key; None for $ASSAY_TLS_KEY, else that of `assay login`.
    """

    async def upload_dataset(
        self, cases: Iterable[Case], *, name: str, note: str = "", parent_ids: Iterable[str] = ()
    ) -> StoredDataset:
        """Store a dataset and return it; equal cases in the same order are stored only once, whatever their name.

        Args:
            cases: The cases. After a lost connection they are sent again from the start, unless they are an iterator.
            name: The name, such as the file's; it moves to this dataset.
            note: A note for people; empty keeps the note stored for this name and version.
            parent_ids: Ids of the datasets it was made from; empty keeps those stored.

        Raises:
            DatasetError: A case was refused, or the cases cannot be read.
        """
        header = dataset_pb2.DatasetHeader(name=name, note=note, parent_ids=parent_ids)
        is_repeatable = iter(cases) is not cases
        return await upload_messages(self, lambda: map(case_to_wire, cases), header, repeatable=is_repeatable)

    async def get_dataset(self, dataset_id: str) -> StoredDataset:
        """Return a dataset under the name that it was last uploaded under.

        Raises:
            NotFoundError: The dataset does not exist.
        """
        return await stored_datasets.get_dataset(self, dataset_id)

    async def list_datasets(self, limit: int = 50, *, name: str = "") -> list[StoredDataset]:
        """Return the versions of a name, or of all names if it is empty, the last uploaded first.

        Args:
            limit: Maximum number of datasets to return.
            name: The name, whose first version is the current one.
        """
        return await stored_datasets.list_datasets(self, limit, name)

    def list_cases(self, dataset_id: str) -> AsyncIterator[Case]:
        """Yield the cases of a dataset, in order.

        Raises:
            NotFoundError: The dataset does not exist.
        """
        return stored_datasets.list_cases(self, dataset_id)

    async def delete_dataset(self, dataset_id: str, *, validate_only: bool = False) -> StoredDataset:
        """Delete a dataset with its cases, and return it.

        Args:
            validate_only: Delete nothing; only check whether the dataset can be deleted.

        Raises:
            NotFoundError: The dataset does not exist.
            WrongStateError: Runs use it.
        """
        return await stored_datasets.delete_dataset(self, dataset_id, validate_only=validate_only)

    async def create_run(self, settings: RunSpec, dataset_id: str, *, request_id: str | None = None) -> Run:
        """Start a run and return it. A repeated request id returns the same run.

        Raises:
            SpecError: The settings are wrong; lists every problem, with its path in the settings.
            ConflictError: The request id was used for another run.
            SetupError: The orchestrator has an older version that does not know some settings (reason SERVER_TOO_OLD).
        """
        from assay.metrics import without_defaults  # imported here: most clients start no run
        from assay.specs.agents import ADAPTERS, unknown_adapter

        adapter = settings.agent.adapter
        # A run whose answers are scored again may have the adapter of a host in another language.
        if not settings.source_run_id and adapter not in (HOSTED, *ADAPTERS):
            raise SpecError([Problem(unknown_adapter(adapter), "agent.adapter")])
        request = run_pb2.CreateRunRequest(
            request_id=request_id or str(uuid.uuid4()),
            spec=SETTINGS.to_wire(without_defaults(settings)),
            dataset_id=dataset_id,
        )
        try:
            return RUN.from_wire((await self._call(lambda: self._stub.CreateRun(request), request)).run)
        except SpecError as refusal:
            own = [dataclasses.replace(found, field=found.field.removeprefix("spec.")) for found in refusal.problems]
            raise SpecError(own, reason=refusal.reason) from refusal

    async def get_run(self, run_id: str, *, partial: bool = True) -> Run:
        """Return a run in its current state.

        Args:
            partial: Whether an unfinished run gets a summary of its rows so far, marked as partial.

        Raises:
            NotFoundError: The run does not exist.
        """
        request = run_pb2.GetRunRequest(run_id=run_id, omit_partial_summary=not partial)
        return RUN.from_wire((await self._call(lambda: self._stub.GetRun(request))).run)

    async def list_runs(
        self,
        limit: int = 50,
        *,
        where: str = "",
        order_by: str = "",
        view: RunView = RunView.BASIC,
    ) -> list[Run]:
        """Return the first runs that match a filter, by default newest first.

        Args:
            limit: Maximum number of runs to return.
            where: The filter, such as "state:completed pass_rate<0.8" (docs/filters.md); empty for all runs.
            order_by: "created", "ended", "name", "pass_rate" or another figure, such as a metric, descending with a
                leading "-"; empty for "-created".
            view: Which fields the runs have; FIGURES adds verdict, pass rate, gates and metrics to BASIC.

        Raises:
            InvalidInputError: The filter or the order is wrong; lists every problem.
            DeadlineError: The query exceeded the orchestrator's time limit.
        """
        runs: list[Run] = []
        token = ""
        while len(runs) < limit:
            page = await self.run_page(
                where=where,
                order_by=order_by,
                page_size=min(_RUN_PAGE, limit - len(runs)),
                page_token=token,
                view=view,
            )
            runs += page.runs
            token = page.next_page_token
            if not token:
                break
        return runs

    async def run_page(
        self,
        *,
        where: str = "",
        order_by: str = "",
        page_size: int = _RUN_PAGE,
        page_token: str = "",
        view: RunView = RunView.BASIC,
        include_total_count: bool = False,
    ) -> RunPage:
        """Return a page of the runs that match a filter.

        Args:
            where: The filter, as in `list_runs`.
            order_by: The order, as in `list_runs`.
            page_size: Maximum number of runs, up to 500; a page also ends before 3 MiB.
            page_token: The next_page_token of the previous page of the same query; empty for the first page.
            view: Which fields the runs have.
            include_total_count: Whether to count all runs that match the filter.

        Raises:
            InvalidInputError: The filter or the order is wrong; lists every problem.
            InvalidInputError: The token belongs to another query (reason PAGE_TOKEN_INVALID).
            DeadlineError: The query exceeded the orchestrator's time limit.
        """
        parse_run_query(where, order_by, names=_QUERY)
        request = run_pb2.ListRunsRequest(
            page_token=page_token,
            filter=where,
            order_by=order_by,
            view=RUN_VIEWS.to_wire(view),
            include_total_count=include_total_count,
        )

        async def fetch(size: int) -> run_pb2.ListRunsResponse:
            request.page_size = size
            return await self._stub.ListRuns(request, timeout=PAGE_TIMEOUT_S)

        response = await self._page(fetch, page_size)
        total = response.total_count if response.HasField("total_count") else None
        return RunPage([RUN.from_wire(run) for run in response.runs], response.next_page_token, total)

    async def cancel_run(self, run_id: str) -> Run:
        """Cancel a run; its stored rows are kept.

        Raises:
            WrongStateError: The run has already ended.
        """
        request = run_pb2.CancelRunRequest(run_id=run_id)
        return RUN.from_wire((await self._call(lambda: self._stub.CancelRun(request))).run)

    async def pause_run(self, run_id: str) -> Run:
        """Pause a run: finish its calls in flight and start no more, until `resume_run`.

        Returns:
            The run: PAUSED, or PAUSING if its calls in flight take longer than a few seconds; `watch_run` shows when
            they have ended.

        Raises:
            WrongStateError: The run has already ended.
        """
        request = run_pb2.PauseRunRequest(run_id=run_id)
        return RUN.from_wire((await self._call(lambda: self._stub.PauseRun(request))).run)

    async def resume_run(self, run_id: str) -> Run:
        """Resume a paused run; stored answers are kept.

        Raises:
            WrongStateError: The run has already ended.
        """
        request = run_pb2.ResumeRunRequest(run_id=run_id)
        return RUN.from_wire((await self._call(lambda: self._stub.ResumeRun(request))).run)

    async def retry_run(self, run_id: str) -> Run:
        """Retry the rows whose agent or metric failed, of a paused, completed or failed run.

        Earlier attempts are kept: see `list_attempts`.

        Returns:
            The run: RUNNING, or COMPLETED if no row can be retried.

        Raises:
            WrongStateError: The run is active, or was cancelled.
        """
        request = run_pb2.RetryRunRequest(run_id=run_id)
        lost_before = self._lost_count
        try:
            return RUN.from_wire((await self._call(lambda: self._stub.RetryRun(request))).run)
        except WrongStateError as problem:
            if self._lost_count == lost_before or problem.reason != "RUN_ACTIVE":
                raise
            # An earlier attempt, whose response was lost, has resumed it.
            return await self.get_run(run_id, partial=False)

    async def update_run(
        self,
        run_id: str,
        *,
        labels: Mapping[str, str] | None = None,
        note: str | None = None,
        weight: float | None = None,
        spend_cap: SpendCap | None = None,
    ) -> Run:
        """Change a run; None leaves a value unchanged.

        Args:
            labels: All labels of the run.
            note: The note; empty for none.
            weight: The weight among the runs of its team.
            spend_cap: The spend cap for judging, of a paused or ended run.

        Raises:
            InvalidInputError: A value is invalid, or the run has no judge to cap; lists every problem.
            WrongStateError: The spend cap differs, and the run is active.
        """
        given = {"labels": labels, "note": note, "weight": weight, "spend_cap_nano_usd": spend_cap}
        request = run_pb2.UpdateRunRequest(
            run_id=run_id,
            labels=labels,
            note=note or "",
            weight=weight or 0.0,
            spend_cap_nano_usd=spend_cap.nano_usd if spend_cap is not None else None,
            update_mask=FieldMask(paths=[name for name, value in given.items() if value is not None]),
        )
        return RUN.from_wire((await self._call(lambda: self._stub.UpdateRun(request))).run)

    async def list_attempts(self, run_id: str, case_id: str) -> list[RowAttempt]:
        """Return all attempts at the rows of a case, by repeat, oldest first, with the current attempt last.

        Raises:
            NotFoundError: The run does not exist, or its dataset does not have the case.
        """
        attempts: list[RowAttempt] = []
        request = row_pb2.ListAttemptsRequest(run_id=run_id, case_id=case_id)
        while True:
            page = await self._call(lambda: self._stub.ListAttempts(request, timeout=PAGE_TIMEOUT_S))
            attempts += map(ATTEMPT.from_wire, page.attempts)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return attempts

    async def delete_run(self, run_id: str, *, validate_only: bool = False, with_baselines: bool = False) -> Deletion:
        """Delete an ended or paused run with its rows; its dataset stays.

        Args:
            validate_only: Delete nothing; only return what would be deleted.
            with_baselines: Whether to delete a run that a baseline points to; the baseline then points to no run.

        Raises:
            NotFoundError: The run does not exist.
            WrongStateError: The run is active, or a baseline points to it.
        """
        estimate = await self._delete_run(run_pb2.DeleteRunRequest(run_id=run_id, validate_only=True))
        if validate_only:
            return estimate
        lost_before = self._lost_count
        try:
            return await self._delete_run(run_pb2.DeleteRunRequest(run_id=run_id, with_baselines=with_baselines))
        except NotFoundError:
            if self._lost_count == lost_before:
                raise
            return estimate  # an earlier attempt, whose response was lost, has deleted it

    async def _delete_run(self, request: run_pb2.DeleteRunRequest) -> Deletion:
        return DELETION.from_wire(await self._call(lambda: self._stub.DeleteRun(request, timeout=_DELETE_TIMEOUT_S)))

    async def watch_run(
        self, run_id: str, *, after_sequence: int = 0, view: RowView = RowView.BASIC
    ) -> AsyncIterator[Run | StateChanged | RowResult]:
        """Yield a snapshot of the run, then its events in order, until it has ended.

        After a lost connection the watch resumes behind the last event, with a new snapshot. The same happens if the
        orchestrator ends a watch that was not read for long.

        Args:
            after_sequence: Only events with a higher sequence number.
            view: Which fields the rows have.

        Raises:
            NotFoundError: The run does not exist or was deleted.
            ResumeExpiredError: The run has not reached `after_sequence`.
            UnavailableError: The orchestrator was unreachable for longer than the client's patience.
        """
        cursor = after_sequence
        patience = Patience(self._patience_s)
        while True:
            request = run_pb2.WatchRunRequest(run_id=run_id, after_sequence=cursor, view=ROW_VIEWS.to_wire(view))
            try:
                async with self._explained(), read_stream(self._stub.WatchRun(request)) as messages:
                    async for message in messages:
                        patience.renew()
                        if message.HasField("snapshot"):
                            yield RUN.from_wire(message.snapshot)
                        if message.HasField("bookmark_sequence"):
                            cursor = message.bookmark_sequence
                        for event in message.events:
                            cursor = event.sequence
                            yield event_from_wire(event)
                return
            except WatchBehindError:
                continue  # everything sent before has been read by now
            except UnavailableError as problem:
                await self._lost(problem, patience)

    async def list_rows(
        self, run_id: str, *, where: str = "", order_by: str = "", view: RowView = RowView.FULL
    ) -> AsyncIterator[RowResult]:
        """Yield the stored rows of a run that match a filter, by default in dataset order.

        Args:
            run_id: The run.
            where: The filter, such as "failed judge_score<0.5" (docs/filters.md); empty for all rows.
            order_by: "dataset", "latency", "case" or a metric, descending with a leading "-"; empty for "dataset".
            view: Which fields the rows have.

        Raises:
            InvalidInputError: The filter or the order is wrong, or names a metric that the run does not have; lists
                every problem.
            NotFoundError: The run does not exist.
            DeadlineError: The query exceeded the orchestrator's time limit.
        """

        async def fetch(token: str) -> ResultPage:
            return await self.row_page(run_id, where=where, order_by=order_by, page_token=token, view=view)

        page: asyncio.Task[ResultPage] | None = asyncio.create_task(fetch(""))
        try:
            while page is not None:
                rows = await page
                token = rows.next_page_token
                # Fetch the next page while the caller reads this one.
                page = asyncio.create_task(fetch(token)) if token else None
                for _ in range(_STEPS_TO_SEND):
                    await asyncio.sleep(0)
                for result in rows.results:
                    yield result
        finally:
            if page is not None:
                page.cancel()

    async def row_page(
        self,
        run_id: str,
        *,
        where: str = "",
        order_by: str = "",
        page_size: int = _RESULT_PAGE,
        page_token: str = "",
        view: RowView = RowView.FULL,
        include_total_count: bool = False,
        include_facets: bool = False,
    ) -> ResultPage:
        """Return a page of the stored rows that match a filter.

        Args:
            run_id: The run.
            where: The filter, as in `list_rows`.
            order_by: The order, as in `list_rows`.
            page_size: Maximum number of rows, up to 1,000; a page also ends before 3 MiB.
            page_token: The next_page_token of the previous page of the same query; empty for the first page.
            view: Which fields the rows have.
            include_total_count: Whether to count all rows that match the filter.
            include_facets: Whether to count these rows by outcome, category, tag and repeat.

        Raises:
            InvalidInputError: The filter or the order is wrong, or names a metric that the run does not have; lists
                every problem.
            NotFoundError: The run does not exist.
            InvalidInputError: The token belongs to another query (reason PAGE_TOKEN_INVALID).
            DeadlineError: The query exceeded the orchestrator's time limit.
        """
        parse_row_query(where, order_by, names=_QUERY)
        request = row_pb2.ListRowsRequest(
            run_id=run_id,
            page_token=page_token,
            filter=where,
            order_by=order_by,
            view=ROW_VIEWS.to_wire(view),
            include_total_count=include_total_count,
            include_facets=include_facets,
        )

        async def fetch(size: int) -> row_pb2.ListRowsResponse:
            request.page_size = size
            return await self._stub.ListRows(request, timeout=PAGE_TIMEOUT_S)

        response = await self._page(fetch, page_size)
        return ResultPage(
            [result_from_wire(result) for result in response.rows],
            response.next_page_token,
            response.total_count if response.HasField("total_count") else None,
            facets_from_wire(response.facets) if response.HasField("facets") else None,
        )

    async def get_case(self, run_id: str, case_id: str, *, where: str = "", order_by: str = "") -> CaseDetail:
        """Return a stored case of a run, the results of its repeats, and its neighbours.

        Args:
            where: Filter of the neighbours: cases with a matching row, as in `list_rows`.
            order_by: Order of the neighbours, as in `list_rows`.

        Raises:
            InvalidInputError: A filter or order is invalid, or names a metric that the run does not have.
            NotFoundError: The run does not exist, or its dataset does not have the case.
            DeadlineError: The query exceeded the orchestrator's time limit.
        """
        parse_row_query(where, order_by, names=_QUERY)
        request = row_pb2.GetCaseRequest(run_id=run_id, case_id=case_id, filter=where, order_by=order_by)

        response = await self._call(lambda: self._stub.GetCase(request, timeout=PAGE_TIMEOUT_S))
        rows = [row async for row in self.list_rows(run_id, where=f"case:{quoted(case_id)}")]
        return case_detail_from_wire(response.case_detail, rows)

    async def host_agent(
        self,
        run_id: str,
        agent: Callable[..., Any] | Caller | None,
        *,
        concurrency: int,
        metrics: MetricCaller | None = None,
    ) -> None:
        """Serve a run with an agent and metrics of this process until the run needs no more calls.

        Args:
            run_id: The run.
            agent: A function, as for `assay.evaluate`, or an object that calls the agent; None if the orchestrator
                calls it.
            concurrency: Maximum concurrent calls.
            metrics: The run's Python metrics in this process, or None.

        Raises:
            UnavailableError: The orchestrator was unreachable for longer than the client's patience.
        """
        from assay.agent_host.caller import AgentCaller  # imported here: most clients host nothing

        caller = agent if agent is None or isinstance(agent, Caller) else AgentCaller(agent)
        patience = Patience(self._patience_s)
        async with aclosing(AgentHost(run_id, caller, concurrency=concurrency, metrics=metrics)) as host:
            while True:
                try:
                    async with self._explained():
                        await host.serve(self._channel, on_attached=patience.renew)
                    return
                except UnavailableError as problem:
                    await self._lost(problem, patience)
