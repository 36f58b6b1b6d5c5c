"""Bytes that are no message, messages that nest too deeply: refused as wrong input, in one line of the log."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from assay.errors import InvalidInputError
from assay.rpc.status import from_rpc_error
from assay.v1 import dataset_pb2, dataset_pb2_grpc, host_pb2, host_pb2_grpc, run_pb2, run_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVICE = "assay.test.Service"
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
