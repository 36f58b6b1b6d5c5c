"""Retries: repeats attempts that failed for a reason that may pass, and records each."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
from typing import TYPE_CHECKING

from assay.model.answers.agent_response import AgentErrorKind, Attempt, error_response
from assay.model.answers.answer_thoughts import with_thoughts_apart
from assay.telemetry.tracing import span, traceparent
from assay_orchestrator.agents.protocol import NotAskedError, WaitingAgent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.model.answers.agent_response import AgentRequest, AgentResponse
    from assay.model.case import Case
    from assay_orchestrator.agents.dry_run import DryRun
    from assay_orchestrator.agents.protocol import Agent

_BASE_S = 0.25
_CAP_S = 10.0
_ASKED_CAP_S = 60.0

_log = logging.getLogger(__name__)


def is_retry(request: AgentRequest) -> bool:
    """Return whether an earlier attempt at this question may have reached the agent."""
    return request.request_id != f"{request.idempotency_key}#0"


class RetryingAgent:
    """Asks again after retryable errors, with exponential backoff and full jitter.

    The wait that a server requests is added, up to a minute. Every attempt has its own request id and the same
    idempotency key. The answer's latency is that of its own attempt; earlier attempts are in `attempts`. A defect in an
    adapter fails only its own case.

    Args:
        agent: The agent.
        retries: Further attempts, 0 to 10.
        pausing: Set when no more questions may be asked: a question whose attempt failed is then given up unanswered.
        sleep: Waits some seconds; None to wait until then or until `pausing`.
        jitter: Returns a number in [0, 1).
        marks_cold: Whether the first attempt is the agent's first call; False if it is hosted or recorded.
        dry_run: Checks the first reply before others are asked; None if no reply is mapped.
    """

    def __init__(
        self,
        agent: Agent,
        retries: int,
        *,
        pausing: asyncio.Event | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        jitter: Callable[[], float] = random.random,
        marks_cold: bool = False,
        dry_run: DryRun | None = None,
    ) -> None:
        self._agent = agent
        self._waiting = agent if isinstance(agent, WaitingAgent) else None  # a slow check, done once
        self._retries = retries
        self._pausing = pausing if pausing is not None else asyncio.Event()
        self._sleep = sleep if sleep is not None else self._wait
        self._jitter = jitter
        self._is_cold = marks_cold
        self._dry_run = dry_run

    async def answer(
        self, request: AgentRequest, case: Case, before: Callable[[], Awaitable[None]] | None = None
    ) -> AgentResponse:
        """Return the first good answer, or the last failure.

        Args:
            request: The question.
            case: Its case.
            before: Called before each attempt, and again after a wait; an exception from it ends the question.

        Raises:
            NotAskedError: No more questions may be asked.
            UnmappedAgentError: The first reply shows that the spec is wrong.
        """
        failed: list[Attempt] = []
        while True:
            response = await self._checked_attempt(request, case, before)
            error = response.error
            if error is None or not error.retryable or len(failed) >= self._retries:
                return dataclasses.replace(response, attempts=tuple(failed)) if failed else response
            asked_s = min(_ASKED_CAP_S, max(0.0, error.retry_after_s or 0.0))
            await self._sleep(asked_s + self._jitter() * min(_CAP_S, _BASE_S * 2 ** len(failed)))
            if self._pausing.is_set():
                raise NotAskedError
            failed.append(Attempt(response.latency_ms or 0.0, error))
            request = dataclasses.replace(request, request_id=f"{request.idempotency_key}#{len(failed)}")

    async def aclose(self) -> None:
        """Close the agent."""
        await self._agent.aclose()

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._pausing.wait()

    async def _traced_attempt(self, request: AgentRequest, case: Case, recheck: _Recheck | None) -> AgentResponse:
        """Return the answer of one attempt, in a span that is the parent of the agent's own spans."""
        with span("agent call", kind="client") as recorded:
            if (parent := traceparent()) != request.traceparent:
                request = dataclasses.replace(request, traceparent=parent)
            if recheck is not None and self._waiting is not None:
                response = await self._waiting.answer_after_waiting(request, case, recheck)
            else:
                response = await self._agent.answer(request, case)
            response = with_thoughts_apart(response)
            if response.is_failed:
                recorded.fail(response.status.value if response.error is None else response.error.kind.value)
            return response

    async def _checked_attempt(
        self, request: AgentRequest, case: Case, before: Callable[[], Awaitable[None]] | None
    ) -> AgentResponse:
        if self._dry_run is None:
            return await self._attempt(request, case, before)
        async with self._dry_run.turn() as has_waited:
            if has_waited and self._pausing.is_set():
                raise NotAskedError
            return self._dry_run.check(await self._attempt(request, case, before))

    async def _attempt(
        self, request: AgentRequest, case: Case, before: Callable[[], Awaitable[None]] | None
    ) -> AgentResponse:
        if before is not None:  # after a wait, during which the shard may have gone to another worker
            await before()
        recheck = _Recheck(before) if before is not None else None
        is_cold, self._is_cold = self._is_cold, False
        try:
            response = await self._traced_attempt(request, case, recheck)
            return dataclasses.replace(response, cold=True) if is_cold else response
        except NotAskedError:
            raise
        except Exception as problem:  # the boundary of a case
            if recheck is not None and recheck.is_failing:
                raise
            _log.exception("asking the agent failed: case=%s", case.case_id)
            # The exception's text may contain anything, even a key: it stays in this process.
            return error_response(
                AgentErrorKind.RAISED, f"internal error while the agent was asked ({type(problem).__name__})"
            )


class _Recheck:
    """`before`, called again by the agent: its exceptions are not defects of the adapter."""

    def __init__(self, before: Callable[[], Awaitable[None]]) -> None:
        self._before = before
        self.is_failing = False

    async def __call__(self) -> None:
        self.is_failing = True
        await self._before()
        self.is_failing = False
