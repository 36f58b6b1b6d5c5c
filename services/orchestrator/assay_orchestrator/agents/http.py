"""The http adapter: a request template out, a JMESPath mapping of the reply in."""

from __future__ import annotations

import asyncio
import dataclasses
import fnmatch
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

import httpx
import jmespath
from jmespath.exceptions import JMESPathError

from assay.answers import (
    AgentErrorKind,
    AgentResponse,
    MalformedAnswerError,
    clean_text,
    error_response,
    response_from_json,
)
from assay.errors import InvalidInputError, Problem
from assay.spec.http_options import HttpOptions, render
from assay_orchestrator.agents.http_hosts import check_http_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.answers import AgentRequest
    from assay.cases import Case
    from assay.results import AgentSettings

__all__ = ["MAX_BODY_BYTES", "HttpAgent"]

MAX_BODY_BYTES = 3 * 1024 * 1024
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_EXCERPT_CHARS = 200
_CONNECT_TIMEOUT_S = 10.0


class HttpAgent:
    """One attempt is one request; redirects are not followed, proxies of the environment not used.

    Args:
        settings: Checked settings; headers and URL may name environment variables as ${NAME}.
        allowed_hosts: Patterns of hosts that may be called.
        allowed_env: Patterns of environment variables that may be named.
        environ: Where the variables are.

    Raises:
        InvalidInputError: The host is not allowed, or a variable is missing or not allowed.
    """

    def __init__(
        self,
        settings: AgentSettings,
        *,
        allowed_hosts: Sequence[str],
        allowed_env: Sequence[str],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        problems: list[Problem] = []
        options = HttpOptions.from_options(settings.options, problems)
        secrets = _Secrets(allowed_env, environ, problems)
        self._url = secrets.resolve(settings.target, "agent.target")
        headers = {name: secrets.resolve(value, f"agent.headers.{name}") for name, value in options.headers.items()}
        problems += check_http_target(self._url, allowed_hosts)
        if problems:
            raise InvalidInputError(problems)
        self._options = options
        self._secrets = secrets
        self._mapping = {name: jmespath.compile(text) for name, text in options.response.items()}
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency),
            follow_redirects=False,
            trust_env=False,
        )

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer of one request."""
        start = time.perf_counter()
        try:
            # A total limit: httpx's own restarts with every byte that drips in.
            async with asyncio.timeout(request.timeout_s):
                response = await self._ask(request)
        except TimeoutError:
            response = error_response(
                AgentErrorKind.TIMEOUT, f"no answer within {request.timeout_s:g} s", retryable=True
            )
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            text = self._secrets.redact(str(problem)) or "the connection broke"
            response = error_response(
                AgentErrorKind.UNREACHABLE,
                f"{self._secrets.redact(self._url)} cannot be reached: {text}",
                type=type(problem).__name__,
                retryable=True,
            )
        return _with_latency(response, (time.perf_counter() - start) * 1000)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(self, request: AgentRequest) -> AgentResponse:
        options = self._options
        content = None
        if options.body is not None:
            content = json.dumps(render(options.body, request), ensure_ascii=False).encode()
        query = {name: render(value, request) for name, value in options.query.items()}
        async with self._client.stream(
            options.method,
            self._url,
            content=content,
            params=query or None,
            headers={
                "content-type": "application/json",
                "accept": "application/json",
                "idempotency-key": request.idempotency_key,
            },
        ) as reply:
            body = await _read(reply)
        if body is None:
            return error_response(
                AgentErrorKind.TOO_LARGE, f"the reply is larger than {MAX_BODY_BYTES // 1024 // 1024} MiB"
            )
        if not 200 <= reply.status_code < 300:
            return self._failed(reply.status_code, body)
        return self._read_answer(body)

    def _failed(self, status: int, body: bytes) -> AgentResponse:
        hint = " (redirects are not followed: use the final URL)" if 300 <= status < 400 else ""
        return error_response(
            AgentErrorKind.HTTP_STATUS,
            f"HTTP {status}{hint}: {self._excerpt(body)}",
            http_status=status,
            retryable=status in _RETRYABLE_STATUSES or status >= 500,
        )

    def _read_answer(self, body: bytes) -> AgentResponse:
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            return error_response(AgentErrorKind.MALFORMED, f"the reply is not JSON: {self._excerpt(body)}")
        found: dict[str, Any] = {}
        for name, expression in self._mapping.items():
            try:
                found[name] = expression.search(data)
            except JMESPathError as problem:
                return error_response(
                    AgentErrorKind.MALFORMED,
                    f"agent.response.{name} ({self._options.response[name]}) does not fit the reply: {problem}",
                )
        try:
            response = response_from_json(found)
        except (MalformedAnswerError, RecursionError) as problem:
            return error_response(AgentErrorKind.MALFORMED, f"the reply does not fit: {problem}")
        if response.error is None and found.get("text") is None and "text" in self._mapping:
            return error_response(
                AgentErrorKind.MALFORMED,
                f"agent.response.text ({self._options.response['text']}) finds nothing in {self._excerpt(body)}",
            )
        return response

    def _excerpt(self, body: bytes) -> str:
        text = clean_text(body[: _EXCERPT_CHARS * 4].decode("utf-8", "replace"))
        return self._secrets.redact(text)[:_EXCERPT_CHARS] or "(empty)"


class _Secrets:
    """Environment variables that a spec names: put in where the call is made, taken out of every message."""

    def __init__(self, allowed: Sequence[str], environ: Mapping[str, str], problems: list[Problem]) -> None:
        self._allowed = allowed
        self._environ = environ
        self._problems = problems
        self._values: set[str] = set()

    def resolve(self, text: str, where: str) -> str:
        """Return the text with its variables filled in; what is wrong is added to the problems."""
        return _ENV.sub(lambda found: self._value(found[1], where), text)

    def redact(self, text: str) -> str:
        """Return the text without the values of variables."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, "[redacted]")
        return text

    def _value(self, name: str, where: str) -> str:
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._allowed):
            self._problems.append(
                Problem(f"${{{name}}} may not be used here: the operator allows names with --agent-env", where)
            )
            return ""
        value = self._environ.get(name, "")
        if not value:
            self._problems.append(
                Problem(f"the environment variable {name} is not set where the orchestrator runs", where)
            )
        else:
            self._values.add(value)
        return value


async def _read(reply: httpx.Response) -> bytes | None:
    """Return the body, or None if it is larger than the limit, counted after decompression."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in reply.aiter_bytes(65536):
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _with_latency(response: AgentResponse, latency_ms: float) -> AgentResponse:
    return dataclasses.replace(response, latency_ms=latency_ms)
