"""The HTTP client under the providers' packages: no redirects, proxies or cookies, no endless replies.

It needs httpx2, which the extras of the services that ask providers bring; only the clients of providers import it.
"""

from __future__ import annotations

import io
import logging
import zlib
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from assay.http.connection import AddressNotAllowedError
from assay.http.event_stream import EVENT_STREAM
from assay.http.transport import HttpTransport
from assay.model.answers.response_fields import excerpt
from assay.parsing.strict_json import REPLY_DECODER, DuplicateKeyError
from assay.providers.errors import (
    MalformedReplyError,
    ProviderStatusError,
    ReplyTooLargeError,
    UnreachableError,
    error_without_status,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from assay.providers.client import Service
    from assay.providers.messages import Reply

_TALKATIVE = ("openai", "anthropic", "httpx2", "httpcore2")
_MAX_BODY_BYTES = 4 * 1024 * 1024
_STREAM_FACTOR = 16
"""A stream is that much longer than the reply that it carries: each piece comes with a frame of 200 bytes or more."""
_UNPACKED = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # zlib tells them apart by the first bytes
_PIECE_BYTES = 1 << 16
_NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_NOT_YET = (202, 203, 206)
"""Statuses of success under which a reply may still be missing, changed or cut."""
_WEB_PAGE = "the reply is a web page and not a model's: check base_url"
NO_KEY = "no-key"
"""What the packages, which want a key, are given for none: no request carries it."""

TIMEOUT = httpx2.Timeout(None)
"""The whole attempt is bounded by its caller, and connecting by the transport."""


def connection_to(service: Service, concurrency: int, max_body_bytes: int = _MAX_BODY_BYTES) -> httpx2.AsyncClient:
    """Return an HTTP client for one service; close it.

    Args:
        service: Where it is, and how it may be reached.
        concurrency: Most calls at once.
        max_body_bytes: Where a longer reply is cut off; a stream of events may be 16 times as long.

    Raises:
        ValueError: The URL is none, or its host is not what it seems.
    """
    try:
        host = httpx2.URL(service.url).host
    except httpx2.InvalidURL as error:
        raise ValueError(str(error)) from None
    if host != urlsplit(service.url).hostname:
        raise ValueError("the URL must name its host in plain lower-case ASCII")
    for name in _TALKATIVE:
        # Below warnings they log prompts, answers and headers, which have no place in a log.
        logging.getLogger(name).setLevel(logging.WARNING)
    return httpx2.AsyncClient(
        transport=_BoundedTransport(HttpTransport(concurrency, egress=service.egress), max_body_bytes),
        timeout=TIMEOUT,
        follow_redirects=False,
        trust_env=False,
        # A cookie of one answer would tie the next question to it: to a server that knows it, or to its user.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


def provider_error(problem: Exception) -> Exception:
    """Translate an exception of a provider's package or of httpx2 into this package's error."""
    reply = getattr(problem, "response", None)
    if isinstance(reply, httpx2.Response) and not reply.is_success:
        is_page = reply.status_code < 500 and _is_web_page(reply.content)
        return ProviderStatusError(
            reply.status_code, headers_of(reply), _WEB_PAGE if is_page else _error_in(reply.content)
        )
    cause = problem.__cause__ or problem
    if isinstance(cause, MalformedReplyError):
        return cause
    return UnreachableError(
        str(cause) or "the connection broke",
        type=type(cause).__name__,
        sent=not isinstance(cause, _NOTHING_SENT),
        may_pass=not isinstance(cause, AddressNotAllowedError),
    )


def read_reply(reply: httpx2.Response, reply_from: Callable[[Mapping[str, Any], Mapping[str, str]], Reply]) -> Reply:
    """Return the model's reply in an HTTP reply.

    Args:
        reply: With its body.
        reply_from: Reads the JSON object that the body is, and the headers.

    Raises:
        MalformedReplyError: There is none; the message shows the beginning of the body.
        ProviderStatusError: The body is an error, as gateways send with a status of success, or the status says that
            the reply is not complete.
    """
    body = reply.content
    if _is_web_page(body):
        raise MalformedReplyError(f"{_WEB_PAGE}: {excerpt(body)}")
    data = object_in(_without_comments(body))
    try:
        return reply_from(data, headers_of(reply))
    except MalformedReplyError as problem:
        if data.get("error") or data.get("type") == "error":
            raise error_without_status(data, headers_of(reply)) from None
        if reply.status_code in _NOT_YET:
            raise ProviderStatusError(reply.status_code, headers_of(reply), data) from None
        raise MalformedReplyError(f"{problem}: {excerpt(body)}") from None


def _without_comments(body: bytes) -> bytes:
    """Strip the event-stream comments that gateways send before a body to keep a connection open."""
    start = 0
    for line in io.BytesIO(body):  # a body is megabytes: cutting off one line after the other takes quadratic time
        if line.strip() and not line.lstrip().startswith(b":"):
            break
        start += len(line)
    return body[start:]


def object_in(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a reply or in a piece of it.

    Raises:
        MalformedReplyError: It is none; the message shows its beginning.
    """
    try:
        data = REPLY_DECODER.decode(body.decode("utf-8-sig"))
    except DuplicateKeyError as error:
        raise MalformedReplyError(f"in the reply {error}: {excerpt(body)}") from None
    except (ValueError, RecursionError):
        raise MalformedReplyError(f"the reply is not JSON: {excerpt(body)}") from None
    if not isinstance(data, dict):
        raise MalformedReplyError(f"the reply is not a JSON object: {excerpt(body)}")
    return data


def headers_of(reply: httpx2.Response) -> Mapping[str, str]:
    """Return the headers by lower-case name."""
    return {name.lower(): value for name, value in reply.headers.items()}


def _error_in(body: bytes) -> object:
    """Return the body of an HTTP error as JSON, or the beginning of its text."""
    try:
        return REPLY_DECODER.decode(body.decode())
    except (ValueError, RecursionError):
        return excerpt(body) if body else ""


def _is_web_page(body: bytes) -> bool:
    return body.lstrip()[:1] == b"<"


class _BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport, max_body_bytes: int) -> None:
        self._inner = inner
        self._max_body_bytes = max_body_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        for name in ("authorization", "x-api-key"):
            if request.headers.get(name) in (NO_KEY, f"Bearer {NO_KEY}"):
                del request.headers[name]
        reply = await self._inner.handle_async_request(request)
        encoding = reply.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "") and (reply.status_code >= 300 or encoding not in _UNPACKED):
            await reply.aclose()
            if reply.status_code >= 300:
                # The status says enough, and decides whether to ask again.
                del reply.headers["content-encoding"]
                return httpx2.Response(reply.status_code, headers=reply.headers, request=request)
            raise MalformedReplyError(f"the reply is compressed as {encoding[:40]!r}, which was not asked for")
        assert isinstance(reply.stream, httpx2.AsyncByteStream)
        if encoding in _UNPACKED:
            for name in ("content-encoding", "content-length"):
                reply.headers.pop(name, None)
            reply.stream = _UnpackedStream(reply.stream)
        is_stream = EVENT_STREAM in reply.headers.get("content-type", "")
        reply.stream = _BoundedStream(reply.stream, self._max_body_bytes * (_STREAM_FACTOR if is_stream else 1))
        return reply

    async def aclose(self) -> None:
        await self._inner.aclose()


class _UnpackedStream(httpx2.AsyncByteStream):
    """The bytes of a body that gateways compress unasked, unpacked in pieces: a few may unfold to gigabytes."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unpacking, is_whole = zlib.decompressobj(_GZIP_OR_ZLIB), True
        try:
            async for chunk in self._inner:
                packed = chunk
                is_whole &= not (chunk and unpacking.eof)
                while not unpacking.eof:
                    piece = unpacking.decompress(packed, _PIECE_BYTES)
                    packed = unpacking.unconsumed_tail
                    if piece:
                        yield piece
                    elif not packed:
                        break
        except zlib.error as problem:
            raise MalformedReplyError(f"the reply cannot be unpacked: {problem}") from None
        if not is_whole or not unpacking.eof or unpacking.unused_data:
            raise MalformedReplyError("the reply cannot be unpacked: it does not end where its compression does")

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > self._max_bytes:
                raise ReplyTooLargeError(f"the reply is larger than {self._max_bytes // 1024 // 1024} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
