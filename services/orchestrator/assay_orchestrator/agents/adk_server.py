"""The adk adapter where its target is a URL: an agent behind `adk api_server`, or what serves the same API."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import httpx2

from assay.errors import Problem
from assay.model.agent_response import AgentErrorKind, AgentResponse, MalformedAnswerError, error_response
from assay.model.response_limits import AnswerTooLargeError
from assay.spec.server_options import AdkServerOptions
from assay_orchestrator.agents.adk_events import response_from_events
from assay_orchestrator.agents.http_connection import FailedRequestError, HttpConnection
from assay_orchestrator.agents.retrying import is_retry

if TYPE_CHECKING:
    from assay.model.agent_response import AgentRequest
    from assay.model.case import Case
    from assay.model.run import AgentSettings
    from assay_orchestrator.agents.access import AgentAccess

PREFLIGHT_TIMEOUT_S = 10.0
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_ROLES = {"user": "user", "assistant": "model"}
_CONFLICT, _NOT_FOUND = 409, 404


class AdkServerAgent:
    """One attempt is one call of /run, in a session that was created for it; creating it is no part of the latency.

    A question has a fresh session for each attempt. The turns of a conversation share one, whose id follows from the
    row, so that a run that is resumed elsewhere finds it.

    Args:
        settings: Checked settings; headers and URL may name variables and secrets.
        access: What may be called and named.

    Raises:
        InvalidInputError: The host is not allowed, or a variable or secret is missing or not allowed.
    """

    def __init__(self, settings: AgentSettings, access: AgentAccess) -> None:
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
        """Return the answer of one question."""
        if unknown := [message.role for message in request.history if message.role not in _ROLES]:
            said = f"a message before the question has the role {unknown[0][:40]!r}, which a session cannot have"
            return error_response(AgentErrorKind.RAISED, said, type="history")
        is_conversation = len(case.turns) > 1
        session_id = _NOT_IN_IDS.sub("-", request.session_id if is_conversation else request.request_id)

        async def prepare() -> None:
            # After an attempt that failed, the session may hold the question, and an answer to it.
            if request.turn_index == 0 or is_retry(request):
                await self._create(session_id, request)

        async def ask(request: AgentRequest) -> Any:
            message = {"role": "user", "parts": [{"text": request.input}]}
            names = {"appName": self._options.app_name, "userId": self._options.user_id, "sessionId": session_id}
            return await self._connection.json("POST", f"{self._base}/run", {**names, "newMessage": message})

        return await self._connection.attempt(request, ask, _read, prepare)

    async def problems(self) -> list[Problem]:
        """Return why the server will not answer: it cannot be reached, or has no such app."""
        name = self._options.app_name
        try:
            async with asyncio.timeout(PREFLIGHT_TIMEOUT_S):
                apps = await self._connection.json("GET", f"{self._base}/list-apps")
        except FailedRequestError as failure:
            error = failure.response.error
            if error is not None and error.http_status == _NOT_FOUND:
                return []  # a gateway that lets nothing but sessions and runs through
            said = f"the server at {self._base} does not list its apps: {failure}"
        except (MalformedAnswerError, AnswerTooLargeError) as problem:
            said = f"{self._base} is no server of ADK: {problem}"
        except (httpx2.HTTPError, TimeoutError) as problem:
            why = str(problem) or f"no answer within {PREFLIGHT_TIMEOUT_S:g} s"
            said = f"{self._base} cannot be reached: start it with adk api_server, or correct the URL ({why})"
        else:
            known = [str(app)[:60] for app in apps] if isinstance(apps, list) else []
            if not isinstance(apps, list) or name in apps:
                return []
            said = f"the server has no app {name!r}; it has {', '.join(map(repr, known[:10])) or 'none'}"
            return [Problem(self._connection.redact(said), "agent.app_name")]
        return [Problem(self._connection.redact(said), "agent.target")]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def _create(self, session_id: str, request: AgentRequest) -> None:
        """Create a session with what was said before; one of that id is of an attempt that was given up."""
        events = [
            {
                "author": "user" if message.role == "user" else self._options.app_name,
                "content": {"role": _ROLES[message.role], "parts": [{"text": message.content}]},
            }
            for message in request.history
        ]
        wanted: dict[str, Any] = {"sessionId": session_id} | ({"events": events} if events else {})
        try:
            await self._connection.json("POST", self._sessions, wanted)
        except FailedRequestError as failure:
            error = failure.response.error
            if error is None or error.http_status != _CONFLICT:
                raise
            await self._connection.json("DELETE", f"{self._sessions}/{session_id}")
            await self._connection.json("POST", self._sessions, wanted)


async def _read(events: Any, _request: AgentRequest) -> AgentResponse:
    return response_from_events(events)
