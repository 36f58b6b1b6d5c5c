"""The orchestrator's end of HostService: distributes a run's questions among the clients that answer them.

A question goes to the agent, or to metrics that are functions on the user's side.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, error_response
from assay.model.metric_call import MALFORMED, TIMEOUT, MetricOutcome
from assay.wire.agent import request_to_wire
from assay.wire.metric_call import metric_request_to_wire
from assay_orchestrator.agents.protocol import NotAskedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.case import Case
    from assay.model.metric_call import MetricRequest

_MAX_QUESTION_BYTES = 3_670_016
_MAX_BATCH = 64

HostedRequest: TypeAlias = "AgentRequest | MetricRequest"
HostedAnswer: TypeAlias = "AgentResponse | Mapping[str, MetricOutcome]"


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions for a client, to the agent and to metrics."""

    requests: list[HostedRequest]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Questions whose answers are no longer needed."""

    request_ids: list[str]


@dataclass(frozen=True, slots=True)
class Stored:
    """Questions, by idempotency key, whose answers a client need not keep any longer."""

    keys: list[str]


@dataclass(frozen=True, slots=True)
class Detached:
    """The run asks no more questions."""

    message: str


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A client that was suspended has received every cancellation up to now."""

    number: int


Outgoing: TypeAlias = Questions | Cancelled | Stored | Reconciled | Detached
"""A message to a client."""


@dataclass(slots=True, eq=False)
class _Question:
    request: HostedRequest
    answer: asyncio.Future[HostedAnswer]
    limit: asyncio.Timeout
    holder: Attachment | None = None
    is_waiting: bool = False


class HostedAgent:
    """Asks questions through the attached clients; without any, questions wait.

    A question in flight at a client that left is asked again under the same request id. If the same client gets it, it
    does not call its agent again: it keeps every answer until that is stored. The client enforces the time limit of an
    attempt; this end enforces it too, with a little grace.

    Args:
        grace_s: How much longer than its time limit to wait for an answer, in seconds.
    """

    def __init__(self, *, grace_s: float = 1.0) -> None:
        self.grace_s = grace_s
        self._waiting: deque[_Question] = deque()
        self._attachments: set[Attachment] = set()
        self._ended = ""
        self._held = False

    def attach(self, concurrency: int) -> Attachment:
        """Attach a client that answers up to `concurrency` questions at once."""
        attachment = Attachment(self, concurrency)
        self._attachments.add(attachment)
        if self._ended:
            attachment.detach(self._ended)
        self._spread()
        return attachment

    @property
    def is_attended(self) -> bool:
        """Whether a client is attached."""
        return bool(self._attachments)

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return a client's answer.

        Raises:
            NotAskedError: The run is being paused, and no client has the question.
        """
        if self._held:
            raise NotAskedError
        # A case fits in a message; the history of a long conversation may not.
        if request.history and request_to_wire(request).ByteSize() > _MAX_QUESTION_BYTES:
            message = f"question and history are larger than {_MAX_QUESTION_BYTES / 1024 / 1024:g} MiB: end it earlier"
            return error_response(AgentErrorKind.TOO_LARGE, message)
        try:
            answer = await self._ask(request)
        except TimeoutError:
            response = error_response(
                AgentErrorKind.TIMEOUT, f"no answer within {request.timeout_s:g} s", retryable=True
            )
            return dataclasses.replace(response, latency_ms=request.timeout_s * 1000)
        if not isinstance(answer, AgentResponse):
            return error_response(AgentErrorKind.MALFORMED, "the client sent metric values instead of an answer")
        return answer

    async def compute(self, request: MetricRequest) -> dict[str, MetricOutcome]:
        """Return the outcomes of a client's metric functions for an answer, by metric.

        Raises:
            NotAskedError: The run is being paused, and no client has the request.
        """
        if self._held:
            raise NotAskedError
        error, message = MALFORMED, "the client sent no value of this metric"
        outcomes: Mapping[str, MetricOutcome] = {}
        if metric_request_to_wire(request).ByteSize() > _MAX_QUESTION_BYTES:
            message = (
                f"case, history and answer are larger than {_MAX_QUESTION_BYTES / 1024 / 1024:g} MiB: shorten them"
            )
        else:
            try:
                answer = await self._ask(request)
                outcomes = {} if isinstance(answer, AgentResponse) else answer
            except TimeoutError:
                error, message = TIMEOUT, f"the client sent no value within {request.timeout_s:g} s"
        return {name: outcomes.get(name) or MetricOutcome(error=error, message=message) for name in request.metrics}

    async def _ask(self, request: HostedRequest) -> HostedAnswer:
        """Return a client's reply to a request.

        Raises:
            NotAskedError: The run is being paused, and no client has the request.
            TimeoutError: A client has had it for longer than its time limit.
        """
        limit = asyncio.timeout(None)
        question = _Question(request, asyncio.get_running_loop().create_future(), limit)
        try:
            async with limit:
                question.is_waiting = True
                self._waiting.append(question)
                self._spread()
                return await question.answer
        finally:
            self._forget(question)

    async def aclose(self) -> None:
        """Do nothing: clients are detached when the run ends."""

    def hold(self) -> None:
        """Give no more questions to clients; questions not yet at a client return unasked."""
        self._held = True
        while self._waiting:
            question = self._waiting.popleft()
            question.is_waiting = False
            if not question.answer.done():
                question.answer.set_exception(NotAskedError())

    def release(self) -> None:
        """Give questions to clients again."""
        self._held = False

    def detach_all(self, message: str) -> None:
        """Detach every client: the run asks no more questions."""
        self._ended = message
        for attachment in self._attachments:
            attachment.detach(message)

    def stored(self, keys: Sequence[str]) -> None:
        """Allow clients to drop their answers to some questions.

        Args:
            keys: Their idempotency keys.
        """
        for attachment in self._attachments:
            attachment.stored(keys)

    def leave(self, attachment: Attachment) -> None:
        """Take back the questions of a client that left, to ask them first elsewhere."""
        self._attachments.discard(attachment)
        for question in attachment.take_back():
            if not question.answer.done():
                question.is_waiting = True
                self._waiting.appendleft(question)
        if self._held:
            self.hold()
        self._spread()

    def _spread(self) -> None:
        free = [attachment for attachment in self._attachments if attachment.free > 0]
        while self._waiting and free:
            attachment = max(free, key=lambda candidate: candidate.free)
            question = self._waiting.popleft()
            question.is_waiting = False
            if question.answer.done():
                continue
            attachment.give(question)
            if attachment.free == 0:
                free.remove(attachment)

    def _forget(self, question: _Question) -> None:
        """Drop a question that is answered or no longer needed."""
        # Cancelling the waiting task has cancelled the future too, so its state does not show whether it was answered.
        if question.is_waiting:
            self._waiting.remove(question)
        elif question.holder is not None:
            question.holder.cancel(question.request.request_id)

    def answered(self) -> None:
        """Give waiting questions to free places."""
        self._spread()


class Attachment:
    """An attached client: its questions, and the messages on the way to it."""

    def __init__(self, agent: HostedAgent, concurrency: int) -> None:
        self._agent = agent
        self._concurrency = concurrency
        self._asked: dict[str, _Question] = {}
        self._outgoing: list[HostedRequest] = []
        self._cancelled: list[str] = []
        self._stored: list[str] = []
        self._suspension = 0
        self._detached: str | None = None
        self._moved = asyncio.Event()

    @property
    def free(self) -> int:
        """How many more questions the client accepts."""
        return 0 if self._detached is not None else self._concurrency - len(self._asked)

    def give(self, question: _Question) -> None:
        """Send the client a question."""
        # The time limit starts when a client gets the question, not while the question waits for a client.
        limit_s = question.request.timeout_s + self._agent.grace_s
        question.limit.reschedule(asyncio.get_running_loop().time() + limit_s)
        question.holder = self
        self._asked[question.request.request_id] = question
        self._outgoing.append(question.request)
        self._moved.set()

    def cancel(self, request_id: str) -> None:
        """Send the client the cancellation of a question."""
        question = self._asked.pop(request_id, None)
        if question is None:
            return  # already answered
        if question.request in self._outgoing:
            self._outgoing.remove(question.request)  # not sent yet
        else:
            self._cancelled.append(request_id)
        self._agent.answered()
        self._moved.set()

    def stored(self, keys: Sequence[str]) -> None:
        """Notify the client, in groups, that answers are stored."""
        self._stored += keys
        if len(self._stored) >= _MAX_BATCH:
            self._moved.set()

    def suspended(self, number: int) -> None:
        """Confirm a suspension of the client, after every cancellation up to now.

        Args:
            number: Counts the client's suspensions, from 1.
        """
        self._suspension = number
        self._moved.set()

    def detach(self, message: str) -> None:
        """Detach the client: the run asks no more questions."""
        self._detached = message
        self._moved.set()

    def deliver(self, answers: Iterable[tuple[str, HostedAnswer]]) -> None:
        """Accept the client's answers by request id; late and unknown answers are ignored."""
        for request_id, response in answers:
            question = self._asked.pop(request_id, None)
            if question is not None and not question.answer.done():
                question.answer.set_result(response)
        self._agent.answered()
        self._moved.set()

    def take_back(self) -> list[_Question]:
        """Return the questions that the client has not answered, latest first."""
        questions = list(reversed(self._asked.values()))
        for question in questions:
            if not question.answer.done():
                question.limit.reschedule(None)
            question.holder = None
        self._asked.clear()
        return questions

    async def _gathered(self) -> None:
        """Wait for questions that follow in the next rounds of the event loop: they travel in the same message.

        If many rows are due at once, each round has room for some of them. A lone question waits for one round.
        """
        seen = 0
        while seen < len(self._outgoing) < _MAX_BATCH:
            seen = len(self._outgoing)
            await asyncio.sleep(0)

    def close(self) -> None:
        """Close the attachment: the client has left."""
        self._agent.leave(self)

    async def outgoing(self, reading: asyncio.Future[None], stopping: asyncio.Event) -> AsyncIterator[Outgoing]:
        """Yield the messages to the client, until it leaves, the run ends or the process stops.

        A stopping process lets the client answer its questions: the drain has a deadline. Questions given up then are
        not cancelled: the next process asks them again, and gets the answers of calls in progress.

        Args:
            reading: Done when the client has closed its side.
            stopping: Set when the process begins to stop.
        """
        reading.add_done_callback(lambda _: self._moved.set())
        watch = asyncio.create_task(stopping.wait())
        watch.add_done_callback(lambda _: self._moved.set())
        try:
            while not reading.done():
                if stopping.is_set():
                    # Without confirmation of a suspension, the client starts no earlier question: it cannot know
                    # which are cancelled.
                    self._cancelled, self._suspension = [], 0
                if self._cancelled:
                    cancelled, self._cancelled = self._cancelled, []
                    yield Cancelled(cancelled)
                elif self._suspension:
                    number, self._suspension = self._suspension, 0
                    yield Reconciled(number)
                elif len(self._stored) >= _MAX_BATCH:
                    stored, self._stored = self._stored, []
                    yield Stored(stored)
                elif self._outgoing:
                    await self._gathered()
                    if self._cancelled or self._suspension or not self._outgoing:
                        continue  # cancellations are sent before new questions
                    batch, self._outgoing = self._outgoing[:_MAX_BATCH], self._outgoing[_MAX_BATCH:]
                    yield Questions(batch)
                elif self._detached is not None:
                    yield Detached(self._detached)
                    return
                elif stopping.is_set() and not self._asked:
                    return
                else:
                    self._moved.clear()
                    await self._moved.wait()
        finally:
            watch.cancel()
