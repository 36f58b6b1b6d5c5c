"""Cost per call of admission, tokens, TLS, metrics and traces: servers with one method take turns.

The method returns an empty list at once, over loopback. In many short rounds, the processor time of a call, client and
server together, is divided by that of the bare server in the same round. The figures are medians, for sequential calls
and for 32 concurrent calls. The bare server is gRPC's own without an interceptor; the store
of the tokens is a real SQLite file. Spans are sent to a collector in another process before a round ends. Without a
sampler of the operator, one in a hundred of these calls is recorded, and each where its caller records a trace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import operator
import os
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc.aio
from benchmarks.saved_figures import save
from benchmarks.span_sink import taking_spans
from tests.support.services.certificates import certificate_for

from assay.identity.rights import Role
from assay.identity.tokens import Token, new_token
from assay.rpc.channel import open_channel
from assay.rpc.options import ChannelOptions, ServerOptions
from assay.rpc.server import RpcServer
from assay.rpc.tls import ClientFiles, ServerFiles
from assay.telemetry import tracing as process_tracing
from assay.telemetry.exporter import exporting
from assay.telemetry.instruments import is_exporting
from assay.telemetry.tracing import TRACEPARENT, is_tracing, tracing
from assay.v1 import comparison_pb2 as pb
from assay.v1 import comparison_pb2_grpc
from assay_orchestrator.identity.verifier import TokenVerifier
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.teams import tokens

IN_FLIGHT = (1, 32)
_IN_A_TRACE = ((TRACEPARENT, f"00-{1:032x}-{1:016x}-01"),)
_BARE, _TRACES, _EACH = "bare", ", traces", ", each call in one"


class Instant(comparison_pb2_grpc.ComparisonServiceServicer):
    """A service that answers at once."""

    async def ListBaselines(self, request: Any, context: Any) -> pb.ListBaselinesResponse:  # noqa: N802
        """Return nothing."""
        return pb.ListBaselinesResponse()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--calls", type=int, default=320, help="calls per round")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="assay-identity-") as folder:
        figures = asyncio.run(measure(Path(folder), options.rounds, options.calls))
    print(json.dumps(figures, indent=1))
    save(options.json, figures)


async def measure(folder: Path, rounds: int, calls: int) -> Mapping[str, Any]:
    """Return the processor time of a call in microseconds, and its ratio to the bare server's, by server."""
    figures: dict[str, Any] = {}
    async with serving(folder) as channels:
        stubs = {name: comparison_pb2_grpc.ComparisonServiceStub(channel) for name, channel in channels.items()}
        for in_flight in IN_FLIGHT:
            times: dict[str, list[float]] = {name: [] for name in stubs}
            for _ in range(rounds):
                for name, stub in stubs.items():
                    times[name].append(await timed(stub, calls, in_flight, name))
            figures[f"{in_flight} in flight"] = {
                name: {
                    "call_us": round(statistics.median(seconds) * 1e6, 1),
                    "ratio": round(statistics.median(map(operator.truediv, seconds, times[_BARE])), 3),
                }
                for name, seconds in times.items()
            }
    return figures


async def timed(stub: Any, calls: int, in_flight: int, name: str) -> float:
    """Return the processor time of a call in seconds."""
    metadata = _IN_A_TRACE if name.endswith(_EACH) else None

    async def some() -> None:
        for _ in range(calls // in_flight):
            await stub.ListBaselines(pb.ListBaselinesRequest(), metadata=metadata)

    await stub.ListBaselines(pb.ListBaselinesRequest())
    start = time.process_time()
    await asyncio.gather(*(some() for _ in range(in_flight)))
    if _TRACES in name:
        await asyncio.to_thread(send_spans)
    return (time.process_time() - start) / (calls // in_flight * in_flight)


def send_spans() -> None:
    """Send the spans of a round."""
    tracer: Any = process_tracing._process.tracer  # noqa: SLF001 - services send them by themselves, every five seconds
    tracer.span_processor.force_flush()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Mapping[str, grpc.aio.Channel]]:
    """Yield a channel to each server."""
    database = open_database(Settings(database=folder / "assay.db"))
    token = new_token()
    await database.write(lambda connection: store(connection, token))
    certificate = certificate_for("localhost")
    (folder / "c.pem").write_bytes(certificate.certificate_pem)
    (folder / "c.key").write_bytes(certificate.key_pem)
    known = ServerOptions(reflection=False, authenticator=TokenVerifier(database))
    files = ServerFiles(folder / "c.pem", folder / "c.key")
    servers = {
        "admission": (ServerOptions(reflection=False), ChannelOptions()),
        "admission, a token that is not read": (ServerOptions(reflection=False), ChannelOptions(token=token.text)),
        "tokens": (known, ChannelOptions(token=token.text)),
        "tokens and TLS": (
            replace(known, tls=files),
            ChannelOptions(token=token.text, tls=ClientFiles(folder / "c.pem")),
        ),
    }
    # Exporting metrics is switched on for the whole process before these servers start, and spans after them.
    counted = {f"{name}, metrics": servers[name] for name in ("admission", "tokens and TLS")}
    traced = {f"tokens and TLS, metrics{part}": servers["tokens and TLS"] for part in (_TRACES, _TRACES + _EACH)}
    async with AsyncExitStack() as stack:
        stack.callback(database.close)
        channels = {_BARE: await bare(stack)}
        for name, (options, channel_options) in (servers | counted | traced).items():
            if name in counted and not is_exporting():
                await stack.enter_async_context(exporting("127.0.0.1:0", service="benchmark"))
            if name in traced and not is_tracing():
                os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = await stack.enter_async_context(taking_spans())
                stack.enter_context(tracing("benchmark"))
            server = RpcServer(options)
            server.add("assay.v1.ComparisonService", register)
            address = await server.start("127.0.0.1:0")
            stack.push_async_callback(server.stop, 0)
            reached = address.replace("127.0.0.1", "localhost")
            channels[name] = await stack.enter_async_context(open_channel(reached, channel_options))
        yield channels


async def bare(stack: AsyncExitStack) -> grpc.aio.Channel:
    """Return a channel to a server without an interceptor."""
    server = grpc.aio.server()
    register(server)
    port = server.add_insecure_port("localhost:0")
    await server.start()
    stack.push_async_callback(server.stop, None)
    return await stack.enter_async_context(open_channel(f"localhost:{port}"))


def register(server: grpc.aio.Server) -> None:
    """Add the service to a server."""
    servicer = Instant()  # type: ignore[abstract]  # the other methods are not called
    comparison_pb2_grpc.add_ComparisonServiceServicer_to_server(servicer, server)


def store(connection: Any, token: Token) -> None:
    """Store a team with a token."""
    tokens.create_team(connection, "measured")
    tokens.create_token(connection, token, tokens.NewToken("measured", Role.RUNNER, "benchmark"))


if __name__ == "__main__":
    main()
