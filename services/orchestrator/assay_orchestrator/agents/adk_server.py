"""The adk adapter for URLs: an agent behind `adk api_server`, or a server with the same API."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx2

from assay.agent_host.failures import Failures, TooManyStopsError, UnusableDecisionError
from assay.agent_host.frameworks.answers import interrupted
from assay.agent_host.frameworks.approvals import run_to_end
from assay.errors import Problem
from assay.model.answers.adk_events import next_message
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, MalformedAnswerError, error_response
from assay.model.answers.approvals import ScriptedApprovals
from assay.model.answers.response_limits import AnswerTooLargeError
from assay.specs.server_options import AdkServerOptions
from assay_orchestrator.agents.adk_events import response_from_events, stops_of, trace_of, whole_events
from assay_orchestrator.agents.http_connection import FailedRequestError, HttpConnection
from assay_orchestrator.agents.retrying import is_retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from assay.model.answers.adk_events import Stop
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.answers.approvals import Decision
    from assay.model.answers.interrupts import Interrupt
    from assay.model.case import Case
    from assay.model.run import AgentSpec
    from assay_orchestrator.agents.access import AgentAccess

PREFLIGHT_TIMEOUT_S = 10.0
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_ROLES = {"user": "user", "assistant": "model"}
_CONFLICT, _NOT_FOUND = 409, 404


class AdkServerAgent:
    """One attempt is one call of /run in a session created for it; the latency excludes creating the session.

    A single question gets a fresh session per attempt. The turns of a conversation share one, whose id is derived from
    the row, so that a run that resumes elsewhere uses it again.

    Args:
        settings: Checked settings; headers and URL may name variables and secrets.
        access: What may be called and named.

    Raises:
        InvalidInputError: The host is not allowed, or a variable or secret is missing or not allowed.
    """

    def __init__(self, settings: AgentSpec, access: AgentAccess) -> None:
        problems: list[Problem] = []
        self._options = AdkServerOptions.from_options(settings.options, problems)
        self._connection = HttpConnection(settings, access, problems, headers=self._options.headers)

    @property
    def _base(self) -> str:
        return self._connection.url.rstrip("/")

    @property
    def _sessions(self) -> str:
        return f"{self._base}/apps/{self._options.app_name}/users/{self._options.user_id}/sessions"

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer to a question."""
        if unknown := [message.role for message in request.history if message.role not in _ROLES]:
            refusal = f"a message before the question has the role {unknown[0][:40]!r}, which a session cannot have"
            return error_response(AgentErrorKind.RAISED, refusal, type="history")
        is_conversation = len(case.turns) > 1
        session_id = _NOT_IN_IDS.sub("-", request.session_id if is_conversation else request.request_id)

        async def prepare() -> None:
            # After a failed attempt, the session may contain the question, and an answer to it.
            if request.turn_index == 0 or is_retry(request):
                await self._create(session_id, request)

        invocation = _Invocation(lambda parts: self._run(session_id, parts))
        approvals = ScriptedApprovals(request.approvals)

        async def ask(request: AgentRequest) -> None:
            def waiting(stops: Sequence[Stop]) -> list[Interrupt]:
                return [stop.interrupt for stop in stops]

            try:
                await run_to_end(lambda: invocation.ask(request.input), invocation.resume, waiting, approvals)
            except (TooManyStopsError, UnusableDecisionError) as problem:
                raise FailedRequestError(Failures().of(problem)) from None

        async def read(_: None, __: AgentRequest) -> AgentResponse:
            return invocation.trace() if approvals.is_waiting else invocation.response()

        response = await self._connection.attempt(request, ask, read, prepare)
        if approvals.is_waiting and response.error is None:
            return interrupted(response, approvals.interrupts)
        if response.error is not None and response.tool_calls is None and invocation.events:
            with suppress(MalformedAnswerError, AnswerTooLargeError):  # then the partial reply is what cannot be read
                trace = invocation.trace()
                response = dataclasses.replace(
                    trace, status=response.status, error=response.error, latency_ms=response.latency_ms
                )
        return dataclasses.replace(response, interrupts=approvals.interrupts)

    async def problems(self) -> list[Problem]:
        """Return why the server will not answer: it cannot be reached, or lacks the app."""
        name = self._options.app_name
        try:
            async with asyncio.timeout(PREFLIGHT_TIMEOUT_S):
                apps = await self._connection.json("GET", f"{self._base}/list-apps")
        except FailedRequestError as failure:
            error = failure.response.error
            if error is not None and error.http_status == _NOT_FOUND:
                return []  # a gateway that passes only sessions and runs
            problem_text = f"the server at {self._base} does not list its apps: {failure}"
        except (MalformedAnswerError, AnswerTooLargeError) as problem:
            problem_text = f"{self._base} is not an ADK server: {problem}"
        except (httpx2.HTTPError, TimeoutError) as problem:
            why = str(problem) or f"no answer within {PREFLIGHT_TIMEOUT_S:g} s"
            problem_text = f"{self._base} cannot be reached: start it with adk api_server, or correct the URL ({why})"
        else:
            app_names = [str(app)[:60] for app in apps] if isinstance(apps, list) else []
            if not isinstance(apps, list) or name in apps:
                return []
            problem_text = f"the server has no app {name!r}; it has {', '.join(map(repr, app_names[:10])) or 'none'}"
            return [Problem(self._connection.redact(problem_text), "agent.app_name")]
        return [Problem(self._connection.redact(problem_text), "agent.target")]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def _run(self, session_id: str, parts: list[dict[str, Any]]) -> Any:
        """Return the reply to the next message of a session."""
        names = {"appName": self._options.app_name, "userId": self._options.user_id, "sessionId": session_id}
        message = {"role": "user", "parts": parts}
        return await self._connection.json("POST", f"{self._base}/run", {**names, "newMessage": message})

    async def _create(self, session_id: str, request: AgentRequest) -> None:
        """Create a session with the earlier messages; an existing one belongs to an abandoned attempt."""
        events = [
            {
                "author": "user" if message.role == "user" else self._options.app_name,
                "content": {"role": _ROLES[message.role], "parts": [{"text": message.content}]},
            }
            for message in request.history
        ]
        body: dict[str, Any] = {"sessionId": session_id} | ({"events": events} if events else {})
        try:
            await self._connection.json("POST", self._sessions, body)
        except FailedRequestError as failure:
            error = failure.response.error
            if error is None or error.http_status != _CONFLICT:
                raise
            await self._connection.json("DELETE", f"{self._sessions}/{session_id}")
            await self._connection.json("POST", self._sessions, body)


class _Invocation:
    """One turn: the question, and the responses to its stops.

    Args:
        run: Sends the parts of a message; returns the reply.
    """

    def __init__(self, run: Callable[[list[dict[str, Any]]], Awaitable[Any]]) -> None:
        self._run = run
        self._answered: dict[str, Any] = {}
        self._settled: set[str] = set()
        self.events: list[Mapping[str, Any]] = []
        """The whole events of all replies."""

    async def ask(self, text: str) -> list[Stop]:
        """Ask the question; return the stops."""
        await self._send([{"text": text}])
        return self._stops()

    async def resume(self, stops: Sequence[Stop], decisions: Sequence[tuple[Interrupt, Decision]]) -> list[Stop]:
        """Send the responses to stops; return the next stops.

        Raises:
            UnusableDecisionError: A decision has arguments, but the server cannot change those of a call.
        """
        self._settled |= {stop.id for stop in stops}
        remaining = [(stop, decision) for stop, (_, decision) in zip(stops, decisions, strict=True)]
        while remaining:
            answered, remaining = next_message(remaining, self._stops())
            self._settled |= {stop.id for stop, _ in answered}
            await self._send([self._part(stop, decision) for stop, decision in answered])
        return self._stops()

    def response(self) -> AgentResponse:
        """Return the answer of a finished turn."""
        return response_from_events(self.events, self._answered)

    def trace(self) -> AgentResponse:
        """Return the trace of the turn so far."""
        return trace_of(self.events, self._answered)

    def _part(self, stop: Stop, decision: Decision) -> dict[str, Any]:
        if stop.edits(decision) is not None:
            raise UnusableDecisionError(
                f"a server of ADK runs {stop.interrupt.tool} with the arguments of the model: approve or deny it, "
                "or evaluate the agent in process"
            )
        response = self._answered[stop.id] = stop.response(decision)
        return {"functionResponse": {"id": stop.id, "name": stop.name, "response": response}}

    async def _send(self, parts: list[dict[str, Any]]) -> None:
        self.events += whole_events(await self._run(parts))

    def _stops(self) -> list[Stop]:
        return [stop for stop in stops_of(self.events) if stop.id not in self._settled]
