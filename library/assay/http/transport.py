"""HTTP/1.1 for agents and providers, which pairs each reply with its own request.

Common connection pools take bytes left after a reply for the beginning of the next reply, so a row could get another
row's answer. Here a connection with such bytes is closed ("a client MUST NOT process …
such extra data as a separate response", RFC 9112, section 6.3). Bytes that arrive only after the next request was
sent look like its reply: so with the first bytes that no request asked for, connections to that host are
used for one request each.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import h11
import httpx2

from assay.http.connection import BLANK, Wire, open_wire
from assay.http.egress import EVERYWHERE, Egress

if TYPE_CHECKING:
    import ssl

_MAX_HEAD_BYTES = 100 * 1024
_MAX_INTERIM_REPLIES = 20
_log = logging.getLogger(__name__)

_Origin = tuple[str, str, int | None]


class HttpTransport(httpx2.AsyncBaseTransport):
    """A pool of connections, each reused while its host sends one reply per request.

    Only connecting has a timeout: the caller limits the whole attempt.

    Args:
        concurrency: Maximum number of concurrent requests.
        keepalive_s: How long an idle connection stays open, in seconds.
        connect_timeout_s: Timeout of connecting, in seconds.
        egress: The allowed addresses, and the proxy.
    """

    def __init__(
        self,
        concurrency: int,
        *,
        keepalive_s: float = 5.0,
        connect_timeout_s: float = 10.0,
        egress: Egress = EVERYWHERE,
    ) -> None:
        self._egress = egress
        self._slots = asyncio.Semaphore(concurrency)
        self._keepalive_s = keepalive_s
        self._connect_timeout_s = connect_timeout_s
        self._idle: dict[_Origin, deque[tuple[float, Wire]]] = {}
        self._wires: dict[Wire, _Origin] = {}
        self._misbehaving: set[_Origin] = set()
        self._context: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its reply, whose body is still to be read."""
        await self._slots.acquire()
        try:
            return await self._exchange(request)
        except BaseException:
            self._slots.release()
            raise

    async def aclose(self) -> None:
        """Close every connection."""
        closing = [wire.closed for wire in self._wires]
        for wire in list(self._wires):
            wire.abort()
        self._idle.clear()
        if closing:
            await asyncio.wait(closing)

    async def _exchange(self, request: httpx2.Request) -> httpx2.Response:
        origin = (request.url.scheme, request.url.host, request.url.port)
        wire = self._reusable(origin)
        reused = wire is not None
        if wire is None:
            wire = await self._open(request.url, origin)
        exchange = _Exchange(wire, reused=reused, once=origin in self._misbehaving)
        try:
            await exchange.send(request)
            head = await exchange.head()
        except BaseException:
            self._settle(exchange, origin)
            raise
        return httpx2.Response(
            head.status_code,
            headers=list(head.headers.raw_items()),
            stream=_Body(exchange, lambda: self._finish(exchange, origin)),
            extensions={"http_version": b"HTTP/" + head.http_version, "reason_phrase": head.reason},
        )

    def _finish(self, exchange: _Exchange, origin: _Origin) -> None:
        self._settle(exchange, origin)
        self._slots.release()

    def _settle(self, exchange: _Exchange, origin: _Origin) -> None:
        """Return the connection of a request to the pool if it is sound."""
        if exchange.surplus:
            self._distrust(exchange.wire, origin, exchange.surplus)
        elif exchange.may_go_on and origin not in self._misbehaving:
            exchange.wire.rest()
            self._idle.setdefault(origin, deque()).append((time.monotonic(), exchange.wire))
            return
        exchange.wire.abort()

    def _reusable(self, origin: _Origin) -> Wire | None:
        """Return the connection that has been idle for longest: its surplus bytes had the most time to arrive."""
        idle = self._idle.get(origin, deque())
        for _ in range(len(idle)):
            since, wire = idle.popleft()
            if not wire.usable or time.monotonic() - since > self._keepalive_s:
                wire.abort()
            elif wire.has_news():
                idle.append((since, wire))  # the event loop is about to see what it is
            else:
                wire.idle = False
                return wire
        return None

    async def _open(self, url: httpx2.URL, origin: _Origin) -> Wire:
        if url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol(f"the URL must begin with http:// or https://, not {url.scheme}://")
        if url.scheme == "https" and self._context is None:
            self._context = httpx2.create_ssl_context(trust_env=False)
        context = self._context if url.scheme == "https" else None
        wire = await open_wire(
            url, lambda: Wire(self._stray, self._lost), context, self._connect_timeout_s, self._egress
        )
        self._wires[wire] = origin
        return wire

    def _stray(self, wire: Wire, data: bytes) -> None:
        if wire in self._wires:
            self._distrust(wire, self._wires[wire], data)

    def _lost(self, wire: Wire) -> None:
        self._wires.pop(wire, None)

    def _distrust(self, wire: Wire, origin: _Origin, data: bytes) -> None:
        wire.abort()
        if origin in self._misbehaving:
            return
        self._misbehaving.add(origin)
        for _, other in self._idle.pop(origin, ()):
            other.abort()
        _log.warning(
            "server sent bytes after the end of a reply, opening one connection per request from now on:"
            " host=%s:%s bytes=%d",
            *origin[1:],
            len(data),
        )


class _Exchange:
    """One request and its reply on one connection."""

    def __init__(self, wire: Wire, *, reused: bool, once: bool) -> None:
        self.wire = wire
        self._reused = reused
        self._once = once
        # A new one each time: what is left in the parser of one reply never gets into that of the next.
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._early = b""
        self._complete = self._begun = False

    @property
    def surplus(self) -> bytes:
        """Bytes that belong to no reply, except line ends."""
        after = self._parser.trailing_data[0] + self.wire.unread if self._complete else b""
        return self._early or after.strip(BLANK)

    @property
    def may_go_on(self) -> bool:
        """Whether the connection may carry another request."""
        done = self._parser.our_state is h11.DONE and self._parser.their_state is h11.DONE
        return done and self._complete and self.wire.usable

    async def send(self, request: httpx2.Request) -> None:
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"connection"]
        headers.append((b"connection", b"close" if self._once else b"keep-alive"))
        try:
            head = h11.Request(method=request.method, target=request.url.raw_path, headers=headers)
            waiting = self._parser.send(head) or b""
            assert isinstance(request.stream, httpx2.AsyncByteStream)
            async for chunk in request.stream:
                waiting += self._parser.send(h11.Data(data=chunk)) or b""
                if len(waiting) >= _MAX_HEAD_BYTES:
                    await self.wire.write(waiting)
                    waiting = b""
            waiting += self._parser.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as problem:
            raise httpx2.LocalProtocolError(str(problem)) from None
        if self._reused and self.wire.unread.strip(BLANK):
            self._early = self.wire.unread
            raise httpx2.RemoteProtocolError("bytes arrived before the request was sent: they are no reply to it")
        await self.wire.write(waiting)

    async def head(self) -> h11.Response:
        """Return the reply's status and headers."""
        for _ in range(_MAX_INTERIM_REPLIES + 1):
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
        raise httpx2.RemoteProtocolError(f"the server sent more than {_MAX_INTERIM_REPLIES} interim (1xx) replies")

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the reply's body.

        Raises:
            httpx2.RemoteProtocolError: More follows after its end on a connection that was used before: the reply
                may belong to an earlier request.
        """
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)
        self._complete = True
        if self._reused and (surplus := self.surplus):
            raise httpx2.RemoteProtocolError(
                f"{len(surplus)} bytes follow the end of the reply, which may be that to an earlier request: the"
                " server must send one reply per request, with the right Content-Length"
            )

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError as problem:
                raise httpx2.RemoteProtocolError(str(problem)) from None
            if event is not h11.NEED_DATA:
                assert not isinstance(event, type) or event is h11.PAUSED
                return event
            data = await self.wire.read()
            if not data and self._parser.their_state is h11.SEND_RESPONSE:
                raise httpx2.RemoteProtocolError("the server closed the connection without a reply")
            if not self._begun:
                data = data.lstrip(BLANK)
                self._begun = bool(data)
                if not data:
                    continue
            self._parser.receive_data(data)


class _Body(httpx2.AsyncByteStream):
    def __init__(self, exchange: _Exchange, finish: Callable[[], None]) -> None:
        self._exchange = exchange
        self._finish: Callable[[], None] | None = finish

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._exchange.body():
            yield chunk

    async def aclose(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
