"""The http adapter: a request template out, a JMESPath mapping of the reply in."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2

from assay.errors import InvalidInputError, Problem
from assay.http.transport import HttpTransport
from assay.model.agent_response import AgentErrorKind, AgentResponse, MalformedAnswerError, clean_text, error_response
from assay.model.response_fields import excerpt
from assay.model.response_limits import AnswerTooLargeError
from assay.providers.retry_after import retry_after_s
from assay.spec.http_options import HttpOptions, render
from assay.spec.prompt_template import FilledTooLargeError
from assay_orchestrator.agents.http_body import read_beginning, read_body
from assay_orchestrator.agents.http_hosts import check_http_target
from assay_orchestrator.agents.secrets import Secrets
from assay_orchestrator.scoring.reply_reader import ReplyReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.agent_response import AgentRequest
    from assay.model.case import Case
    from assay.model.run import AgentSettings
    from assay_orchestrator.scoring.pool import ScorerPool

_RETRYABLE_STATUSES = frozenset({408, 425, 429})
_KEEPALIVE_S = 60.0


class HttpAgent:
    """One attempt is one request; redirects are not followed, proxies of the environment not used.

    Args:
        settings: Checked settings; headers, body and URL may name environment variables as ${NAME}.
        allowed_hosts: Patterns of hosts that may be called.
        allowed_env: Patterns of environment variables that may be named.
        environ: Where the variables are.
        scorers: Read replies that are much work to read; None to read all of them here.

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
        scorers: ScorerPool | None = None,
    ) -> None:
        problems: list[Problem] = []
        options = HttpOptions.from_options(settings.options, problems)
        self._secrets = Secrets(allowed_env, environ, problems)
        self._options = dataclasses.replace(
            options,
            query=self._secrets.resolve_tree(options.query, "agent.query"),
            body=self._secrets.resolve_tree(options.body, "agent.body"),
        )
        self._url = self._secrets.resolve(settings.target, "agent.target")
        problems += check_http_target(self._url, allowed_hosts) or _check_url(self._url)
        headers = self._secrets.resolve_tree(options.headers, "agent.headers")
        problems += [problem for name, value in headers.items() for problem in _check_header(name, value)]
        if problems:
            raise InvalidInputError(problems)
        self._replies = ReplyReader(options.response, scorers)
        for name in ("httpx2", "httpcore2"):
            # Below warnings they log the URL with its query, which may hold a key, and what the agent replied.
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = httpx2.AsyncClient(
            headers=_DEFAULT_HEADERS | {name.lower(): value for name, value in headers.items()},
            timeout=None,
            transport=HttpTransport(settings.concurrency, keepalive_s=_KEEPALIVE_S),
            follow_redirects=False,
            trust_env=False,
        )

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer of one request."""
        start, latency_ms = time.perf_counter(), None
        try:
            # A total limit: httpx2's own restarts with every byte that drips in.
            async with asyncio.timeout(request.timeout_s):
                reply = await self._ask(request)
            latency_ms = _ms_since(start)  # of the agent, without reading what it replied
            response = reply if isinstance(reply, AgentResponse) else await self._replies.read(reply, request.run_id)
        except TimeoutError:
            response = error_response(
                AgentErrorKind.TIMEOUT, f"no answer within {request.timeout_s:g} s", retryable=True
            )
        except MalformedAnswerError as problem:
            response = error_response(AgentErrorKind.MALFORMED, str(problem))
        except (AnswerTooLargeError, FilledTooLargeError) as problem:
            response = error_response(AgentErrorKind.TOO_LARGE, str(problem))
        except httpx2.HTTPError as problem:
            response = error_response(
                AgentErrorKind.UNREACHABLE,
                f"{self._url} cannot be reached: {problem or 'the connection broke'}",
                type=type(problem).__name__,
                retryable=True,
            )
        if latency_ms is None:
            latency_ms = _ms_since(start)
        return dataclasses.replace(self._secrets.redact_answer(response), latency_ms=latency_ms)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(self, request: AgentRequest) -> AgentResponse | bytes:
        """Return the reply's body, or why there is none."""
        options = self._options
        content = None
        if options.body is not None:
            content = clean_text(json.dumps(render(options.body, request), ensure_ascii=False)).encode()
        query = {name: _as_parameter(value) for name, value in render(options.query, request).items()}
        async with self._client.stream(
            options.method,
            httpx2.URL(self._url).copy_merge_params(query),  # `params` would drop the URL's own query
            content=content,
            headers={"idempotency-key": request.idempotency_key} if request.idempotency_key.isascii() else None,
        ) as reply:
            if not reply.is_success:
                return _failed(reply.status_code, await read_beginning(reply), retry_after_s(reply.headers))
            return await read_body(reply)


_DEFAULT_HEADERS = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}


def _ms_since(start: float) -> float:
    return (time.perf_counter() - start) * 1000


def _failed(status: int, beginning: bytes, wait_s: float | None) -> AgentResponse:
    hint = " (redirects are not followed: use the final URL)" if 300 <= status < 400 else ""
    return error_response(
        AgentErrorKind.HTTP_STATUS,
        f"HTTP {status}{hint}: {excerpt(beginning)}",
        http_status=status,
        retryable=status in _RETRYABLE_STATUSES or status >= 500,
        retry_after_s=wait_s,
    )


def _as_parameter(value: object) -> str:
    """Return a value as a query parameter takes it: a text as it is, anything else as JSON."""
    return clean_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _check_url(url: str) -> list[Problem]:
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, UnicodeError):
        return [Problem("is not a valid URL", "agent.target")]
    if parsed.scheme not in ("http", "https") or not parsed.host:
        return [Problem("must be an http:// or https:// URL with a host", "agent.target")]
    if parsed.userinfo:
        return [Problem("must not hold a name or password: send it as a header", "agent.target")]
    if parsed.host != urlsplit(url).hostname:
        # What was checked against the allowed hosts must be what is called.
        return [Problem("must name its host in plain lower-case ASCII", "agent.target")]
    return []


def _check_header(name: str, value: str) -> list[Problem]:
    if value.isascii() and value.isprintable():
        return []
    # Without the value: it may be a secret.
    return [Problem("must be printable ASCII once its variables are filled in", f"agent.headers.{name}")]
