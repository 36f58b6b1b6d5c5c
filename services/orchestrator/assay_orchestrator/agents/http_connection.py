"""The common part of the HTTP adapters: a checked target, headers, and failures as answers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import time
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from assay.errors import InvalidInputError, Problem
from assay.http.connection import AddressNotAllowedError
from assay.http.transport import HttpTransport
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentResponse,
    MalformedAnswerError,
    clean_text,
    error_response,
)
from assay.model.answers.response_fields import UnmappedReplyError, excerpt
from assay.model.answers.response_limits import AnswerTooLargeError
from assay.parsing.strict_json import REPLY_DECODER, DuplicateKeyError
from assay.providers.retry_after import retry_after_s
from assay.specs.prompt_template import FilledTooLargeError
from assay.telemetry.tracing import TRACEPARENT, traceparent
from assay_orchestrator.agents.destinations import agent_address
from assay_orchestrator.agents.dry_run import MAPPING
from assay_orchestrator.agents.http_body import read_beginning, read_body
from assay_orchestrator.agents.http_hosts import check_http_target
from assay_orchestrator.agents.secrets import SECRET_MISSING, Secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import AgentSpec
    from assay_orchestrator.agents.access import AgentAccess

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_RETRYABLE_STATUSES = frozenset({408, 425, 429})
_KEEPALIVE_S = 60.0
_THREADED_BYTES = 64 * 1024

_Reply = TypeVar("_Reply")


class FailedRequestError(Exception):
    """A failed request; `response` is its answer."""

    def __init__(self, response: AgentResponse) -> None:
        super().__init__(response.error.message if response.error else "")
        self.response = response


class HttpConnection:
    """Requests to the server of one agent. Redirects are not followed, and cookies not kept.

    Proxies of the environment are not used.

    Args:
        settings: Checked settings; the target may name variables and secrets.
        access: What may be called and named.
        problems: The problems of the options.
        headers: Sent with each request; their values may name variables and secrets.
        accept: The requested media types, unless `headers` name others.
        templates: Further trees whose texts may name them, by their field of the spec.

    Raises:
        InvalidInputError: The options are wrong, the host is not allowed, or a variable or secret is missing or not
            allowed.
    """

    def __init__(
        self,
        settings: AgentSpec,
        access: AgentAccess,
        problems: list[Problem],
        *,
        headers: Mapping[str, str],
        accept: str = "application/json",
        templates: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = settings
        self._access = access
        self._named_headers = headers
        self._named_templates = templates or {}
        self._problems = problems
        self._secrets = Secrets(access, agent_address(settings), problems)
        self._headers: dict[str, str] = {}
        self._fill()
        if problems:
            raise InvalidInputError(problems)
        for name in ("httpx2", "httpcore2"):
            # Below warnings they log the URL with its query, which may contain a key, and the agent's reply.
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = httpx2.AsyncClient(
            headers={
                "content-type": "application/json",
                "accept": accept,
                "accept-encoding": "identity",
                **self._headers,
            },
            # A jar that keeps nothing: with a cookie from an earlier row, an agent would answer in that row's session.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            timeout=None,
            transport=HttpTransport(settings.concurrency, keepalive_s=_KEEPALIVE_S, egress=access.egress),
            follow_redirects=False,
            trust_env=False,
        )

    def _fill(self) -> None:
        """Fill in what the settings name, and check the result."""
        secrets, known_count = self._secrets, len(self._problems)
        self.templates: dict[str, Any] = {
            name: secrets.resolve_tree(tree, name) for name, tree in self._named_templates.items()
        }
        self.url = secrets.resolve(self._settings.target, "agent.target")
        self._problems += check_http_target(self.url, self._access) or url_problems(self.url)
        resolved: dict[str, str] = secrets.resolve_tree(self._named_headers, "agent.headers")
        self._problems += [problem for name, value in resolved.items() for problem in _check_header(name, value)]
        self._problems[known_count:] = [
            dataclasses.replace(entry, message=secrets.redact(entry.message)) for entry in self._problems[known_count:]
        ]
        self._headers = {name.lower(): value for name, value in resolved.items()}

    def _refill(self) -> None:
        self._fill()
        self._client.headers.update(self._headers)

    async def attempt(
        self,
        request: AgentRequest,
        ask: Callable[[AgentRequest], Awaitable[_Reply]],
        read: Callable[[_Reply, AgentRequest], Awaitable[AgentResponse]],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> AgentResponse:
        """Return the answer of one attempt, failed or not, with its latency and without variables and secrets.

        Args:
            request: The question; its time limit bounds `prepare` and `ask`.
            ask: Returns the agent's reply.
            read: Reads the reply as an answer; not part of the latency.
            prepare: Runs before the question; not part of the latency either.
        """
        start, latency_ms = time.perf_counter(), None
        try:
            self._secrets.refill(self._refill)
            # A total limit: httpx2's own restarts with every byte that arrives.
            async with asyncio.timeout(request.timeout_s):
                if prepare is not None:
                    await prepare()
                    start = time.perf_counter()
                reply = await ask(request)
            latency_ms = ms_since(start)
            response = await read(reply, request)
        except TimeoutError:
            response = error_response(
                AgentErrorKind.TIMEOUT, f"no answer within {request.timeout_s:g} s", retryable=True
            )
        except FailedRequestError as failure:
            response = failure.response
        except InvalidInputError as problem:
            response = error_response(AgentErrorKind.RAISED, problem.message, type=SECRET_MISSING)
        except UnmappedReplyError as problem:
            response = error_response(AgentErrorKind.MALFORMED, str(problem), type=MAPPING)
        except MalformedAnswerError as problem:
            response = error_response(AgentErrorKind.MALFORMED, str(problem))
        except (AnswerTooLargeError, FilledTooLargeError) as problem:
            response = error_response(AgentErrorKind.TOO_LARGE, str(problem))
        except AddressNotAllowedError as problem:
            response = error_response(AgentErrorKind.UNREACHABLE, str(problem), type=type(problem).__name__)
        except httpx2.HTTPError as problem:
            response = error_response(
                AgentErrorKind.UNREACHABLE,
                f"{self.url} cannot be reached: {problem or 'the connection broke'}",
                type=type(problem).__name__,
                retryable=True,
            )
        if latency_ms is None:
            latency_ms = ms_since(start)
        return dataclasses.replace(self._secrets.redact_answer(response), latency_ms=latency_ms)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: httpx2.URL | str,
        content: bytes | None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request; the reply has a success status, and its body is still to be read.

        Raises:
            FailedRequestError: It has another status.
            httpx2.HTTPError: The connection failed.
        """
        parent = traceparent()
        if parent and TRACEPARENT not in self._client.headers:  # the spec's own header takes precedence
            headers = {**(headers or {}), TRACEPARENT: parent}
        async with self._client.stream(method, url, content=content, headers=headers) as reply:
            if not reply.is_success:
                beginning = await read_beginning(reply)
                raise FailedRequestError(_failed(reply.status_code, beginning, retry_after_s(reply.headers)))
            yield reply

    async def json(self, method: str, url: str, data: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Send JSON and return the JSON of the reply.

        Raises:
            FailedRequestError: The reply does not have a success status.
            MalformedAnswerError: The reply is not JSON.
            AnswerTooLargeError: It is larger than 4 MiB.
            httpx2.HTTPError: The connection failed.
        """
        content = None if data is None else json_bytes(data)
        async with self.stream(method, url, content, headers) as reply:
            body = await read_body(reply)
        return await asyncio.to_thread(_decoded, body) if len(body) > _THREADED_BYTES else _decoded(body)

    def redact(self, text: str) -> str:
        """Return a message without the values of variables and secrets."""
        return self._secrets.redact(text)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def json_bytes(data: Any) -> bytes:
    """Return JSON in its wire form."""
    return clean_text(json.dumps(data, ensure_ascii=False)).encode()


def ms_since(start: float) -> float:
    """Return the milliseconds since a reading of `time.perf_counter`."""
    return (time.perf_counter() - start) * 1000


def _decoded(body: bytes) -> Any:
    try:
        return REPLY_DECODER.decode(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise MalformedAnswerError(f"the reply is not UTF-8: {excerpt(body)}") from None
    except DuplicateKeyError as error:
        raise MalformedAnswerError(f"in the reply {error}: {excerpt(body)}") from None
    except (ValueError, RecursionError):
        raise MalformedAnswerError(f"the reply is not JSON: {excerpt(body)}") from None


def _failed(status: int, beginning: bytes, wait_s: float | None) -> AgentResponse:
    hint = " (redirects are not followed: use the final URL)" if status in _REDIRECTS else ""
    return error_response(
        AgentErrorKind.HTTP_STATUS,
        f"HTTP {status}{hint}: {excerpt(beginning)}",
        http_status=status,
        retryable=status in _RETRYABLE_STATUSES or status >= 500,
        retry_after_s=wait_s,
    )


def url_problems(url: str) -> list[Problem]:
    """Return why requests cannot be sent to a URL: the HTTP client parses it differently, or not at all."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, UnicodeError):
        return [Problem("is not a valid URL", "agent.target")]
    if parsed.scheme not in ("http", "https") or not parsed.host:
        return [Problem("must be an http:// or https:// URL with a host", "agent.target")]
    if parsed.userinfo:
        return [Problem("must not contain a name or password: send it as a header", "agent.target")]
    if parsed.host != urlsplit(url).hostname:
        # The called host must be the one checked against the allowed hosts.
        return [Problem("must name its host in plain lower-case ASCII", "agent.target")]
    return []


def _check_header(name: str, value: str) -> list[Problem]:
    if value.isascii() and value.isprintable():
        return []
    # Without the value: it may be a secret.
    return [Problem("must be printable ASCII once its variables are filled in", f"agent.headers.{name}")]
