"""Clients that open streams by the thousand and say nothing, or read nothing: others are served meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import await_end, run_cases

from assay.client.client import Client
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import RunState
from assay.rpc.channel import open_channel
from assay.rpc.options import ChannelOptions
from assay.rpc.status import from_rpc_error
from assay.v1 import dataset_pb2_grpc, host_pb2_grpc, row_pb2, run_pb2_grpc
from assay.v1 import run_pb2 as pb
from assay_orchestrator.watch.watches import Watches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from assay.model.run import RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

CONNECTION_COUNT = 16  # of which each may have 128 open calls
UPLOAD_COUNT = HOST_COUNT = 896
WATCH_COUNT = 208
ENDS = {"FIRST_MESSAGE_TIMEOUT", "OVERLOADED", "WATCH_TOO_SLOW"}
BUSY = {"CANCELLED"}  # what gRPC ends by itself where a machine is too busy to accept all within half a minute
CASES = [
    Case(f"c{n}", (Turn("q", references=("a",)),), recordings=((AgentResponse(text="a" * 1000),),)) for n in range(300)
]


@pytest.fixture
def database_url() -> str:
    """The limits of streams do not know which database there is: a file does."""
    return ""


@asynccontextmanager
async def forwarded(address: str, source: str) -> AsyncIterator[str]:
    """Yield an address that leads to another; whoever connects there comes from the address `source`."""
    host, _, port = address.rpartition(":")
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        pumps.update((asyncio.create_task(pump(reader, up_writer)), asyncio.create_task(pump(up_reader, writer))))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def reason_of(call: Any) -> str:
    """Return why a call ended, reading what is left of it."""
    try:
        if isinstance(call, grpc.aio.StreamUnaryCall):
            await call
        else:
            async for _ in call:
                pass
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).reason
    return ""


def open_watches() -> int:
    """Return how many watches this process serves."""
    code = Watches.follow.__code__
    return sum(
        1 for each in gc.get_objects() if type(each) is AsyncGeneratorType and each.ag_code is code and each.ag_frame
    )


async def silent_calls(stack: AsyncExitStack, address: str, run_id: str) -> tuple[list[Any], list[Any]]:
    """Open streams from several connections: watchers that read nothing; uploads and hosts that say nothing."""
    watches: list[Any] = []
    others: list[Any] = []
    request = pb.WatchRunRequest(run_id=run_id, view=row_pb2.ROW_VIEW_FULL)
    for number in range(CONNECTION_COUNT):
        # Channels with the same options would share one connection.
        options = ChannelOptions(reconnect_min_ms=100 + number)
        channel = await stack.enter_async_context(open_channel(address, options))
        stub: Any = run_pb2_grpc.RunServiceStub(channel)
        uploads: Any = dataset_pb2_grpc.DatasetServiceStub(channel)
        hosts: Any = host_pb2_grpc.HostServiceStub(channel)
        watches += [stub.WatchRun(request, timeout=3600) for _ in range(WATCH_COUNT // CONNECTION_COUNT)]
        others += [uploads.UploadDataset(timeout=3600) for _ in range(UPLOAD_COUNT // CONNECTION_COUNT)]
        others += [hosts.Host(timeout=3600) for _ in range(HOST_COUNT // CONNECTION_COUNT)]
    return watches, others


async def served(client: Client, settings: RunSpec) -> None:
    """Do everything that a user does."""
    dataset = await client.upload_dataset(CASES[:3], name="mine")
    run = await client.create_run(settings, dataset.dataset_id)
    await await_end(client, run.run_id)
    assert (await client.get_run(run.run_id)).state is RunState.COMPLETED


async def test_thousands_of_silent_streams_leave_everybody_served(serve: Serve, settings_of: SettingsOf) -> None:
    """One address fills its share; another uploads, creates and watches runs meanwhile, and so can the first after."""
    async with (
        serve(listen="127.0.0.1:0", first_message_s=20.0, watch_stall_s=3.0) as client,
        AsyncExitStack() as stack,
    ):
        run = await run_cases(client, settings_of(), CASES)
        watches, others = await silent_calls(stack, client.address, run.run_id)
        ends = [asyncio.ensure_future(reason_of(call)) for call in others]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        forwarder = await stack.enter_async_context(forwarded(client.address, "127.0.0.2"))
        await served(await stack.enter_async_context(Client(forwarder)), settings_of())
        assert not all(end.done() for end in ends), "the other address was served while silent streams were open"
        await client.get_run(run.run_id)  # streams take no slots of calls
        reasons = Counter(await asyncio.gather(*ends))
        await until(open_watches, lambda left: not left)
        reasons += Counter(await asyncio.gather(*map(reason_of, watches)))
        await served(client, settings_of())
    assert set(reasons) <= ENDS | BUSY
    assert sum(reasons[end] for end in BUSY) < len(others) / 2
    assert reasons["OVERLOADED"]
    assert reasons["FIRST_MESSAGE_TIMEOUT"]
    assert reasons["WATCH_TOO_SLOW"]
