"""Commands that answer one question per process: the question is on stdin, and stdout is the answer."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING

from assay.agent_host.command.launcher import NotStartedError
from assay.agent_host.command.messages import MAX_OUTPUT_BYTES, answer_from, object_from, question_line
from assay.agent_host.command.process import AgentProcess
from assay.model.answers.agent_response import AgentErrorKind, MalformedAnswerError

if TYPE_CHECKING:
    from assay.agent_host.command.launcher import Launcher
    from assay.model.answers.agent_response import AgentRequest, AgentResponse


class PerQuestionCaller:
    """Starts a process for each question; the duration includes the start.

    Args:
        launcher: Starts the processes.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    async def call(self, request: AgentRequest) -> AgentResponse:
        """Return the answer of a new process, with its duration; raises only when cancelled."""
        question = _Question(self._launcher, request)
        start = time.perf_counter()
        try:
            async with asyncio.timeout(request.timeout_s):
                response = await question.answer()
        except NotStartedError as problem:
            return problem.response
        except TimeoutError:
            message = f"no answer within {request.timeout_s:g} s"
            response = self._launcher.failure(AgentErrorKind.TIMEOUT, message, question.process, retryable=True)
        finally:
            question.close()
        return dataclasses.replace(response, latency_ms=(time.perf_counter() - start) * 1000, cold=True)

    async def aclose(self) -> None:
        """End the processes that still run."""
        await self._launcher.aclose()


class _Question:
    """A process and its question."""

    def __init__(self, launcher: Launcher, request: AgentRequest) -> None:
        self._launcher = launcher
        self._request = request
        self._output = bytearray()
        self._is_over = asyncio.Event()
        self._has_ended = False
        self.process = AgentProcess(self, launcher.guard)

    async def answer(self) -> AgentResponse:
        traceparent = self._request.traceparent
        await self._launcher.start(self.process, **({"TRACEPARENT": traceparent} if traceparent else {}))
        self.process.write(question_line(self._request))
        self.process.close_stdin()
        await self._is_over.wait()
        response = self._read()
        if response.error is None:
            self._launcher.note_answer()
        else:
            self._launcher.note_fruitless(response.error.message)
        return response

    def close(self) -> None:
        """Begin to end the process if it runs."""
        if not self._has_ended:
            self._launcher.stop(self.process)

    def take_output(self, data: bytes) -> None:
        if len(self._output) <= MAX_OUTPUT_BYTES:
            self._output += data
        if len(self._output) > MAX_OUTPUT_BYTES:
            self._is_over.set()

    def take_closed(self, name: str) -> None:
        """Do nothing: the process may still end properly."""

    def take_end(self) -> None:
        self._has_ended = True
        self._launcher.note_end(self.process)
        self._is_over.set()

    def _read(self) -> AgentResponse:
        failure, process = self._launcher.failure, self.process
        if len(self._output) > MAX_OUTPUT_BYTES:
            message = f"its stdout is longer than {MAX_OUTPUT_BYTES // 1024**2} MiB"
            return failure(AgentErrorKind.TOO_LARGE, message, process)
        if process.status != 0:
            return failure(AgentErrorKind.UNREACHABLE, f"the command ended {process.ending}", process, retryable=True)
        if not self._output.strip():
            return failure(AgentErrorKind.MALFORMED, "the command ended and wrote no answer to its stdout", process)
        try:
            data = object_from(bytes(self._output), "its stdout")
            request_id = data.get("request_id", self._request.request_id)
            if request_id != self._request.request_id:
                raise MalformedAnswerError(f"its stdout answers {str(request_id)[:100]!r}, not this question")
        except MalformedAnswerError as problem:
            return failure(AgentErrorKind.MALFORMED, str(problem), process)
        return answer_from(data, self._launcher.failures)
