"""A server with handlers of a test, channels to it, and a proxy that can go silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from assay.rpc.channel import open_channel
from assay.rpc.methods import METHODS, MethodRule, Slots
from assay.rpc.options import ChannelOptions, ServerOptions
from assay.rpc.server import RpcServer
from assay.v1.run_pb2_grpc import add_RunServiceServicer_to_server

SERVICE = "assay.test.Service"
RUN_SERVICE = "assay.v1.RunService"
MAKERS: dict[str, Callable[..., Any]] = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}

RULES = {
    kind: MethodRule(
        Slots.CALLS if kind == "unary_unary" else Slots.STREAMS,
        client_streams=kind.startswith("stream"),
        server_streams=kind.endswith("stream"),
    )
    for kind in MAKERS
}


class Wire:
    """Starts servers and channels and closes them after the test. Messages are plain bytes."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    def server(
        self,
        handlers: dict[str, tuple[str, Callable[..., Any]]],
        *,
        service: str = SERVICE,
        options: ServerOptions | None = None,
        rules: Mapping[str, MethodRule] | None = None,
    ) -> RpcServer:
        """Return a server that has not started; `handlers` maps method names to (kind, handler)."""
        methods = {name: MAKERS[kind](handler) for name, (kind, handler) in handlers.items()}

        def register(server: grpc.aio.Server) -> None:
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))

        server = RpcServer(options or ServerOptions())
        own = rules or {name: RULES[kind] for name, (kind, _) in handlers.items()}
        server.add(service, register, None if service in METHODS else own)
        self._stack.push_async_callback(server.stop, 0)
        return server

    def closing(self, server: RpcServer) -> None:
        """Stop a server after the test."""
        self._stack.push_async_callback(server.stop, 0)

    async def serve(
        self,
        handlers: dict[str, tuple[str, Callable[..., Any]]],
        *,
        service: str = SERVICE,
        options: ServerOptions | None = None,
    ) -> str:
        """Start a server and return its address."""
        server = self.server(handlers, service=service, options=options)
        address = await server.start("127.0.0.1:0")
        server.set_serving(True)
        return address

    async def serve_runs(
        self,
        servicer: Any,
        others: dict[str, Callable[..., None]] | None = None,
        options: ServerOptions | None = None,
    ) -> str:
        """Start a RunService, and other services of the same servicer, with the messages of their contracts."""
        server = RpcServer(options or ServerOptions())
        for name, register in (others or {}).items():
            server.add(name, partial(register, servicer))
        server.add(RUN_SERVICE, lambda grpc_server: add_RunServiceServicer_to_server(servicer, grpc_server))
        self._stack.push_async_callback(server.stop, 0)
        address = await server.start("127.0.0.1:0")
        server.set_serving(True)
        return address

    async def channel(self, address: str, options: ChannelOptions | None = None) -> grpc.aio.Channel:
        """Return a channel from the product's factory."""
        return await self._stack.enter_async_context(open_channel(address, options or ChannelOptions()))

    async def proxy(self, address: str, connects_after_s: float = 0.0) -> SilentProxy:
        """Put a proxy in front of a server; it may delay each connection, as a slow network does."""
        return await self._stack.enter_async_context(_running_proxy(address, connects_after_s))


@dataclass
class SilentProxy:
    """A TCP proxy; once silent it swallows everything and closes nothing, like a lost network."""

    address: str = ""
    silent: asyncio.Event = field(default_factory=asyncio.Event)

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on one way until the connection ends."""
        while data := await reader.read(65_536):
            if not self.silent.is_set():
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def _running_proxy(upstream: str, connects_after_s: float) -> AsyncIterator[SilentProxy]:
    proxy, tasks = SilentProxy(), set[asyncio.Task[Any]]()
    host, _, port = upstream.rpartition(":")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "this runs in one"
        tasks.add(task)
        await asyncio.sleep(connects_after_s)
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(proxy.pump(reader, up_writer), proxy.pump(up_reader, writer), return_exceptions=True)
        except asyncio.CancelledError:
            return  # only the fixture cancels this; asyncio would log the cancellation
        finally:
            writer.close()
            up_writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with AsyncExitStack() as stack:
        yield Wire(stack)


Answers = Callable[[grpc.aio.Channel, str], Awaitable[list[bytes]]]


@pytest.fixture
def call() -> Answers:
    """Call the method named after a kind of call, and return all its answers."""

    async def caller(channel: grpc.aio.Channel, kind: str) -> list[bytes]:
        method: Any = getattr(channel, kind)(f"/{SERVICE}/{kind}")
        request: Any = iter([b"question"]) if kind.startswith("stream") else b"question"
        # Without a deadline, so that a call that never ends shows as a hanging test.
        running = method(request, timeout=3600)
        if kind.endswith("stream"):
            return [answer async for answer in running]
        return [await running]

    return caller
