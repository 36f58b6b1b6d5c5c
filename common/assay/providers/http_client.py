"""The HTTP client under the providers' packages: no redirects, no proxies, no endless or compressed replies.

It needs httpx2, which the extras of the services that ask providers bring; nothing else imports this module.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from assay.http.transport import HttpTransport
from assay.parsing.strict_json import REPLY_DECODER, DuplicateKeyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_TALKATIVE = ("openai", "anthropic", "httpx2", "httpcore2")
TIMEOUT = httpx2.Timeout(None)
"""The whole attempt is bounded by its caller, and connecting by the transport."""


@dataclass(frozen=True, slots=True)
class ReplyRules:
    """What a reply may be, and what is raised for one that is something else.

    Args:
        malformed: Raised with a message for a reply that cannot be read.
        too_large: Raised with a message for a reply that is too long.
        excerpt: Returns the beginning of a body as a message shows it.
        max_body_bytes: Where a longer reply is cut off.
    """

    malformed: type[Exception]
    too_large: type[Exception]
    excerpt: Callable[[bytes], str]
    max_body_bytes: int

    def client(self, url: str, concurrency: int) -> httpx2.AsyncClient:
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
        return httpx2.AsyncClient(
            transport=_BoundedTransport(HttpTransport(concurrency), self),
            timeout=TIMEOUT,
            follow_redirects=False,
            trust_env=False,
        )

    def json_in(self, body: bytes) -> Any:
        """Return the JSON value that a reply is, or raise `malformed`."""
        try:
            return REPLY_DECODER.decode(body.decode("utf-8-sig"))
        except DuplicateKeyError as error:
            raise self.malformed(f"in the reply {error}: {self.excerpt(body)}") from None
        except (ValueError, RecursionError):
            raise self.malformed(f"the reply is not JSON: {self.excerpt(body)}") from None

    def require_object(self, data: object, body: bytes) -> dict[str, Any]:
        """Return what a reply's body was decoded to if it is an object, or raise `malformed`."""
        if not isinstance(data, dict):
            raise self.malformed(f"the reply is not a JSON object: {self.excerpt(body)}")
        return data

    def error_in(self, body: bytes) -> object:
        """Return what the body of an HTTP error says: JSON, or its beginning as a text."""
        try:
            return REPLY_DECODER.decode(body.decode())
        except (ValueError, RecursionError):
            return self.excerpt(body) if body else ""


class _BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport, rules: ReplyRules) -> None:
        self._inner = inner
        self._rules = rules

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
            raise self._rules.malformed(f"the reply is compressed as {encoding[:40]!r}, which was not asked for")
        assert isinstance(reply.stream, httpx2.AsyncByteStream)
        reply.stream = _BoundedStream(reply.stream, self._rules)
        return reply

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, rules: ReplyRules) -> None:
        self._inner = inner
        self._rules = rules

    async def __aiter__(self) -> AsyncIterator[bytes]:
        most = self._rules.max_body_bytes
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > most:
                raise self._rules.too_large(f"the reply is larger than {most // 1024 // 1024} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
