"""The http adapter: fills a request template and maps the reply with JMESPath."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import httpx2

from assay.model.answers.agent_response import clean_text
from assay.specs.http_options import HttpOptions, render
from assay_orchestrator.agents.http_body import read_body
from assay_orchestrator.agents.http_connection import HttpConnection, json_bytes
from assay_orchestrator.agents.http_stream import read_events
from assay_orchestrator.scorers.reply_reader import ReplyReader

if TYPE_CHECKING:
    from assay.errors import Problem
    from assay.model.answers.agent_response import AgentRequest, AgentResponse
    from assay.model.case import Case
    from assay.model.run import AgentSettings
    from assay_orchestrator.agents.access import AgentAccess
    from assay_orchestrator.scorers.jobs import ReplyEvents
    from assay_orchestrator.scorers.pool import ScorerPool

_ACCEPT = {"": "application/json", "sse": "text/event-stream", "jsonl": "application/x-ndjson, application/jsonl"}


class HttpAgent:
    """One attempt is one request; headers, query, body and URL may name variables and secrets.

    Args:
        settings: Checked settings.
        access: What may be called and named.
        scorers: Parse replies that take much work; None to parse all of them here.
        has_answers: Whether the run already has answers, which prove its mapping.

    Raises:
        InvalidInputError: The host is not allowed, or a variable or secret is missing or not allowed.
    """

    def __init__(
        self,
        settings: AgentSettings,
        access: AgentAccess,
        *,
        scorers: ScorerPool | None = None,
    ) -> None:
        problems: list[Problem] = []
        options = HttpOptions.from_options(settings.options, problems)
        self._options = options
        self._connection = HttpConnection(
            settings,
            access,
            problems,
            headers=options.headers,
            accept=_ACCEPT[options.stream if options.stream in _ACCEPT else ""],
            templates={"agent.query": options.query, "agent.body": options.body},
        )
        self._replies = ReplyReader(options.response, scorers)

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer to a request."""
        return await self._connection.attempt(request, self._ask, self._read)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def _ask(self, request: AgentRequest) -> bytes | ReplyEvents:
        """Return the reply's body, or its events."""
        start = time.perf_counter()
        query, body = self._connection.templates["agent.query"], self._connection.templates["agent.body"]
        parameters = {name: _as_parameter(value) for name, value in render(query, request).items()}
        async with self._connection.stream(
            self._options.method,
            httpx2.URL(self._connection.url).copy_merge_params(parameters),  # `params` would drop the URL's own query
            json_bytes(render(body, request)) if body is not None else None,
            {"idempotency-key": request.idempotency_key} if request.idempotency_key.isascii() else None,
        ) as reply:
            if self._options.stream:
                return await read_events(reply, self._options.stream, start)
            return await read_body(reply)

    async def _read(self, reply: bytes | ReplyEvents, request: AgentRequest) -> AgentResponse:
        return await self._replies.read(reply, request.run_id)


def _as_parameter(value: object) -> str:
    """Return a value as a query parameter: a text unchanged, anything else as JSON."""
    return clean_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
