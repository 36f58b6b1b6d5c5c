"""Health for probes: the port without TLS or token, and the probe of the containers."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.services.certificates import certificate_for

from assay.rpc.methods import MethodRule, Slots
from assay.rpc.options import ServerOptions
from assay.rpc.server import RpcServer

if TYPE_CHECKING:
    from pathlib import Path


Status = health_pb2.HealthCheckResponse


def unary_unary(behave: Any) -> grpc.GenericRpcHandler:
    """Return the handler of a service with one method."""
    return grpc.method_handlers_generic_handler(
        "assay.test.Service", {"M": grpc.unary_unary_rpc_method_handler(behave)}
    )


async def test_probes_see_a_server_with_tls_until_its_last_call_has_ended(tmp_path: Path) -> None:
    """NOT_SERVING before it is ready and while it drains, without TLS; nothing but health is served there."""
    made = certificate_for("localhost")
    # Clients need a certificate, which probes have as little as a token.
    pair = [(made.key_pem, made.certificate_pem)]
    credentials = grpc.ssl_server_credentials(pair, made.certificate_pem, require_client_auth=True)
    probed = f"unix:{tmp_path}/health.sock"
    server = RpcServer(ServerOptions(credentials=credentials, health_address=probed, reflection=True))
    running, ended = asyncio.Event(), asyncio.Event()

    async def slow(request: bytes, context: Any) -> bytes:
        running.set()
        await ended.wait()
        return b"done"

    def register(grpc_server: grpc.aio.Server) -> None:
        grpc_server.add_generic_rpc_handlers((unary_unary(slow),))

    server.add("assay.test.Service", register, {"M": MethodRule(Slots.CALLS)})
    address = (await server.start("127.0.0.1:0")).replace("127.0.0.1", "localhost")
    trusted = grpc.ssl_channel_credentials(made.certificate_pem, made.key_pem, made.certificate_pem)
    async with grpc.aio.insecure_channel(probed) as probe, grpc.aio.secure_channel(address, trusted) as client:
        health: Any = health_pb2_grpc.HealthStub(probe)

        async def status() -> Any:
            return (await health.Check(health_pb2.HealthCheckRequest(), timeout=30)).status

        assert await status() == Status.NOT_SERVING
        server.set_serving(True)
        assert await status() == Status.SERVING
        for path in ("/assay.test.Service/M", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"):
            elsewhere: Any = probe.unary_unary(path)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await elsewhere(b"", timeout=30)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        method: Any = client.unary_unary("/assay.test.Service/M")
        call = asyncio.ensure_future(method(b"", timeout=60))
        await running.wait()
        stopping = asyncio.ensure_future(server.stop(60))
        await server.stopping.wait()
        assert await status() == Status.NOT_SERVING
        ended.set()
        assert await call == b"done"
        await stopping
        with pytest.raises(grpc.aio.AioRpcError):
            await status()


async def probed(*arguments: str) -> tuple[int | None, str]:
    """Return exit status and words of the probe, called as a container calls it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "assay.rpc.probe", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, words = await process.communicate()
    return process.returncode, words.decode()


async def test_the_probe_says_whether_a_process_takes_work(wire: Any) -> None:
    """0 for a process that serves, 1 with a sentence for a service that it has not, 2 for a wrong command line."""
    address = await wire.serve({})
    assert await probed(address) == (0, "")
    assert await probed(address, "assay.test.Service") == (0, "")
    status, words = await probed(address, "assay.v1.Other")
    assert (status, "does not serve assay.v1.Other" in words) == (1, True)
    status, words = await probed()
    assert (status, words.startswith("usage")) == (2, True)


async def test_the_probe_gives_up_on_whoever_does_not_answer() -> None:
    """It ends before the time that a health check has."""
    status, words = await probed("127.0.0.1:1")
    assert (status, "was not ready after 4 s" in words) == (1, True)
