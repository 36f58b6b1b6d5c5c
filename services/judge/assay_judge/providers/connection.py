"""The HTTP client under the providers' packages: no redirects, no proxies, no endless or compressed replies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import httpx2

from assay_judge.providers.protocol import MalformedReplyError, ProviderStatusError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = ["TIMEOUT", "connection_to", "failure_of", "headers_of", "read_object"]

_CONNECT_TIMEOUT_S = 10.0
_MAX_BODY_BYTES = 4 * 1024 * 1024
_EXCERPT_CHARS = 200
_NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
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
        return ProviderStatusError(status, headers_of(reply), _decoded(reply.content))
    cause = problem.__cause__ or problem
    if isinstance(cause, MalformedReplyError):
        return cause
    return UnreachableError(
        f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__,
        sent=not isinstance(cause, _NOTHING_SENT),
    )


def headers_of(reply: httpx2.Response) -> Mapping[str, str]:
    """Return the headers by lower-case name."""
    return {name.lower(): value for name, value in reply.headers.items()}


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a reply is.

    Raises:
        MalformedReplyError: It is none.
    """
    try:
        data = _DECODER.decode(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise MalformedReplyError(f"the reply is not JSON: {_excerpt(body)}") from None
    if not isinstance(data, dict):
        raise MalformedReplyError(f"the reply is not a JSON object: {_excerpt(body)}")
    return data


def _decoded(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return _excerpt(body) if body else ""


def _excerpt(body: bytes) -> str:
    return ascii(body[:_EXCERPT_CHARS].decode("utf-8", "replace"))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Cuts replies off that are larger than a verdict may be, and refuses compressed ones unread."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        reply = await self._inner.handle_async_request(request)
        encoding = reply.headers.get("content-encoding", "identity")
        if encoding not in ("identity", ""):
            await reply.aclose()
            # A few bytes of it may unfold to gigabytes.
            raise MalformedReplyError(f"the reply is compressed as {encoding[:40]!r}, which was not asked for")
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
            if size > _MAX_BODY_BYTES:
                raise MalformedReplyError(f"the reply is larger than {_MAX_BODY_BYTES // 1024 // 1024} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
