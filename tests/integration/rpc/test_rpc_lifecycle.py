from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from assay.errors import SetupError
from assay.rpc.channel import read_stream, wait_for_ready
from assay.rpc.methods import MethodRule, Slots
from assay.rpc.options import ServerOptions
from assay.rpc.server import RpcServer, serve_until_signal

SERVICE = "assay.test.Service"
Status = health_pb2.HealthCheckResponse


async def echo(request: Any, context: Any) -> bytes:
    return bytes(request)


ECHO = {"Echo": ("unary_unary", echo)}


async def health_of(channel: grpc.aio.Channel, service: str = "") -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), wait_for_ready=True)
    return int(answer.status)


class Life:
    """A server under `serve_until_signal` in the background, and what its hooks saw."""

    def __init__(self, server: RpcServer, address: str = "127.0.0.1:0") -> None:
        self.server = server
        self.bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.may_be_ready, self.draining, self.may_drain = (asyncio.Event() for _ in range(3))
        self.also_stop_on = asyncio.Event()
        self.task = asyncio.ensure_future(
            serve_until_signal(
                server,
                address,
                on_ready=self._on_ready,
                on_drain=self._on_drain,
                grace_s=60,
                also_stop_on=self.also_stop_on,
                leave_s=0.0,
            )
        )

    async def _on_ready(self, bound: str) -> None:
        self.bound.set_result(bound)
        await self.may_be_ready.wait()

    async def _on_drain(self) -> None:
        self.draining.set()
        await self.may_drain.wait()


@pytest.mark.parametrize("is_local", [False, True])
async def test_calls_are_taken_until_clients_have_left(wire: Any, tmp_path: Path, is_local: bool) -> None:
    """At a port, a call that comes just after NOT_SERVING is answered; a unix socket has no clients that balance."""
    server, stop = wire.server(ECHO), asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def on_ready(bound: str) -> None:
        address.set_result(bound)

    where = f"unix:{tmp_path}/s.sock" if is_local else "127.0.0.1:0"
    serving = asyncio.create_task(
        serve_until_signal(server, where, on_ready=on_ready, also_stop_on=stop, grace_s=60, leave_s=300)
    )
    channel = await wire.channel(await address)
    await wait_for_ready(channel, "", 60)
    stop.set()
    await server.stopping.wait()
    if is_local:
        await serving
        return
    assert await health_of(channel) == Status.NOT_SERVING
    assert await channel.unary_unary(f"/{SERVICE}/Echo")(b"late") == b"late"
    serving.cancel()
    await asyncio.wait([serving])


async def test_calls_wait_until_a_server_that_listens_early_serves(wire: Any) -> None:
    """Clients are connected during imports and recovery; their calls are not refused and not answered too early."""
    server = RpcServer(ServerOptions(reflection=False))
    server.add(SERVICE, methods={"Echo": MethodRule(Slots.CALLS)})
    wire.closing(server)
    with grpc.insecure_channel(await server.start("127.0.0.1:0")) as channel:
        grpc.channel_ready_future(channel).result(timeout=60)  # the loop does not run, as during imports
        call: Any = channel.unary_unary(f"/{SERVICE}/Echo")
        answer = call.future(b"question", timeout=60)
        handlers: Any = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
        server.complete(
            SERVICE,
            lambda grpc_server: grpc_server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(SERVICE, handlers),)
            ),
        )
        health: Any = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):  # a call that came later is answered: this one would be, too
            found = await asyncio.to_thread(health.Check, health_pb2.HealthCheckRequest(), timeout=60)
        assert (found.status, answer.done()) == (Status.NOT_SERVING, False)
        server.set_serving(True)
        assert await asyncio.to_thread(answer.result) == b"question"


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_health_follows_the_life_of_a_server(wire: Any, service: str) -> None:
    """NOT_SERVING while warming up and while draining, SERVING between; calls work while draining."""
    life = Life(wire.server(ECHO))
    channel = await wire.channel(await life.bound)
    assert await health_of(channel, service) == Status.NOT_SERVING
    life.may_be_ready.set()
    await wait_for_ready(channel, service, 10)
    assert await health_of(channel, service) == Status.SERVING
    signal.raise_signal(signal.SIGTERM)
    await life.draining.wait()
    assert life.server.stopping.is_set()
    assert await health_of(channel, service) == Status.NOT_SERVING
    assert await channel.unary_unary(f"/{SERVICE}/Echo")(b"late") == b"late"
    life.may_drain.set()
    await life.task


async def test_health_of_an_unknown_service(wire: Any) -> None:
    """A client that asks for what is not served here learns it at once."""
    channel = await wire.channel(await wire.serve(ECHO))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health_of(channel, "assay.v1.Other")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(SetupError, match=r"does not serve assay\.v1\.Other"):
        await wait_for_ready(channel, "assay.v1.Other", 10)


async def test_second_signal_stops_at_once(wire: Any) -> None:
    """Who asks twice does not wait for the drain or for running calls."""
    cancelled = asyncio.Event()
    started = asyncio.Event()

    async def endless(request: Any, context: Any) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return b""

    life = Life(wire.server({"Endless": ("unary_unary", endless)}))
    life.may_be_ready.set()
    channel = await wire.channel(await life.bound)
    calling = asyncio.ensure_future(channel.unary_unary(f"/{SERVICE}/Endless")(b"", timeout=3600))
    await started.wait()
    signal.raise_signal(signal.SIGINT)
    await life.draining.wait()
    signal.raise_signal(signal.SIGINT)
    await life.task
    await cancelled.wait()
    with pytest.raises(grpc.aio.AioRpcError):
        await calling


async def test_second_signal_cuts_the_grace(wire: Any) -> None:
    """A second signal also works after the drain, while running calls are waited for."""
    started = asyncio.Event()

    async def endless(request: Any, context: Any) -> bytes:
        started.set()
        await asyncio.Event().wait()
        return b""

    life = Life(wire.server({"Endless": ("unary_unary", endless)}))
    life.may_be_ready.set()
    life.may_drain.set()
    channel = await wire.channel(await life.bound)
    calling = asyncio.ensure_future(channel.unary_unary(f"/{SERVICE}/Endless")(b"", timeout=3600))
    await started.wait()
    signal.raise_signal(signal.SIGTERM)
    await life.draining.wait()
    signal.raise_signal(signal.SIGTERM)
    await life.task
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await calling
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_event_stops_like_a_signal_even_while_warming_up(wire: Any) -> None:
    """A process whose parent is gone stops although its model is still loading."""
    life = Life(wire.server(ECHO))
    life.may_drain.set()
    await life.bound
    life.also_stop_on.set()
    await life.task
    assert life.draining.is_set()
    assert not life.may_be_ready.is_set()


async def test_failing_warm_up_is_the_outcome(wire: Any) -> None:
    """A server that cannot get ready says why instead of serving."""

    async def on_ready(bound: str) -> None:
        raise SetupError("the model is missing")

    with pytest.raises(SetupError, match="the model is missing"):
        await serve_until_signal(wire.server(ECHO), "127.0.0.1:0", on_ready=on_ready)


async def test_stop_ends_streams_within_their_grace(wire: Any) -> None:
    """A long stream that heeds `stopping` ends with its last message, and health watches end too."""
    server: RpcServer

    async def watch(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await server.stopping.wait()
        yield b"bookmark"

    server = wire.server({"Watch": ("unary_stream", watch)})
    channel = await wire.channel(await server.start("127.0.0.1:0"))
    health: Any = health_pb2_grpc.HealthStub(channel)
    async with (
        read_stream(channel.unary_stream(f"/{SERVICE}/Watch")(b"")) as messages,
        read_stream(health.Watch(health_pb2.HealthCheckRequest())) as changes,
    ):
        assert await anext(messages) == b"first"
        assert (await anext(changes)).status == Status.NOT_SERVING
        await server.stop(3600)
        assert [message async for message in messages] == [b"bookmark"]
        with pytest.raises(grpc.aio.AioRpcError):
            await anext(changes)


async def test_stop_cancels_what_outlasts_the_grace(wire: Any) -> None:
    """A stream that does not end by itself cannot hold up the process."""

    async def watch(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    server = wire.server({"Watch": ("unary_stream", watch)})
    channel = await wire.channel(await server.start("127.0.0.1:0"))
    async with read_stream(channel.unary_stream(f"/{SERVICE}/Watch")(b"")) as messages:
        assert await anext(messages) == b"first"
        await server.stop(0.05)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(messages)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_two_servers_cannot_share_a_port(wire: Any) -> None:
    """Otherwise calls would be split between an old and a new process at random."""
    address = await wire.serve(ECHO)
    with pytest.raises(SetupError, match=rf"Cannot listen at {address}: another server") as caught:
        await wire.server(ECHO).start(address)
    assert caught.value.reason == "ADDRESS_TAKEN"


async def test_live_socket_is_refused_and_a_stale_one_replaced(wire: Any, tmp_path: Path) -> None:
    """A socket file left by a killed process does not block the next; a live server keeps its own."""
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    server = wire.server(ECHO)
    address = await server.start(f"unix:{path}")
    with pytest.raises(SetupError, match="Another server listens at"):
        await wire.server(ECHO).start(address)
    channel = await wire.channel(address)
    assert await channel.unary_unary(f"/{SERVICE}/Echo")(b"still here") == b"still here"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("somewhere", "use unix:/path or host:port"),
        ("127.0.0.1:99999", "use unix:/path or host:port"),
        ("unix:/nonexistent/x.sock", "folder of the socket"),
        ("unix:/" + "x" * 120, "longer than 107 bytes"),
    ],
)
async def test_address_that_cannot_be_used(wire: Any, address: str, message: str) -> None:
    """The sentence says what is wrong with the address."""
    with pytest.raises(SetupError, match=message):
        await wire.server(ECHO).start(address)


async def test_file_in_place_of_a_socket_is_kept(wire: Any, tmp_path: Path) -> None:
    """A server does not start at the address of an ordinary file, and does not remove the file."""
    file = tmp_path / "notes"
    file.write_text("keep me")
    with pytest.raises(SetupError, match="is not a socket"):
        await wire.server(ECHO).start(f"unix:{file}")
    assert file.read_text() == "keep me"


async def test_service_after_the_start_is_refused(wire: Any) -> None:
    """gRPC would ignore it silently."""
    server = wire.server(ECHO)
    await server.start("127.0.0.1:0")
    with pytest.raises(RuntimeError, match="after the server had started"):
        server.add("late.Service", lambda grpc_server: None)
