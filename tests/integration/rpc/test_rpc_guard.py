from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.processes.waiting import until
from tests.support.services.calls_in_memory import calls_in_memory, without_collection

from assay.errors import InternalError, OverloadedError, Problem, SetupError, SpecError, UnavailableError
from assay.rpc.options import ServerOptions
from assay.rpc.status import from_rpc_error, translated

SERVICE = "assay.test.Service"

Act = Callable[[], Any]


def handlers_that(act: Act) -> dict[str, tuple[str, Callable[..., Any]]]:
    """Return one handler of each kind, and a writing one, that await `act` and then answer."""

    async def one(request: Any, context: Any) -> bytes:
        await act()
        return b"answer"

    async def generating(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await act()

    async def writing(request: Any, context: Any) -> None:
        await context.write(b"first")
        await act()

    return {
        "unary_unary": ("unary_unary", one),
        "stream_unary": ("stream_unary", one),
        "unary_stream": ("unary_stream", generating),
        "stream_stream": ("stream_stream", writing),
    }


KINDS = ["unary_unary", "stream_unary", "unary_stream", "stream_stream"]


async def failure_of(wire: Any, call: Any, kind: str, act: Act) -> grpc.aio.AioRpcError:
    channel = await wire.channel(await wire.serve(handlers_that(act)))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, kind)
    return caught.value


async def cancelled_inside() -> None:
    inner = asyncio.ensure_future(asyncio.Event().wait())
    inner.cancel()
    await inner


@pytest.mark.parametrize("kind", KINDS)
async def test_cancellation_inside_the_server_ends_the_call(wire: Any, call: Any, kind: str) -> None:
    """A handler whose inner task is cancelled does not leave its client waiting for ever."""
    error = await failure_of(wire, call, kind, cancelled_inside)
    assert error.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("kind", KINDS)
async def test_text_of_an_exception_stays_in_the_server(
    wire: Any, call: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client sees an id only; the log has the id with the traceback."""

    async def act() -> None:
        raise ValueError("secret sk-12345 at /etc/path")

    error = await failure_of(wire, call, kind, act)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "sk-12345" not in str(error) + str(error.trailing_metadata())
    rebuilt = from_rpc_error(error)
    assert isinstance(rebuilt, InternalError)
    error_id = rebuilt.message.rstrip(".").split()[-1]
    record = next(record for record in caplog.records if error_id in record.getMessage())
    assert record.exc_info is not None
    assert "sk-12345" in str(record.exc_info[1])


@pytest.mark.parametrize("kind", KINDS)
async def test_domain_error_arrives_as_itself(wire: Any, call: Any, kind: str) -> None:
    """Class, reason and every problem with its place survive the wire, without a line in the log."""
    problems = [
        Problem("must be between 0 and 1", field="metrics[1].threshold", file="assay.yaml", line=12),
        Problem("is unknown: روبوت", field="agent.adapter", file="assay.yaml"),
        Problem("the spec names no dataset"),
    ]

    async def act() -> None:
        raise SpecError(problems)

    rebuilt = from_rpc_error(await failure_of(wire, call, kind, act))
    assert type(rebuilt) is SpecError
    assert rebuilt.reason == "INVALID_SPEC"
    assert rebuilt.problems == problems


async def test_hundreds_of_problems_still_arrive(wire: Any, call: Any) -> None:
    """Details too large for trailers would be lost altogether: they are cut, and say so."""

    async def act() -> None:
        raise SpecError([Problem("ك" * 3000, field=f"cases[{n}]", file="f" * 300) for n in range(300)])

    rebuilt = from_rpc_error(await failure_of(wire, call, "unary_unary", act))
    assert isinstance(rebuilt, SpecError)
    assert rebuilt.problems[0].field == "cases[0]"
    assert rebuilt.problems[-1].message == f"... and {300 - len(rebuilt.problems) + 1} more"


async def test_domain_error_in_a_task_group_arrives_as_itself(wire: Any, call: Any) -> None:
    """A handler may use a task group; what failed in it is what the client sees."""

    async def fail() -> None:
        raise OverloadedError("full", retry_after_s=2.5, reason="QUEUE_FULL")

    async def act() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    channel = await wire.channel(await wire.serve(handlers_that(act)))
    with pytest.raises(OverloadedError) as caught, translated():
        await call(channel, "unary_unary")
    assert (caught.value.reason, caught.value.retry_after_s) == ("QUEUE_FULL", 2.5)


@pytest.mark.parametrize("nested", [False, True])
async def test_of_domain_errors_that_come_together_the_first_arrives(wire: Any, call: Any, nested: bool) -> None:
    """Tasks of one group may fail in the same moment; no sentence of theirs becomes an internal error."""

    async def fail(what: str) -> None:
        if not nested:
            raise SetupError(f"{what} needs a key", reason="JUDGE_KEY_MISSING")
        async with asyncio.TaskGroup() as group:
            for part in "ab":
                group.create_task(fail_alone(f"{what}{part}"))

    async def fail_alone(what: str) -> None:
        raise SetupError(f"{what} needs a key", reason="JUDGE_KEY_MISSING")

    async def act() -> None:
        async with asyncio.TaskGroup() as group:
            for what in ("first", "second"):
                group.create_task(fail(what))

    channel = await wire.channel(await wire.serve(handlers_that(act)))
    with pytest.raises(SetupError, match=r"^first.? needs a key") as caught, translated():
        await call(channel, "unary_unary")
    assert caught.value.reason == "JUDGE_KEY_MISSING"


async def test_a_defect_beside_a_domain_error_stays_in_the_log(
    wire: Any, call: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A domain error must not hide the defect that came with it."""

    async def fail(error: Exception) -> None:
        raise error

    async def act() -> None:
        async with asyncio.TaskGroup() as group:
            for error in (OverloadedError("full"), ValueError("secret")):
                group.create_task(fail(error))

    channel = await wire.channel(await wire.serve(handlers_that(act)))
    with pytest.raises(InternalError) as caught, translated():
        await call(channel, "unary_unary")
    assert "secret" not in caught.value.message
    assert "secret" in caplog.text


async def test_abort_passes_through(wire: Any, call: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A handler that ends its call itself, as gRPC's own services do, is left alone."""

    async def one(request: Any, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.ABORTED, "by hand")
        return b""

    channel = await wire.channel(await wire.serve({"unary_unary": ("unary_unary", one)}))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, "unary_unary")
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.ABORTED, "by hand")
    assert not caplog.records


async def test_a_client_that_takes_no_status_leaves_no_line_in_the_log(
    wire: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler of a client that does not read ends; the status waits for the client to read on."""
    begun: asyncio.Future[asyncio.Task[Any]] = asyncio.get_running_loop().create_future()

    async def writing(request: Any, context: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result(task)
        await context.write(b"first")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    await context.write(bytes(1_000_000))
        raise OverloadedError("the reader is behind", reason="TOO_SLOW")

    options = ServerOptions(status_stall_s=0.01)
    channel = await wire.channel(await wire.serve({"unary_stream": ("unary_stream", writing)}, options=options))
    messages = aiter(channel.unary_stream(f"/{SERVICE}/unary_stream")(b""))
    await anext(messages)
    await asyncio.wait([await begun])
    with pytest.raises(OverloadedError, match="the reader is behind"), translated():
        async for _ in messages:
            pass
    assert not caplog.records


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_that_failed_is_let_go_of_at_once(wire: Any, call: Any, kind: str) -> None:
    """Without garbage collection: until then it would count among the calls that its connection may have open."""

    async def act() -> None:
        raise OverloadedError("not now")

    channel = await wire.channel(await wire.serve(handlers_that(act)))
    with without_collection():
        for _ in range(20):
            with pytest.raises(OverloadedError), translated():
                await call(channel, kind)
        await until(calls_in_memory, lambda count: count < 5)


@pytest.mark.parametrize("kind", KINDS)
async def test_leaving_client_cancels_the_handler(
    wire: Any, call: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that goes away stops the work at once, and that is no failure worth a log line."""
    caplog.set_level(logging.INFO, logger="assay")
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    channel = await wire.channel(await wire.serve(handlers_that(act)))
    calling = asyncio.ensure_future(call(channel, kind))
    await started.wait()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await cancelled.wait() if kind.startswith("unary_u") else await channel.close()
    await cancelled.wait()
    assert not caplog.records


async def test_generator_is_closed_when_its_client_leaves(wire: Any) -> None:
    """A stream's clean-up runs when the client leaves in the middle, not at garbage collection."""
    closed = asyncio.Event()

    async def generating(request: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 1000
        finally:
            closed.set()

    channel = await wire.channel(await wire.serve({"unary_stream": ("unary_stream", generating)}))
    running = channel.unary_stream(f"/{SERVICE}/unary_stream")(b"", timeout=3600)
    await running.read()
    running.cancel()
    await closed.wait()


async def test_long_call_is_cut_at_the_cap(wire: Any) -> None:
    """A client cannot hold a handler longer than the server allows; an own timeout is a failure."""

    async def long(request: Any, context: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def own_timeout(request: Any, context: Any) -> bytes:
        raise TimeoutError

    handlers = {"long": ("unary_unary", long), "own": ("unary_unary", own_timeout)}
    channel = await wire.channel(await wire.serve(handlers, options=ServerOptions(deadline_cap_s=0.05)))
    with pytest.raises(UnavailableError) as caught, translated():
        await channel.unary_unary(f"/{SERVICE}/long")(b"", timeout=3600)
    assert caught.value.reason == "DEADLINE_EXCEEDED"
    assert "0.05 s" in caught.value.message
    with pytest.raises(InternalError), translated():
        await channel.unary_unary(f"/{SERVICE}/own")(b"", timeout=3600)


async def test_blocking_handler_is_refused(wire: Any, call: Any) -> None:
    """A plain function would block every other call of the process; it is a defect, not slow."""
    handlers = {"unary_unary": ("unary_unary", lambda request, context: b"answer")}
    channel = await wire.channel(await wire.serve(handlers))
    with pytest.raises(InternalError), translated():
        await call(channel, "unary_unary")
