"""A TCP or TLS connection for an HTTP client that never takes unrequested bytes for a reply."""

from __future__ import annotations

import asyncio
import select
import socket
from asyncio.staggered import staggered_race
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import httpx2

from assay.http.egress import EVERYWHERE, Egress, ForbiddenAddressError, connect_through, forbidden

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from assay.http.egress import AddressInfo

BLANK = b"\r\n"
"""Line ends between two replies: some servers send one more than they announce, and no reply begins with one."""

_READ_BYTES = 64 * 1024
_MAX_BUFFER_BYTES = 4 * _READ_BYTES
_NEXT_ADDRESS_S = 0.25  # RFC 8305: a second address of the host is tried beside the first after this long


class AddressNotAllowedError(httpx2.ConnectError):
    """The host has an address that may not be connected to; a retry would be refused too."""


class Wire(asyncio.Protocol):
    """The bytes of one connection.

    Args:
        on_stray: Called once with bytes that arrive while the connection is idle.
        on_lost: Called once when the connection is closed.
    """

    def __init__(self, on_stray: Callable[[Wire, bytes], None], on_lost: Callable[[Wire], None]) -> None:
        self._on_stray = on_stray
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._paused = self._eof = False
        self._failure: Exception | None = None
        self.closed = asyncio.get_running_loop().create_future()
        self.idle = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods alone

    def data_received(self, data: bytes) -> None:
        """Store bytes of a reply; report bytes that arrive while the connection is idle."""
        if self.idle:
            if data.strip(BLANK):
                self.abort()
                self._on_stray(self, data)
            return
        self._buffer += data
        self._news.set()
        if len(self._buffer) > _MAX_BUFFER_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """Record the end of the server's bytes; the transport closes itself."""
        self._eof = True
        self._news.set()

    def connection_lost(self, problem: Exception | None) -> None:
        """Wake the reader and the writer."""
        self._eof = True
        self._failure = problem
        self._news.set()
        self._flushed.set()
        if not self.closed.done():
            self.closed.set_result(None)
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Record that the send buffer is full."""
        self._flushed.clear()

    def resume_writing(self) -> None:
        """Record that the send buffer has room again."""
        self._flushed.set()

    @property
    def usable(self) -> bool:
        """Whether the server still holds the connection open."""
        return not self._eof and not self._transport.is_closing()

    @property
    def unread(self) -> bytes:
        """The bytes that have arrived and are still unread."""
        return bytes(self._buffer)

    def has_news(self) -> bool:
        """Return whether the operating system has bytes, or the end, that this process has not read yet."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    async def write(self, data: bytes) -> None:
        """Send bytes; wait while the send buffer is full."""
        if data and self.usable:
            self._transport.write(data)
            await self._flushed.wait()

    async def read(self) -> bytes:
        """Return the next bytes, empty at the end.

        Raises:
            httpx2.ReadError: The connection broke.
        """
        if self._buffer:
            # A flood that is always there would otherwise keep the event loop to itself.
            await asyncio.sleep(0)
        while not self._buffer and not self._eof:
            self._news.clear()
            await self._news.wait()
        if not self._buffer and self._failure is not None:
            raise httpx2.ReadError(str(self._failure) or "the connection broke")
        data = bytes(self._buffer[:_READ_BYTES])
        del self._buffer[:_READ_BYTES]
        if self._paused and not self._buffer and not self._eof:
            self._paused = False
            self._transport.resume_reading()
        return data

    def rest(self) -> None:
        """Wait for the next request: nothing may arrive until it is sent."""
        self._buffer.clear()
        self.idle = True
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()


async def open_wire(
    url: httpx2.URL,
    make: Callable[[], Wire],
    context: ssl.SSLContext | None,
    timeout_s: float,
    egress: Egress = EVERYWHERE,
) -> Wire:
    """Return a new connection to the host of a URL.

    Args:
        url: The address of the request.
        make: Returns the protocol of a connection.
        context: The TLS settings; None for plain HTTP.
        timeout_s: Timeout of connecting, including name resolution and TLS.
        egress: The allowed addresses, and the proxy.

    Raises:
        AddressNotAllowedError: The host has an address that may not be connected to.
        httpx2.ConnectTimeout: It took longer.
        httpx2.ConnectError: No address of the host accepts connections, or TLS failed.
    """
    host = url.raw_host.decode("ascii")
    port = url.port or (80 if context is None else 443)
    loop = asyncio.get_running_loop()
    name = None if context is None else host
    try:
        async with asyncio.timeout(timeout_s):
            if egress.proxy:
                if egress.forbids_literal(host):
                    raise ForbiddenAddressError(forbidden(host))
                connected = await connect_through(egress.proxy, host, port)
            else:
                connected = await _first_to_answer(host, await egress.resolve(host, port))
            _, wire = await loop.create_connection(make, sock=connected, ssl=context, server_hostname=name)
    except TimeoutError:
        raise httpx2.ConnectTimeout(f"no connection within {timeout_s:g} s") from None
    except ForbiddenAddressError as problem:
        raise AddressNotAllowedError(str(problem)) from problem
    except OSError as problem:
        raise httpx2.ConnectError(str(problem) or type(problem).__name__) from problem
    return wire


async def _first_to_answer(host: str, addresses: Sequence[AddressInfo]) -> socket.socket:
    """Return a connected socket; try a name's addresses in parallel, since one address family may be unreachable."""
    families = [
        [address for address in addresses if address[0] == family] for family in dict.fromkeys(a[0] for a in addresses)
    ]
    alternating = [group[i] for i in range(len(addresses)) for group in families if i < len(group)]
    sockets: list[socket.socket] = []
    attempts = [
        partial(_connected, sockets, family, kind, protocol, to) for family, kind, protocol, _, to in alternating
    ]
    try:
        connected, _, problems = await staggered_race(attempts, _NEXT_ADDRESS_S)
    except BaseException:
        # Cancelled in the moment in which a connection is there, the race returns it to no one.
        for attempt in sockets:
            attempt.close()
        raise
    if not isinstance(connected, socket.socket):
        raise next((problem for problem in problems if isinstance(problem, OSError)), OSError(f"{host} has no address"))
    return connected


async def _connected(
    sockets: list[socket.socket], family: int, kind: int, protocol: int, address: Any
) -> socket.socket:
    attempt = socket.socket(family, kind, protocol)
    sockets.append(attempt)
    try:
        attempt.setblocking(False)
        await asyncio.get_running_loop().sock_connect(attempt, address)
    except BaseException:
        attempt.close()
        raise
    return attempt
