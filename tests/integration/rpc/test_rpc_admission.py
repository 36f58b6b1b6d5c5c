from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from assay.errors import InvalidInputError, OverloadedError, SetupError
from assay.identity.caller import Identity
from assay.identity.rights import Right, Role
from assay.rpc.channel import read_stream
from assay.rpc.methods import MethodRule, Slots
from assay.rpc.options import ServerOptions
from assay.rpc.status import from_rpc_error, translated
from assay.v1 import dataset_pb2, dataset_pb2_grpc, host_pb2, host_pb2_grpc, run_pb2, run_pb2_grpc

SERVICE = "assay.test.Service"


class Busy:
    """Handlers that wait until they are let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.started = asyncio.Event()
        self.handlers = {"One": ("unary_unary", self.one), "Many": ("unary_stream", self.many)}

    async def one(self, request: Any, context: Any) -> bytes:
        self.started.set()
        await self.let_go.wait()
        return b"done"

    async def many(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await self.let_go.wait()


async def busy_channel(wire: Any, busy: Busy) -> Any:
    options = ServerOptions(max_concurrent_calls=1, max_open_streams=1)
    return await wire.channel(await wire.serve(busy.handlers, options=options))


async def test_call_over_the_limit_is_refused_and_a_later_one_served(wire: Any) -> None:
    """Overload is refused at the door, with the time after which to come again."""
    busy = Busy()
    one: Any = (await busy_channel(wire, busy)).unary_unary(f"/{SERVICE}/One")
    running = asyncio.ensure_future(one(b""))
    await busy.started.wait()
    with pytest.raises(OverloadedError) as caught, translated():
        await one(b"")
    assert (caught.value.reason, caught.value.retry_after_s) == ("OVERLOADED", 1.0)
    busy.let_go.set()
    assert await running == b"done"
    assert await one(b"") == b"done"


class Teams:
    """Knows each team by its name as a token, and has calls of one of them wait before they are admitted."""

    async def authenticate(self, text: str) -> Identity:
        """Return the team that the token names."""
        return Identity(text, Role.RUNNER, text)

    async def admit(self, team: str) -> None:
        """Admit a call, or have it wait until it is cancelled."""
        if team == "flood":
            await asyncio.Event().wait()


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
async def test_calls_that_wait_to_be_admitted_leave_slots_for_other_teams(wire: Any, tmp_path: Path, kind: str) -> None:
    """They hold slots, so that they count for their team; one whose deadline passes gives its slot back."""
    busy, teams = Busy(), Teams()
    busy.let_go.set()
    options = ServerOptions(max_concurrent_calls=5, max_open_streams=5, authenticator=teams, team_admission=teams)
    rule = MethodRule(Slots.CALLS, right=Right.READ, server_streams=kind.endswith("stream"))
    handler = busy.one if kind == "unary_unary" else busy.many
    server = wire.server({"M": (kind, handler)}, options=options, rules={"M": rule})
    channel = await wire.channel(await server.start(f"unix:{tmp_path}/s.sock"))

    async def call(team: str, timeout_s: float | None = None) -> None:
        found = getattr(channel, kind)(f"/{SERVICE}/M")(
            b"", timeout=timeout_s, metadata=[("authorization", f"Bearer {team}")]
        )
        with translated():
            await (found if kind == "unary_unary" else found.read())

    for _ in range(2):
        flood = [asyncio.create_task(call("flood", 0.5)) for _ in range(5)]
        done, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        assert [type(each.exception()) for each in done] == [OverloadedError]
        await call("calm")
        ended = await asyncio.gather(*flood, return_exceptions=True)
        assert sum("deadline" in str(each) for each in ended) == 4


async def test_streams_and_calls_have_separate_limits(wire: Any) -> None:
    """Open streams, which may last for hours, take no place from short calls."""
    busy = Busy()
    channel = await busy_channel(wire, busy)
    many: Any = channel.unary_stream(f"/{SERVICE}/Many")
    async with read_stream(many(b"")) as messages:
        assert await anext(messages) == b"first"
        with pytest.raises(OverloadedError), translated():
            await many(b"").read()
        busy.let_go.set()
        assert await channel.unary_unary(f"/{SERVICE}/One")(b"") == b"done"


async def test_busy_server_still_answers_health(wire: Any) -> None:
    """A merely busy process is not restarted by its supervisor."""
    busy = Busy()
    channel = await busy_channel(wire, busy)
    running = asyncio.ensure_future(channel.unary_unary(f"/{SERVICE}/One")(b""))
    await busy.started.wait()
    health: Any = health_pb2_grpc.HealthStub(channel)
    for _ in range(3):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    busy.let_go.set()
    await running


@pytest.mark.parametrize("reflection", [True, False])
async def test_reflection_is_configurable(wire: Any, reflection: bool) -> None:
    """Tools may ask for the contracts only where the operator wants it."""
    address = await wire.serve(Busy().handlers, options=ServerOptions(reflection=reflection))
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(await wire.channel(address))
    requests = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    async with read_stream(stub.ServerReflectionInfo(requests)) as answers:
        if not reflection:
            with pytest.raises(SetupError, match="does not know this call"), translated():
                await anext(answers)
            return
        listed = await anext(answers)
    assert SERVICE in {service.name for service in listed.list_services_response.service}


RUN_SERVICE = "assay.v1.RunService"
MALFORMED = {
    "no message": b"\xff\xff\xff\xff",
    "bad UTF-8 in a string": b"\x0a\x02\xff\xfe",
    "cut off": b"\x0a\x7fabc",
    "groups in groups": b"\x0b" * 200,
}
METHODS = {
    "unary_unary": f"{RUN_SERVICE}/GetRun",
    "unary_stream": f"{RUN_SERVICE}/WatchRun",
    "stream_unary": "assay.v1.DatasetService/UploadDataset",
    "stream_stream": "assay.v1.HostService/Host",
}


class Reading(
    run_pb2_grpc.RunServiceServicer, dataset_pb2_grpc.DatasetServiceServicer, host_pb2_grpc.HostServiceServicer
):
    """Reads everything that clients send, and answers."""

    async def GetRun(self, request: Any, context: Any) -> run_pb2.GetRunResponse:  # noqa: N802
        return run_pb2.GetRunResponse()

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[run_pb2.WatchRunResponse]:  # noqa: N802
        yield run_pb2.WatchRunResponse()

    async def UploadDataset(self, request_iterator: Any, context: Any) -> dataset_pb2.UploadDatasetResponse:  # noqa: N802
        async for _ in request_iterator:
            pass
        return dataset_pb2.UploadDatasetResponse()

    async def Host(self, request_iterator: Any, context: Any) -> AsyncIterator[host_pb2.HostResponse]:  # noqa: N802
        async for _ in request_iterator:
            yield host_pb2.HostResponse()


async def reading_channel(wire: Any) -> Any:
    servicer = Reading()  # type: ignore[abstract]  # the other methods are not called
    return await wire.channel(
        await wire.serve_runs(
            servicer,
            {
                "assay.v1.DatasetService": dataset_pb2_grpc.add_DatasetServiceServicer_to_server,
                "assay.v1.HostService": host_pb2_grpc.add_HostServiceServicer_to_server,
            },
        )
    )


async def refused(channel: grpc.aio.Channel, kind: str, *messages: bytes) -> grpc.aio.AioRpcError:
    """Return how a call ends that sends these bytes."""
    method: Any = getattr(channel, kind)(f"/{METHODS[kind]}")
    call = method(iter(messages) if kind.startswith("stream") else messages[0], timeout=60)
    try:
        if kind.endswith("stream"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call succeeded")


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
async def test_bytes_that_are_no_message_are_wrong_input(
    wire: Any, kind: str, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """INVALID_ARGUMENT with its reason, one line in the log and no traceback, whatever kind the method is of."""
    channel = await reading_channel(wire)
    error = await refused(channel, kind, raw)
    rebuilt = from_rpc_error(error)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (type(rebuilt), rebuilt.reason) == (InvalidInputError, "MALFORMED_REQUEST")
    assert [(record.levelno, record.exc_info) for record in caplog.records] == [(logging.WARNING, None)]
    assert METHODS[kind].rpartition("/")[2] in caplog.records[0].getMessage()


@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
async def test_a_malformed_message_later_in_a_stream_ends_it_likewise(wire: Any, kind: str) -> None:
    """Each message of a stream is decoded where its failure is caught."""
    channel = await reading_channel(wire)
    error = await refused(channel, kind, b"", b"", MALFORMED["no message"])
    assert from_rpc_error(error).reason == "MALFORMED_REQUEST"


async def test_what_nests_too_deeply_for_a_handler_is_wrong_input(wire: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A text of JSON that nests 100,000 deep costs one line that says where it was read, not a traceback."""

    async def parsing(request: Any, context: Any) -> bytes:
        return str(json.loads(request)).encode()

    channel = await wire.channel(await wire.serve({"unary_unary": ("unary_unary", parsing)}))
    method = channel.unary_unary(f"/{SERVICE}/unary_unary")
    assert await method(b"[[]]", timeout=60) == b"[[]]"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await method(b"[" * 100_000, timeout=60)
    assert from_rpc_error(caught.value).reason == "MALFORMED_REQUEST"
    assert [record.exc_info for record in caplog.records] == [None]
    assert Path(json.decoder.__file__).name in caplog.records[0].getMessage()


async def test_an_unknown_method_is_unimplemented(wire: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What has no rule is not served."""
    channel = await reading_channel(wire)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(f"/{RUN_SERVICE}/Nothing")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert not caplog.records
