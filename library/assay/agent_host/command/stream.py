"""Commands whose processes answer questions line by line, in any order."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING

from assay.agent_host.command.launcher import NotStartedError
from assay.agent_host.command.messages import Lines, answer_from, object_from, question_line
from assay.agent_host.command.process import STOP_S, AgentProcess
from assay.model.answers.agent_response import AgentErrorKind, MalformedAnswerError, error_response
from assay.model.answers.response_limits import AnswerTooLargeError

if TYPE_CHECKING:
    from assay.agent_host.command.launcher import Launcher
    from assay.model.answers.agent_response import AgentRequest, AgentResponse

_LEAVING_S = 1.0
_MAX_ODD_LINES = 1_000
_MAX_SETTLED = 10_000


class StreamCaller:
    """Distributes questions over the processes of a command; a process that ended is replaced on demand.

    Args:
        launcher: Starts the processes.
        processes: Maximum number of processes.
    """

    def __init__(self, launcher: Launcher, processes: int) -> None:
        self._launcher = launcher
        self._places = [_Place(launcher) for _ in range(processes)]

    async def call(self, request: AgentRequest) -> AgentResponse:
        """Return the answer of a process, with its duration; raises only when cancelled."""
        place = min(self._places, key=lambda candidate: candidate.load)
        return await place.ask(request)

    async def aclose(self) -> None:
        """Close the processes' input and end those that keep running; a later call starts new ones."""
        await asyncio.gather(*(place.aclose() for place in self._places))
        await self._launcher.aclose()


class _Place:
    """A place for consecutive processes."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._starting = asyncio.Lock()
        self._session: _Session | None = None
        self.load = 0

    async def ask(self, request: AgentRequest) -> AgentResponse:
        self.load += 1
        deadline = asyncio.get_running_loop().time() + request.timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                session = await self._living_session()
            return await session.ask(request, deadline)
        except NotStartedError as problem:
            return problem.response
        except TimeoutError:
            return error_response(AgentErrorKind.TIMEOUT, _late(request), retryable=True)
        finally:
            self.load -= 1

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.aclose()

    async def _living_session(self) -> _Session:
        async with self._starting:
            if self._session is None or self._session.is_over:
                if self._session is not None:
                    # Its process may still be ending: there are never more processes than places.
                    await self._session.process.wait(STOP_S)
                session = _Session(self._launcher)
                await self._launcher.start(session.process)
                self._session = session
            return self._session


class _Session:
    """A process and its questions in flight."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._lines = Lines()
        self._line_count = 0
        self._asked: dict[str, asyncio.Future[AgentResponse]] = {}
        self._settled: dict[str, None] = {}
        self._odd_count = 0
        self._odd: AgentResponse | None = None
        self._has_answered = False
        self._is_cold = True
        self.process = AgentProcess(self, launcher.guard)
        self.is_over = False

    async def ask(self, request: AgentRequest, deadline: float) -> AgentResponse:
        if self._odd is not None:
            # An unsolicited line would be taken for the answer to the next question, whenever it arrives.
            odd, self._odd = self._odd, None
            return odd
        if self.is_over:
            return self._ended()
        is_cold, self._is_cold = self._is_cold, False
        answer: asyncio.Future[AgentResponse] = asyncio.get_running_loop().create_future()
        self._settled.pop(request.request_id, None)  # asked again: its answer is no duplicate
        self._asked[request.request_id] = answer
        start = time.perf_counter()
        self.process.write(question_line(request))
        try:
            async with asyncio.timeout_at(deadline):
                response = await answer
        except TimeoutError:
            # Removed first: it fails as late, the others because their process is ended.
            self._asked.pop(request.request_id, None)
            self._stop(_unreachable("another question of its process reached its deadline, and the process was ended"))
            response = self._launcher.failure(AgentErrorKind.TIMEOUT, _late(request), self.process, retryable=True)
        except asyncio.CancelledError:
            self._give_up(request.request_id)
            if not self._asked:
                self._stop(_unreachable("its process was ended"))  # or it would block the next question
            raise
        latency_ms = (time.perf_counter() - start) * 1000
        return dataclasses.replace(response, latency_ms=latency_ms, cold=is_cold or response.cold)

    async def aclose(self) -> None:
        self.is_over = True
        self.process.close_stdin()
        await self.process.wait(_LEAVING_S)
        await self.process.stop()

    def take_output(self, data: bytes) -> None:
        try:
            for line in self._lines.take(data):
                if self.is_over:
                    return
                self._take_line(line)
        except AnswerTooLargeError as problem:
            self._stop_for(self._launcher.failure(AgentErrorKind.TOO_LARGE, str(problem), self.process))

    def take_closed(self, name: str) -> None:
        message = f"the command closed its {name}, and its process was ended"
        self._stop_for(self._launcher.failure(AgentErrorKind.UNREACHABLE, message, self.process, retryable=True))

    def take_end(self) -> None:
        if not self.is_over and (line := self._lines.rest()) and _is_whole(line):
            self._take_line(line)
        self._launcher.note_end(self.process)
        if not self.is_over:
            self._end(self._ended())

    def _take_line(self, line: bytes) -> None:
        self._line_count += 1
        if not line.strip():
            return
        where = f"line {self._line_count} of its stdout"
        try:
            data = object_from(line, where)
            request_id = data.get("request_id")
            if not isinstance(request_id, str):
                raise MalformedAnswerError(f"{where} has no request_id: repeat the one of its question")
            if request_id in self._settled:
                return  # it timed out or was already answered
            if request_id not in self._asked:
                raise MalformedAnswerError(f"{where} answers {request_id[:100]!r}, which is not a question in flight")
        except MalformedAnswerError as problem:
            self._take_odd(str(problem))
            return
        self._has_answered, self._odd_count = True, 0
        self._launcher.note_answer()
        self._settle(request_id, answer_from(data, self._launcher.failures))
        self._ignore(request_id)

    def _take_odd(self, problem: str) -> None:
        """Handle a line that answers no question: all in flight fail, since it may have been meant for any of them."""
        self._odd_count += 1
        response = self._launcher.failure(AgentErrorKind.MALFORMED, problem, self.process)
        if self._odd_count > _MAX_ODD_LINES:
            self._stop_for(response)
        elif not self._asked:
            self._odd = self._odd or response
        for request_id in list(self._asked):
            self._settle(request_id, response)
            self._give_up(request_id)

    def _give_up(self, request_id: str) -> None:
        """Ignore an answer to a question that may still arrive."""
        self._asked.pop(request_id, None)
        self._ignore(request_id)

    def _ignore(self, request_id: str) -> None:
        """Ignore further answers to a question: a duplicate does not belong to another question."""
        self._settled[request_id] = None
        if len(self._settled) > _MAX_SETTLED:
            del self._settled[next(iter(self._settled))]

    def _settle(self, request_id: str, response: AgentResponse) -> None:
        answer = self._asked.pop(request_id)
        if not answer.done():
            answer.set_result(response)

    def _stop_for(self, response: AgentResponse) -> None:
        """End the process because of its own misbehaviour."""
        if not self.is_over:
            self._end(response)
            self._launcher.stop(self.process)

    def _stop(self, response: AgentResponse) -> None:
        """End the process through no fault of its own; its questions fail."""
        if not self.is_over:
            self.is_over = True
            self._fail(response)
            self._launcher.stop(self.process)

    def _end(self, response: AgentResponse) -> None:
        """Record that the process answers no more, with the reason."""
        self.is_over = True
        if not self._has_answered:
            self._launcher.note_fruitless(_said(response))
        self._fail(response)

    def _fail(self, response: AgentResponse) -> None:
        for request_id in list(self._asked):
            self._settle(request_id, response)

    def _ended(self) -> AgentResponse:
        message = f"the command ended {self.process.ending} before it answered"
        return self._launcher.failure(AgentErrorKind.UNREACHABLE, message, self.process, retryable=True)


def _is_whole(line: bytes) -> bool:
    """Whether an unterminated line is an object; a process that died while writing leaves half of one."""
    try:
        object_from(line, "the last line")
    except MalformedAnswerError:
        return False
    return True


def _late(request: AgentRequest) -> str:
    return f"no answer within {request.timeout_s:g} s"


def _unreachable(message: str) -> AgentResponse:
    return error_response(AgentErrorKind.UNREACHABLE, message, retryable=True)


def _said(response: AgentResponse) -> str:
    return response.error.message if response.error is not None else ""
