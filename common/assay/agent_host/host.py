"""Holding a ServeAgent stream: the orchestrator asks, the user's code answers here, as agent and as metrics."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from assay.agent_host.answer_message import answer_to_wire
from assay.agent_host.suspension import Suspensions
from assay.errors import UnavailableError, WrongStateError
from assay.model.agent_response import AgentErrorKind, error_response
from assay.model.metric_call import MALFORMED, MetricOutcome
from assay.rpc.status import translated
from assay.runtime.failpoints import failpoint
from assay.v1 import agent_pb2, orchestrator_pb2_grpc
from assay.v1 import orchestrator_pb2 as pb
from assay.wire.agent import request_from_wire, response_to_wire, split_by_size
from assay.wire.metric_call import outcomes_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    import grpc

    from assay.agent_host.metric_functions import MetricFunctions
    from assay.agent_host.protocol import Caller

_LEAVING_S = 1.0
_MAX_BATCH = 64

_log = logging.getLogger(__name__)


async def host_agent(
    channel: grpc.aio.Channel,
    run_id: str,
    caller: Caller | None,
    *,
    concurrency: int,
    metrics: MetricFunctions | None = None,
    on_attached: Callable[[], None] = lambda: None,
) -> None:
    """Answer a run's questions until the run asks no more.

    A process that was suspended begins no question before the orchestrator has confirmed that it still waits for it.

    Args:
        channel: To the orchestrator.
        run_id: The run; one that has finished asks nothing.
        caller: The agent; None where the orchestrator asks it.
        concurrency: Most questions at once.
        metrics: The metrics of the run that are functions on this side; None where it has none.
        on_attached: Called once the orchestrator has taken the offer.

    Raises:
        UnavailableError: The connection was lost; attach again.
        AssayError: The orchestrator refused.
    """
    host = _Host(caller, metrics)
    stub = orchestrator_pb2_grpc.RunServiceStub(channel)
    call = stub.ServeAgent(host.outgoing(run_id, concurrency))
    watching = asyncio.create_task(host.suspensions.watch())
    try:
        with translated():
            async for message in call:
                if message.HasField("attached"):
                    on_attached()
                if not host.take(message):
                    return
        raise UnavailableError("the orchestrator ended the connection before the run was done")
    except WrongStateError as problem:
        if problem.reason != "RUN_FINISHED":
            raise
    finally:
        call.cancel()
        watching.cancel()
        await host.aclose()


class _Host:
    def __init__(self, caller: Caller | None, metrics: MetricFunctions | None) -> None:
        self._caller = caller
        self._metrics = metrics
        self.suspensions = Suspensions()
        self._reported = 0
        self._sent = 0
        self._reconciled = 0
        self._reconciliation = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._answers: list[agent_pb2.AgentResponse] = []
        self._outcomes: list[pb.MetricResponse] = []
        self._moved = asyncio.Event()
        self._closed = False

    def take(self, message: pb.ServeAgentResponse) -> bool:
        """Take a message of the orchestrator; False once it asks no more."""
        match message.WhichOneof("message"):
            case "requests":
                for request in message.requests.requests:
                    self._start(request.request_id, self._answer(request))
            case "metric_requests":
                for wanted in message.metric_requests.requests:
                    self._start(wanted.request_id, self._compute(wanted))
            case "cancelled":
                for request_id in message.cancelled.request_ids:
                    if (task := self._tasks.get(request_id)) is not None:
                        task.cancel()
            case "reconciled":
                self._reconciled = message.reconciled.number
                self._reconciliation.set()
            case "detached":
                return False
        return True

    async def outgoing(self, run_id: str, concurrency: int) -> AsyncIterator[pb.ServeAgentRequest]:
        """Yield the messages to the orchestrator."""
        attach = pb.AttachAgent(run_id=run_id, concurrency=concurrency, computes_metrics=self._metrics is not None)
        yield pb.ServeAgentRequest(attach=attach)
        while not self._closed:
            await self._moved.wait()
            self._moved.clear()
            if self._reported > self._sent:
                self._sent = self._reported
                yield pb.ServeAgentRequest(suspended=pb.HostSuspended(number=self._sent))
            await self._gathered()
            ready, self._answers = self._answers, []
            for batch in split_by_size(ready):
                yield pb.ServeAgentRequest(responses=pb.AgentResponses(responses=batch))
            computed, self._outcomes = self._outcomes, []
            for outcomes in split_by_size(computed):
                yield pb.ServeAgentRequest(metric_responses=pb.MetricResponses(responses=outcomes))

    async def _gathered(self) -> None:
        """Wait for the answers that follow in the next rounds of the event loop: they travel in the same message.

        An answer to one question alone waits for one round.
        """
        seen = 0
        while seen < (count := len(self._answers) + len(self._outcomes)) < _MAX_BATCH:
            seen = count
            await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Stop calling; an agent that does not let itself be cancelled is left behind."""
        self._closed = True
        self._moved.set()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LEAVING_S)
        for code in (self._caller, self._metrics):
            if code is not None:
                await code.aclose()

    def _start(self, request_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[request_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(request_id, None))

    async def _answer(self, request: agent_pb2.AgentRequest) -> None:
        failpoint("host.question_received")
        await self._until_reconciled()
        failpoint("host.before_call")
        try:
            assert self._caller is not None, "the orchestrator asks a client only where the agent is on its side"
            message = answer_to_wire(await self._caller.call(request_from_wire(request)))
        except Exception as problem:  # noqa: BLE001 - the boundary of a case: it alone fails
            _log.exception("answering a question failed: request=%s", request.request_id)
            message = response_to_wire(error_response(AgentErrorKind.RAISED, f"internal error: {problem!r}"))
        message.request_id = request.request_id
        failpoint("host.answer_ready")
        self._answers.append(message)
        self._moved.set()

    async def _compute(self, request: pb.MetricRequest) -> None:
        failpoint("host.question_received")
        await self._until_reconciled()
        failpoint("host.before_call")
        assert self._metrics is not None, "the orchestrator sends requests for metrics only to clients that have some"
        try:
            message = outcomes_to_wire(request.request_id, await self._metrics.compute(request))
        except Exception as problem:  # noqa: BLE001 - the boundary of a case: it alone fails
            _log.exception("computing metrics failed: request=%s", request.request_id)
            failed = MetricOutcome(error=MALFORMED, message=f"internal error: {type(problem).__name__}")
            message = outcomes_to_wire(request.request_id, dict.fromkeys(request.metrics, failed))
        failpoint("host.answer_ready")
        self._outcomes.append(message)
        self._moved.set()

    async def _until_reconciled(self) -> None:
        """Wait, where this process was suspended, until the questions that are over have been cancelled."""
        while (count := self.suspensions.check()) > self._reconciled:
            if count > self._reported:
                _log.info("process was suspended, asking the orchestrator which questions are still open")
                self._reported = count
                self._moved.set()
            self._reconciliation.clear()
            await self._reconciliation.wait()
