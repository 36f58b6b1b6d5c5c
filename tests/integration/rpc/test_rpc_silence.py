"""Silent peers: how long a server waits for messages and readers, and how keepalive detects a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from assay.errors import DeadlineError
from assay.rpc.methods import MethodRule, Silence, Slots
from assay.rpc.options import ChannelOptions, ServerOptions
from assay.rpc.status import from_rpc_error, translated
from assay.rpc.streams import answered

SERVICE = "assay.test.Service"
SHORT = 0.05
UPLOAD = MethodRule(Slots.STREAMS, client_streams=True, silence=Silence.ALWAYS)
HOSTING = MethodRule(Slots.STREAMS, client_streams=True, server_streams=True)
ANSWERED = MethodRule(Slots.STREAMS, client_streams=True, server_streams=True, silence=Silence.WHEN_ANSWERED)


class Streams:
    """Handlers of streams; `let_go` lets those answer that wait."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.handlers = {
            "Upload": ("stream_unary", self.upload),
            "Host": ("stream_stream", self.host),
            "Answer": ("stream_stream", self.answer),
        }
        self.rules = {"Upload": UPLOAD, "Host": HOSTING, "Answer": ANSWERED}

    async def upload(self, requests: Any, context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def host(self, requests: Any, context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def answer(self, requests: Any, context: Any) -> AsyncIterator[bytes]:
        async def late(request: bytes) -> bytes:
            await self.let_go.wait()
            return request

        async for response in answered(requests, late, in_flight=4, stopping=asyncio.Event()):
            yield response


async def channel_to(wire: Any, streams: Streams, **options: Any) -> grpc.aio.Channel:
    server = wire.server(streams.handlers, options=ServerOptions(**options), rules=streams.rules)
    address = await server.start("127.0.0.1:0")
    channel: grpc.aio.Channel = await wire.channel(address)
    return channel


async def end_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return code and reason of a call that fails."""
    error = grpc.aio.AioRpcError(
        await call.code(), call.initial_metadata, await call.trailing_metadata(), await call.details()
    )
    return error.code(), from_rpc_error(error).reason


@pytest.mark.parametrize("method", ["Upload", "Host", "Answer"])
async def test_a_stream_without_a_first_message_is_ended(wire: Any, method: str) -> None:
    """A client that opens a stream and says nothing holds its slot for a moment only."""
    streams = Streams()
    channel = await channel_to(wire, streams, first_message_s=SHORT)
    kind = channel.stream_unary if method == "Upload" else channel.stream_stream
    call: Any = kind(f"/{SERVICE}/{method}")(timeout=3600)
    assert await end_of(call) == (grpc.StatusCode.DEADLINE_EXCEEDED, "FIRST_MESSAGE_TIMEOUT")


async def test_an_upload_that_stops_is_ended(wire: Any) -> None:
    """Each further message is due within the idle limit."""
    channel = await channel_to(wire, Streams(), stream_idle_s=SHORT)
    call: Any = channel.stream_unary(f"/{SERVICE}/Upload")(timeout=3600)
    await call.write(b"first")
    assert await end_of(call) == (grpc.StatusCode.DEADLINE_EXCEEDED, "STREAM_IDLE")


async def test_a_host_may_be_silent_for_as_long_as_nothing_is_asked(wire: Any) -> None:
    """Where no message is due, none is waited for."""
    channel = await channel_to(wire, Streams(), first_message_s=60, stream_idle_s=0.001)
    call: Any = channel.stream_stream(f"/{SERVICE}/Host")(timeout=3600)
    for message in (b"attach", b"answer"):
        await call.write(message)
        assert await call.read() == message
        await asyncio.sleep(SHORT)  # long past the limit that would hold elsewhere
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


async def test_a_stream_is_idle_only_when_everything_is_answered(wire: Any) -> None:
    """A client that waits for its answers, for hours in a batch, is not idle; one that has them is."""
    streams = Streams()
    channel = await channel_to(wire, streams, stream_idle_s=SHORT)
    call: Any = channel.stream_stream(f"/{SERVICE}/Answer")(timeout=3600)
    await call.write(b"1")
    await call.write(b"2")
    await asyncio.sleep(4 * SHORT)
    streams.let_go.set()
    assert {await call.read(), await call.read()} == {b"1", b"2"}
    assert await end_of(call) == (grpc.StatusCode.DEADLINE_EXCEEDED, "STREAM_IDLE")


async def test_a_reader_that_does_not_read_is_ended(wire: Any) -> None:
    """A handler is not kept waiting by a client that takes nothing; reading on, it sees why the stream ended."""

    ended = asyncio.Event()

    async def endless(request: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1_000_000)
        finally:
            ended.set()

    async def read_on() -> None:
        async for _ in messages:
            pass

    handlers = {"unary_stream": ("unary_stream", endless)}
    address = await wire.serve(handlers, options=ServerOptions(write_stall_s=SHORT))
    messages = aiter((await wire.channel(address)).unary_stream(f"/{SERVICE}/unary_stream")(b"", timeout=3600))
    await ended.wait()
    with pytest.raises(DeadlineError) as caught, translated():
        await read_on()
    assert caught.value.reason == "READER_STALLED"


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
