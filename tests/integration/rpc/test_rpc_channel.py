from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from assay.errors import UnavailableError
from assay.rpc.channel import read_stream, wait_for_ready
from assay.rpc.options import ChannelOptions, ServerOptions
from assay.rpc.status import translated

FAST = ChannelOptions(retry_min_ms=10, retry_max_ms=20)


class Flaky:
    """Handlers that are unavailable a number of times before they answer, and count."""

    def __init__(self, failures: int, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        self.attempts = 0
        self._failures, self._code = failures, code

    async def one(self, request: Any, context: Any) -> bytes:
        self.attempts += 1
        if self.attempts <= self._failures:
            await context.abort(self._code, "not now")
        return b"answer"

    async def upload(self, requests: Any, context: Any) -> bytes:
        return await self.one(b"", context)


async def test_idempotent_call_is_tried_again(wire: Any) -> None:
    """A server that was away for a moment goes unnoticed."""
    flaky = Flaky(failures=3)
    handlers = {"GetRun": ("unary_unary", flaky.one)}
    channel = await wire.channel(await wire.serve(handlers, service="assay.v1.RunService"), FAST)
    assert await channel.unary_unary("/assay.v1.RunService/GetRun")(b"") == b"answer"
    assert flaky.attempts == 4


async def test_large_idempotent_call_is_tried_again(wire: Any) -> None:
    """A request beyond gRPC's usual retry buffer is retried too."""
    flaky = Flaky(failures=1)
    handlers = {"Embed": ("unary_unary", flaky.one)}
    channel = await wire.channel(await wire.serve(handlers, service="assay.embedder.v1.EmbedderService"), FAST)
    assert await channel.unary_unary("/assay.embedder.v1.EmbedderService/Embed")(b"x" * 3_000_000) == b"answer"
    assert flaky.attempts == 2


@pytest.mark.parametrize(
    ("service", "method"),
    [("assay.judge.v1.JudgeService", "Grade"), ("assay.agent.v1.AgentService", "Answer"), ("other.Service", "GetRun")],
)
async def test_other_call_is_made_once(wire: Any, service: str, method: str) -> None:
    """What may cost money or change something is not called again behind the caller's back."""
    flaky = Flaky(failures=1)
    channel = await wire.channel(await wire.serve({method: ("unary_unary", flaky.one)}, service=service), FAST)
    with pytest.raises(UnavailableError), translated():
        await channel.unary_unary(f"/{service}/{method}")(b"")
    assert flaky.attempts == 1


async def test_a_connection_may_be_slow(wire: Any) -> None:
    """A server that takes longer to connect to than the first pause between connections is no dead one."""
    server = await wire.serve({"Grade": ("unary_unary", Flaky(failures=0).one)}, service="assay.judge.v1.JudgeService")
    channel = await wire.channel((await wire.proxy(server, connects_after_s=0.6)).address)
    assert await channel.unary_unary("/assay.judge.v1.JudgeService/Grade")(b"") == b"answer"


async def test_upload_is_made_once(wire: Any) -> None:
    """gRPC does not replay a stream that its caller has already spent."""
    flaky = Flaky(failures=1)
    handlers = {"UploadDataset": ("stream_unary", flaky.upload)}
    channel = await wire.channel(await wire.serve(handlers, service="assay.v1.DatasetService"), FAST)
    with pytest.raises(UnavailableError), translated():
        await channel.stream_unary("/assay.v1.DatasetService/UploadDataset")(iter([b"part"]))
    assert flaky.attempts == 1


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL])
async def test_other_failures_are_final(wire: Any, code: grpc.StatusCode) -> None:
    """Only a server that is away is asked again: never one that is overloaded or broken."""
    flaky = Flaky(failures=1, code=code)
    handlers = {"GetRun": ("unary_unary", flaky.one)}
    channel = await wire.channel(await wire.serve(handlers, service="assay.v1.RunService"), FAST)
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.unary_unary("/assay.v1.RunService/GetRun")(b"")
    assert flaky.attempts == 1


async def test_call_without_deadline_gets_one(wire: Any) -> None:
    """A forgotten deadline does not become a call that waits for ever; an explicit one is kept."""

    async def remaining(request: Any, context: Any) -> bytes:
        return str(context.time_remaining()).encode()

    channel = await wire.channel(
        await wire.serve({"M": ("unary_unary", remaining)}), ChannelOptions(default_timeout_s=7)
    )
    method = channel.unary_unary("/assay.test.Service/M")
    assert 5 < float(await method(b"")) < 7.5
    assert 55 < float(await method(b"", timeout=60)) < 60.5


async def test_abandoned_call_stops_at_the_server(wire: Any) -> None:
    """Cancelling the task that waits for an answer cancels the handler."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(request: Any, context: Any) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return b""

    channel = await wire.channel(await wire.serve({"M": ("unary_unary", endless)}))

    async def calling() -> bytes:
        return bytes(await channel.unary_unary("/assay.test.Service/M")(b"", timeout=3600))

    task = asyncio.ensure_future(calling())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await cancelled.wait()


@pytest.mark.parametrize("style", ["with", "loop"])
async def test_stream_that_is_left_is_cancelled(wire: Any, style: str) -> None:
    """Leaving the block, or breaking out of the loop, ends the stream at the server."""
    cancelled = asyncio.Event()

    async def endless(request: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    channel = await wire.channel(await wire.serve({"M": ("unary_stream", endless)}))
    call = channel.unary_stream("/assay.test.Service/M")(b"")
    if style == "with":
        async with read_stream(call) as messages:
            assert await anext(messages) == b"first"
    else:
        async for message in read_stream(call):
            assert message == b"first"
            break
    await cancelled.wait()
    assert call.cancelled()


async def test_waiting_for_a_server_that_starts_later(wire: Any) -> None:
    """Waiting may begin before the server exists and ends when it is ready."""
    server = wire.server({})
    address = await server.start("127.0.0.1:0")
    await server.stop(0)
    channel = await wire.channel(address)
    waiting = asyncio.ensure_future(wait_for_ready(channel, "assay.test.Service", 30))
    later = wire.server({})
    await later.start(address)
    assert not waiting.done()
    later.set_serving(True)
    await waiting


async def test_waiting_ends(wire: Any) -> None:
    """A server that never gets ready is an error with a sentence."""
    address = await wire.server({}).start("127.0.0.1:0")
    with pytest.raises(UnavailableError, match=r"assay\.test\.Service was not ready after 0\.05 s") as caught:
        await wait_for_ready(await wire.channel(address), "assay.test.Service", 0.05)
    assert caught.value.reason == "NOT_READY"


async def test_proxy_of_the_environment_is_ignored(wire: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A company's web proxy does not break calls between services."""

    async def echo(request: Any, context: Any) -> bytes:
        return bytes(request)

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    channel = await wire.channel(await wire.serve({"M": ("unary_unary", echo)}))
    assert await channel.unary_unary("/assay.test.Service/M")(b"x") == b"x"


async def test_pool_sends_calls_to_healthy_servers_only(wire: Any) -> None:
    """Behind one name, a server that drains gets no more calls."""

    async def echo(request: Any, context: Any) -> bytes:
        return bytes(request)

    server = wire.server({"M": ("unary_unary", echo)})
    address = await server.start("127.0.0.1:0")
    channel = await wire.channel("dns:///" + address)
    method = channel.unary_unary("/assay.test.Service/M")
    with pytest.raises(UnavailableError), translated():
        await method(b"x")
    server.set_serving(True)
    assert await method(b"x", wait_for_ready=True) == b"x"


async def test_message_over_the_limit_is_refused_as_input(wire: Any) -> None:
    """Too large is the caller's mistake, not an overload that waiting would cure."""

    async def echo(request: Any, context: Any) -> bytes:
        return bytes(request)

    channel = await wire.channel(
        await wire.serve({"M": ("unary_unary", echo)}), ChannelOptions(max_message_bytes=8 * 1024 * 1024)
    )
    with pytest.raises(Exception, match="5,000,000 bytes, more than 4,194,304") as caught, translated():
        await channel.unary_unary("/assay.test.Service/M")(b"x" * 5_000_000)
    assert getattr(caught.value, "reason", "") == "MESSAGE_TOO_LARGE"


LOCAL = grpc.LocalConnectionType.LOCAL_TCP
METHOD = "/assay.test.Service/M"


class Noting(grpc.aio.ServerInterceptor):
    """Notes the methods that are called."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        self.methods.append(handler_call_details.method)
        return await continuation(handler_call_details)


class Signing(grpc.aio.UnaryUnaryClientInterceptor):
    """Adds a header to every call."""

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(("authorization", "token"))
        return await continuation(client_call_details._replace(metadata=metadata), request)


async def test_server_and_channel_use_their_credentials(wire: Any) -> None:
    """Connections are made with the credentials that the options hold."""

    async def kind(request: Any, context: Any) -> bytes:
        (name,) = context.auth_context()["transport_security_type"]
        return bytes(name)

    options = ServerOptions(credentials=grpc.local_server_credentials(LOCAL))
    address = await wire.serve({"M": ("unary_unary", kind)}, options=options)
    channel = await wire.channel(address, ChannelOptions(credentials=grpc.local_channel_credentials(LOCAL)))
    assert await channel.unary_unary(METHOD)(b"") == b"local"


async def test_further_interceptors_see_every_call(wire: Any) -> None:
    """Those of the options stand beside Assay's own, at both ends."""

    async def header(request: Any, context: Any) -> bytes:
        return str(dict(context.invocation_metadata()).get("authorization")).encode()

    noting = Noting()
    address = await wire.serve({"M": ("unary_unary", header)}, options=ServerOptions(interceptors=(noting,)))
    channel = await wire.channel(address, ChannelOptions(interceptors=(Signing(),)))
    assert await channel.unary_unary(METHOD)(b"") == b"token"
    assert METHOD in noting.methods
