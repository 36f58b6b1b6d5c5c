"""The gRPC JudgeService, which maps protobuf messages to requests and outcomes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, UnavailableError
from assay.judge.v1 import judge_pb2, judge_pb2_grpc
from assay.model.scope import LOCAL, Scope
from assay.rpc.interceptors import presentable
from assay.rpc.status import to_status
from assay.rpc.streams import answered
from assay.telemetry.context import add_fields
from assay.telemetry.tracing import span
from assay.wire.pages import first_page
from assay_judge.calls.prices import nano_from_usd
from assay_judge.grading.grader import compare_answers
from assay_judge.judges import choose_judge
from assay_judge.wire import (
    cache_message,
    grading_from_request,
    requested_judge,
    rubric_message,
    spending_message,
    verdict_message,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from assay_judge.batches.dispatcher import BatchDispatcher
    from assay_judge.grading.grader import Grader
    from assay_judge.model import Grading
    from assay_judge.settings import Settings
    from assay_judge.state.ledger import Ledger
    from assay_judge.state.store import JudgeStore
    from assay_judge.verdicts.rubric_registry import RubricRegistry

SERVICE_NAME = "assay.judge.v1.JudgeService"
_LEFT_FOR_THE_WAY_S = 0.1
_LEAST_S = 0.2
_WINNERS = {
    "a": judge_pb2.PAIR_WINNER_A,
    "b": judge_pb2.PAIR_WINNER_B,
    "tie": judge_pb2.PAIR_WINNER_TIE,
    "": judge_pb2.PAIR_WINNER_UNSPECIFIED,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgeService(judge_pb2_grpc.JudgeServiceServicer):
    """Serves verdicts of the judges that its settings allow.

    Args:
        grader: The grader.
        rubrics: The known rubrics.
        store: The judge's database.
        ledger: The accounts of the runs.
        batches: The dispatcher of batches.
        settings: The settings of the process.
        stopping: Set when the process stops; streams then end.
    """

    grader: Grader
    rubrics: RubricRegistry
    store: JudgeStore
    ledger: Ledger
    batches: BatchDispatcher
    settings: Settings
    stopping: asyncio.Event

    async def Grade(self, request: judge_pb2.GradeRequest, context: Any) -> judge_pb2.GradeResponse:
        """Return one verdict."""
        return await self._grade(request, context.time_remaining())

    async def GradeStream(self, request_iterator: Any, context: Any) -> AsyncIterator[judge_pb2.GradeStreamResponse]:
        """Answer each request as soon as it is ready."""

        async def answer(request: judge_pb2.GradeStreamRequest) -> judge_pb2.GradeStreamResponse:
            response = judge_pb2.GradeStreamResponse(request_id=request.request_id)
            try:
                with span("JudgeService/GradeStream", kind="server", parent=request.traceparent):
                    response.grade.CopyFrom(await self._grade(request.grade, context.time_remaining()))
            except Exception as error:  # noqa: BLE001 - the boundary of a request: `presentable` logs a defect
                response.error.CopyFrom(to_status(presentable(error, "GradeStream")))
            return response

        in_flight = self.settings.stream_in_flight
        async for response in answered(request_iterator, answer, in_flight=in_flight, stopping=self.stopping):
            yield response

    async def ComparePair(self, request: judge_pb2.ComparePairRequest, context: Any) -> judge_pb2.ComparePairResponse:
        """Return which of two answers is better."""
        grading = self._grading(request, context.time_remaining(), compares=True)
        comparison = await compare_answers(self.grader, grading)
        response = judge_pb2.ComparePairResponse(
            winner=_WINNERS[comparison.winner],
            flipped=comparison.flipped,
            verdicts=[verdict_message(outcome) for outcome in comparison.outcomes],
        )
        await self._account_for(grading, response)
        return response

    async def ListRubrics(self, request: judge_pb2.ListRubricsRequest, context: Any) -> judge_pb2.ListRubricsResponse:
        """Return a page of the rubrics of this server; its token is the last rubric's name."""
        names = sorted(name for name in self.rubrics.rubrics if name > request.page_token)
        page = first_page(rubric_message(self.rubrics.rubrics[name]) for name in names)
        token = page[-1].name if len(page) < len(names) else ""
        return judge_pb2.ListRubricsResponse(rubrics=page, next_page_token=token)

    async def DeleteScope(self, request: judge_pb2.DeleteScopeRequest, context: Any) -> judge_pb2.DeleteScopeResponse:
        """Delete everything stored under a scope."""
        scope = Scope(request.scope) if request.scope else LOCAL
        self.batches.forget(scope)
        deleted, remaining = await self.store.delete_scope(scope)
        self.ledger.forget(scope)
        return judge_pb2.DeleteScopeResponse(deleted_counts=deleted, remaining_counts=remaining)

    async def _grade(self, request: judge_pb2.GradeRequest, remaining_s: float | None) -> judge_pb2.GradeResponse:
        add_fields(run=request.run_id)
        response = judge_pb2.GradeResponse()
        grading = self._grading(request, remaining_s, compares=False)
        if request.validate_only:
            self.grader.check(grading)
            await self._account_for(grading, response)
            return response
        outcome = await (self.grader.preflight(grading) if request.preflight else self.grader.grade(grading))
        response.verdict.CopyFrom(verdict_message(outcome))
        await self._account_for(grading, response)
        return response

    def _grading(self, request: Any, remaining_s: float | None, *, compares: bool) -> Grading:
        settings = self.settings
        rubric = self.rubrics.find(request.rubric, request.rubric_yaml, compares=compares)
        judge = choose_judge(requested_judge(request, settings.judge), settings.judge, settings.permissions)
        batch = not compares and request.batch
        problems = judge.batch_problems(settings.batch_base_urls, "batch") if batch else []
        if problems:
            raise InvalidInputError(problems)
        # A batch takes hours: its deadline or timeout_ms replaces timeout_s.
        patient = batch and (remaining_s is not None or request.timeout_ms)
        timeout_s = math.inf if patient else settings.timeout_s
        if remaining_s is not None:
            timeout_s = min(timeout_s, remaining_s - _LEFT_FOR_THE_WAY_S)
            if timeout_s < _LEAST_S:
                raise UnavailableError(
                    "The deadline leaves too little time for a verdict: set a longer one.", reason="DEADLINE_EXCEEDED"
                )
        cap = None if settings.spend_cap_usd is None else nano_from_usd(settings.spend_cap_usd)
        return grading_from_request(request, rubric, judge, timeout_s=timeout_s, cap=cap)

    async def _account_for(self, grading: Grading, response: Any) -> None:
        response.cache.CopyFrom(cache_message(self.grader.statistics, self.store.verdict_count))
        if grading.run_id:
            account, close = await self.ledger.open(grading.scope, grading.run_id)
            try:
                await account.refresh()
                response.spending.CopyFrom(spending_message(account, grading.cap))
            finally:
                close()
