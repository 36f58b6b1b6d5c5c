"""The HTTP client under the providers' packages: no redirects, no proxies, no endless or compressed replies."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import httpx2

from assay.answer_limits import AnswerTooLargeError, check_bounds
from assay.answers import MalformedAnswerError
from assay_orchestrator.agents.http_body import MAX_BODY_BYTES
from assay_orchestrator.agents.http_mapping import excerpt
from assay_orchestrator.agents.provider import ProviderStatusError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["TIMEOUT", "connection_to", "failure_of", "read_json"]

_CONNECT_TIMEOUT_S = 10.0
_TALKATIVE = ("openai", "anthropic", "httpx2", "httpcore2")
TIMEOUT = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S)
"""The whole attempt is bounded by its caller: this client's own limits restart with every byte."""


def connection_to(url: str, concurrency: int) -> httpx2.AsyncClient:
    """Return a client for one service; close it.

    Args:
        url: The service.
        concurrency: Most calls at once.

    Raises:
        ValueError: The URL's host is not what it seems.
    """
    if httpx2.URL(url).host != urlsplit(url).hostname:
        raise ValueError("the URL must name its host in plain lower-case ASCII")
    for name in _TALKATIVE:
        # Below warnings they log prompts, answers and headers, which are no business of whoever reads the log.
        logging.getLogger(name).setLevel(logging.WARNING)
    limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    return httpx2.AsyncClient(
        transport=_BoundedTransport(httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)),
        timeout=TIMEOUT,
        follow_redirects=False,
        trust_env=False,
    )


def failure_of(problem: Exception, status: int | None, reply: httpx2.Response | None) -> Exception:
    """Return what an exception of a provider's package is here.

    Args:
        problem: The exception.
        status: The HTTP status, where there was a reply.
        reply: The reply, where there was one.
    """
    if status is not None and reply is not None:
        return ProviderStatusError(status, reply.headers, _decoded(reply))
    cause = problem.__cause__ or problem
    if isinstance(cause, AnswerTooLargeError | MalformedAnswerError):
        return cause
    return UnreachableError(str(cause) or "the connection broke", type(cause).__name__)


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object that a reply is.

    Raises:
        MalformedAnswerError: It is none.
        AnswerTooLargeError: It is too large.
    """
    try:
        data = _DECODER.decode(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise MalformedAnswerError(f"the reply is not JSON: {excerpt(body)}") from None
    check_bounds(data)
    if not isinstance(data, dict):
        raise MalformedAnswerError(f"the reply is not a JSON object: {excerpt(body)}")
    return data


def _decoded(reply: httpx2.Response) -> object:
    body = reply.content
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return excerpt(body) if body else ""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Cuts replies off that are larger than an answer may be, and refuses compressed ones unread."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        reply = await self._inner.handle_async_request(request)
        encoding = reply.headers.get("content-encoding", "identity")
        if encoding not in ("identity", ""):
            await reply.aclose()
            if reply.status_code >= 300:
                # The status says enough, and decides whether to ask again.
                del reply.headers["content-encoding"]
                return httpx2.Response(reply.status_code, headers=reply.headers, request=request)
            # A few bytes of it may unfold to gigabytes.
            raise MalformedAnswerError(f"the reply is compressed as {encoding[:40]!r}, which was not asked for")
        assert isinstance(reply.stream, httpx2.AsyncByteStream)
        reply.stream = _BoundedStream(reply.stream)
        return reply

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise AnswerTooLargeError(f"the reply is larger than {MAX_BODY_BYTES // 1024 // 1024} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
