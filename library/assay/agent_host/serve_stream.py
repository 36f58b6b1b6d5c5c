"""Serving a stream of HostService: the user's code answers the orchestrator's requests, as agent and as metrics."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from assay.agent.v1 import agent_pb2
from assay.agent_host.answers.answer_message import answer_to_wire
from assay.agent_host.concurrency.suspension import Suspensions
from assay.errors import UnavailableError, WrongStateError
from assay.model.answers.agent_response import AgentErrorKind, error_response
from assay.model.metric_call import MALFORMED, MetricOutcome
from assay.process.failpoints import failpoint
from assay.rpc.status import translated
from assay.v1 import host_pb2 as pb
from assay.v1 import host_pb2_grpc
from assay.wire.agent import request_from_wire, response_to_wire, split_by_size
from assay.wire.metric_call import outcomes_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    import grpc

    from assay.agent_host.protocol import Caller, MetricCaller

    Answer: TypeAlias = agent_pb2.AgentResponse | pb.MetricResponse

_LEAVING_S = 1.0
_MAX_BATCH = 64
_MAX_BYTES = 256 * 1024 * 1024
_Request = TypeVar("_Request", agent_pb2.AgentRequest, pb.MetricRequest)

_log = logging.getLogger(__name__)


class KeptAnswers:
    """Answers by the idempotency key of their question and the id of the request.

    A key has several answers after failed attempts, and if metrics of its row were computed. All are dropped once the
    orchestrator reports that it has stored their results.

    Args:
        max_bytes: Maximum total size; beyond it the oldest are dropped.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._answers: dict[str, dict[str, Answer]] = {}
        self._byte_count = 0

    def keep(self, key: str, answer: Answer) -> None:
        """Store the answer to a question."""
        answers = self._answers.setdefault(key, {})
        if (before := answers.get(answer.request_id)) is not None:
            self._byte_count -= before.ByteSize()
        answers[answer.request_id] = answer
        self._byte_count += answer.ByteSize()
        while self._byte_count > self._max_bytes:
            self.drop([next(iter(self._answers))])

    def find(self, key: str, request_id: str) -> Answer | None:
        """Return the answer to a request; None if there is none."""
        return self._answers.get(key, {}).get(request_id)

    def drop(self, keys: Iterable[str]) -> None:
        """Drop all answers to some questions."""
        for key in keys:
            self._byte_count -= sum(answer.ByteSize() for answer in self._answers.pop(key, {}).values())


class AgentHost:
    """Answers a run's questions with the user's code, over consecutive streams.

    A stream ends when the orchestrator is killed or unreachable. Calls continue meanwhile, and answers are kept until
    they are stored, so that a question which the next orchestrator repeats is not paid for twice.

    Args:
        run_id: The run; a finished run asks nothing.
        caller: The agent; None if the orchestrator asks it.
        concurrency: Maximum number of concurrent questions.
        metrics: The run's metrics that are functions on this side; None if it has none.
    """

    def __init__(
        self, run_id: str, caller: Caller | None, *, concurrency: int, metrics: MetricCaller | None = None
    ) -> None:
        self._caller = caller
        self._metrics = metrics
        self._attach = pb.AttachAgent(run_id=run_id, concurrency=concurrency, computes_metrics=metrics is not None)
        self._stream = _Stream()
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._kept = KeptAnswers()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, channel: grpc.aio.Channel, on_attached: Callable[[], None] = lambda: None) -> None:
        """Answer a stream's questions until the run asks no more.

        After a suspension, this process begins no question until the orchestrator has confirmed that it still waits for
        it.

        Args:
            channel: The channel to the orchestrator.
            on_attached: Called once the orchestrator has accepted this host.

        Raises:
            UnavailableError: The connection was lost; serve again.
            AssayError: The orchestrator refused this host.
        """
        self._stream = stream = _Stream()
        call = host_pb2_grpc.HostServiceStub(channel).Host(stream.outgoing(self._attach))
        watching = asyncio.create_task(stream.suspensions.watch())
        try:
            with translated():
                async for message in call:
                    if message.HasField("attached"):
                        on_attached()
                    if not self._take(stream, message):
                        return
            raise UnavailableError("the orchestrator ended the connection before the run was done")
        except WrongStateError as problem:
            if problem.reason != "RUN_ENDED":
                raise
        finally:
            call.cancel()
            watching.cancel()
            stream.close()
            # They wait for this stream, from which nothing more comes; the next stream asks for them again.
            for request_id in stream.unbegun:
                self._cancel(request_id)

    async def aclose(self) -> None:
        """Stop calling; an agent that resists cancellation is abandoned."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LEAVING_S)
        for code in (self._caller, self._metrics):
            if code is not None:
                await code.aclose()

    def _take(self, stream: _Stream, message: pb.HostResponse) -> bool:
        """Handle a message of the orchestrator; return False once it asks no more."""
        match message.WhichOneof("message"):
            case "requests":
                for request in message.requests.requests:
                    self._asked(stream, request.idempotency_key, request.request_id, self._answer, request)
            case "metric_requests":
                for asked in message.metric_requests.requests:
                    self._asked(stream, asked.question.idempotency_key, asked.request_id, self._compute, asked)
            case "cancelled":
                for request_id in message.cancelled.request_ids:
                    self._cancel(request_id)
            case "stored":
                self._kept.drop(message.stored.idempotency_keys)
            case "reconciled":
                stream.reconcile(message.reconciled.number)
            case "detached":
                return False
        return True

    def _asked(
        self,
        stream: _Stream,
        key: str,
        request_id: str,
        work: Callable[[_Request], Coroutine[Any, Any, Answer]],
        request: _Request,
    ) -> None:
        """Answer a request, unless it is already answered or its call is still running."""
        stream.open.add(request_id)
        kept = self._kept.find(key, request_id)
        if kept is not None:
            stream.send(kept)
        elif request_id not in self._calls:
            stream.unbegun.add(request_id)
            task = asyncio.create_task(self._call(stream, key, request_id, work, request))
            self._calls[request_id] = task
            self._tasks.add(task)
            task.add_done_callback(lambda _: self._ended(request_id, task))

    def _ended(self, request_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._calls.get(request_id) is task:
            del self._calls[request_id]

    def _cancel(self, request_id: str) -> None:
        # An agent may take time to end; from now on the same request is another call.
        if (task := self._calls.pop(request_id, None)) is not None:
            task.cancel()

    async def _call(
        self,
        stream: _Stream,
        key: str,
        request_id: str,
        work: Callable[[_Request], Coroutine[Any, Any, Answer]],
        request: _Request,
    ) -> None:
        failpoint("host.question_received")
        await stream.until_reconciled()
        failpoint("host.before_call")
        stream.unbegun.discard(request_id)
        answer = await work(request)
        answer.request_id = request_id
        failpoint("host.answer_ready")
        # Kept before it is sent, since the stream may break meanwhile. The current stream may be a later one than the
        # stream that asked.
        self._kept.keep(key, answer)
        self._stream.send(answer)

    async def _answer(self, request: agent_pb2.AgentRequest) -> agent_pb2.AgentResponse:
        try:
            assert self._caller is not None, "the orchestrator asks a client only where the agent is on its side"
            return answer_to_wire(await self._caller.call(request_from_wire(request)))
        except Exception as problem:  # noqa: BLE001 - the boundary of a case: it alone fails
            _log.exception("answering a question failed: request=%s", request.request_id)
            return response_to_wire(error_response(AgentErrorKind.RAISED, f"internal error: {problem!r}"))

    async def _compute(self, request: pb.MetricRequest) -> pb.MetricResponse:
        assert self._metrics is not None, "the orchestrator sends requests for metrics only to clients that have some"
        try:
            return outcomes_to_wire(request.request_id, await self._metrics.compute(request))
        except Exception as problem:  # noqa: BLE001 - the boundary of a case: it alone fails
            _log.exception("computing metrics failed: request=%s", request.request_id)
            failed = MetricOutcome(error=MALFORMED, message=f"internal error: {type(problem).__name__}")
            return outcomes_to_wire(request.request_id, dict.fromkeys(request.metrics, failed))


class _Stream:
    """A stream of HostService: its requests and the messages to send.

    Attributes:
        suspensions: The suspensions of this process since the stream began.
        open: Ids of the stream's unanswered requests.
        unbegun: Ids of requests whose user code has not been called yet.
    """

    def __init__(self) -> None:
        self.suspensions = Suspensions()
        self.open: set[str] = set()
        self.unbegun: set[str] = set()
        self._reported = 0
        self._sent = 0
        self._reconciled = 0
        self._reconciliation = asyncio.Event()
        self._answers: list[agent_pb2.AgentResponse] = []
        self._outcomes: list[pb.MetricResponse] = []
        self._moved = asyncio.Event()
        self._closed = False

    def send(self, answer: Answer) -> None:
        """Send the answer to a request of this stream; keep any other for the stream that requests it."""
        if answer.request_id not in self.open:
            return
        self.open.discard(answer.request_id)
        if isinstance(answer, pb.MetricResponse):
            self._outcomes.append(answer)
        else:
            self._answers.append(answer)
        self._moved.set()

    def reconcile(self, number: int) -> None:
        """Begin the requests that waited for the orchestrator to confirm a suspension."""
        self._reconciled = number
        self._reconciliation.set()

    def close(self) -> None:
        """Stop sending."""
        self._closed = True
        self._moved.set()

    async def outgoing(self, attach: pb.AttachAgent) -> AsyncIterator[pb.HostRequest]:
        """Yield the messages for the orchestrator."""
        yield pb.HostRequest(attach=attach)
        while not self._closed:
            await self._moved.wait()
            self._moved.clear()
            if self._reported > self._sent:
                self._sent = self._reported
                yield pb.HostRequest(suspended=pb.HostSuspended(number=self._sent))
            await self._gathered()
            ready, self._answers = self._answers, []
            for batch in split_by_size(ready):
                yield pb.HostRequest(responses=pb.AgentResponses(responses=batch))
            computed, self._outcomes = self._outcomes, []
            for outcomes in split_by_size(computed):
                yield pb.HostRequest(metric_responses=pb.MetricResponses(responses=outcomes))

    async def _gathered(self) -> None:
        """Wait for answers in the next rounds of the event loop, which are sent in the same message.

        The only answer in flight waits for a single round.
        """
        seen = 0
        while seen < (count := len(self._answers) + len(self._outcomes)) < _MAX_BATCH:
            seen = count
            await asyncio.sleep(0)

    async def until_reconciled(self) -> None:
        """After a suspension of this process, wait until obsolete questions have been cancelled."""
        # Checked again after each wait: the process may have been suspended again.
        while (count := self.suspensions.check()) > self._reconciled:
            if count > self._reported:
                _log.info("process was suspended, asking the orchestrator which questions are still open")
                self._reported = count
                self._moved.set()
            self._reconciliation.clear()
            await self._reconciliation.wait()
