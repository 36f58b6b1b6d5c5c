from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from assay.rpc.options import ChannelOptions, ServerOptions

PROBED_MS, NEVER_MS = 1_000, 3_600_000
SOON_S = 20.0  # without the ping timeout gRPC needs a minute


async def test_client_notices_a_silent_server(wire: Any) -> None:
    """A network that swallows everything ends a client's stream within the keepalive settings."""

    async def endless(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    options = ServerOptions(min_ping_interval_ms=500, keepalive_time_ms=NEVER_MS)
    address = await wire.serve({"M": ("unary_stream", endless)}, options=options)
    proxy = await wire.proxy(address)
    channel = await wire.channel(
        proxy.address, ChannelOptions(keepalive_time_ms=PROBED_MS, keepalive_timeout_ms=PROBED_MS)
    )
    call = channel.unary_stream("/assay.test.Service/M")(b"")
    assert await call.read() == b"first"
    proxy.silent.set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(SOON_S):
            await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_server_notices_a_silent_client(wire: Any) -> None:
    """The same the other way: the handler of a client that is gone is cancelled."""
    cancelled = asyncio.Event()

    async def endless(request: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    address = await wire.serve(
        {"M": ("unary_stream", endless)},
        options=ServerOptions(keepalive_time_ms=PROBED_MS, keepalive_timeout_ms=PROBED_MS),
    )
    proxy = await wire.proxy(address)
    channel = await wire.channel(proxy.address, ChannelOptions(keepalive_time_ms=NEVER_MS))
    call = channel.unary_stream("/assay.test.Service/M")(b"")
    assert await call.read() == b"first"
    proxy.silent.set()
    async with asyncio.timeout(SOON_S):
        await cancelled.wait()
    call.cancel()


async def test_quiet_stream_stays_open(wire: Any) -> None:
    """Probing a quiet stream is not punished: the server allows the pings that its clients send."""
    go_on = asyncio.Event()

    async def quiet(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await go_on.wait()
        yield b"last"

    options = ServerOptions(min_ping_interval_ms=50)
    address = await wire.serve({"M": ("unary_stream", quiet)}, options=options)
    channel = await wire.channel(address, ChannelOptions(keepalive_time_ms=100, keepalive_timeout_ms=5_000))
    call = channel.unary_stream("/assay.test.Service/M")(b"")
    assert await call.read() == b"first"
    reading = asyncio.ensure_future(call.read())
    done, _ = await asyncio.wait({reading}, timeout=1.0)  # ten probes go by
    assert not done
    go_on.set()
    assert await reading == b"last"
    assert await call.read() is grpc.aio.EOF
