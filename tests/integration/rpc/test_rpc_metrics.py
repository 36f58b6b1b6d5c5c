"""What a server counts of its calls, read as Prometheus reads it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from prometheus_client import CollectorRegistry
from tests.support.processes.waiting import until
from tests.support.services.scraped_metrics import scraped

from assay.errors import NotFoundError, SetupError
from assay.telemetry.exporter import exporting
from assay.telemetry.instruments import MAX_LABEL_VALUES, bounded_label, is_exporting, team_label
from assay.telemetry.scrape_server import MOST_REQUESTS, ScrapeServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.integration.rpc.conftest import Wire


async def answer(request: bytes, context: Any) -> bytes:
    """Answer, or fail as the request says."""
    if request == b"missing":
        raise NotFoundError("there is none")
    if request == b"defect":
        raise ZeroDivisionError("in the handler")
    return request


async def pieces(request: bytes, context: Any) -> AsyncIterator[bytes]:
    """Answer twice."""
    yield request
    yield request


async def test_calls_are_counted_by_method_and_code_and_timed(wire: Wire) -> None:
    """Domain errors, defects and cancelled calls have the code that their client sees; streams are not timed."""
    begun = asyncio.Event()

    async def hang(request: bytes, context: Any) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    async with exporting("127.0.0.1:0", service="test", role="api") as address:
        handlers = {"Ask": ("unary_unary", answer), "Hang": ("unary_unary", hang), "Read": ("unary_stream", pieces)}
        channel = await wire.channel(await wire.serve(handlers))
        ask: Any = channel.unary_unary("/assay.test.Service/Ask")
        for request in (b"a", b"b", b"missing", b"defect"):
            call = ask(request)
            if request in (b"a", b"b"):
                assert await call == request
            else:
                with pytest.raises(grpc.aio.AioRpcError):
                    await call
        read: Any = channel.unary_stream("/assay.test.Service/Read")
        assert [one async for one in read(b"x")] == [b"x", b"x"]
        hang_up: Any = channel.unary_unary("/assay.test.Service/Hang")
        hanging = hang_up(b"")
        await begun.wait()
        found = await scraped(address)
        assert found["assay_rpc_calls_in_flight"]["Service/Hang",] == 1
        hanging.cancel()
        found = await until(
            lambda: scraped(address),
            lambda seen: seen["assay_rpc_calls_total"].get(("CANCELLED", "Service/Hang")),
        )
    calls = found["assay_rpc_calls_total"]
    assert {labels: count for labels, count in calls.items() if labels[1] == "Service/Ask"} == {
        ("OK", "Service/Ask"): 2, ("NOT_FOUND", "Service/Ask"): 1, ("INTERNAL", "Service/Ask"): 1
    }  # fmt: skip
    assert calls["OK", "Service/Read"] == 1
    assert found["assay_rpc_duration_seconds_count"]["Service/Ask",] == 4
    assert ("Service/Read",) not in found["assay_rpc_duration_seconds_count"]
    assert set(found["assay_rpc_calls_in_flight"].values()) == {0}
    assert [labels[:2] for labels in found["assay_build_info"]] == [("api", "test")]
    assert {"assay_event_loop_lag_seconds_count", "process_cpu_seconds_total"} <= set(found)


async def test_without_an_address_nothing_is_recorded(wire: Wire) -> None:
    """Handlers are not wrapped, and what a former export has counted does not come again with the next."""
    async with exporting("", service="test") as address:
        assert (address, is_exporting()) == ("", False)
        channel = await wire.channel(await wire.serve({"Ask": ("unary_unary", answer)}))
        call: Any = channel.unary_unary("/assay.test.Service/Ask")
        assert await call(b"a") == b"a"
    async with exporting("127.0.0.1:0", service="test") as address:
        found = await scraped(address)
    assert "assay_rpc_calls_total" not in found


async def test_an_address_that_is_taken_or_none_is_a_sentence() -> None:
    """The process does not start."""
    async with exporting("127.0.0.1:0", service="test") as address:
        with pytest.raises(SetupError, match="Cannot serve metrics at"):
            async with exporting(address, service="test"):
                pass
    with pytest.raises(SetupError, match="use host:port"):
        async with exporting("nowhere", service="test"):
            pass


async def test_labels_of_callers_are_bounded_and_teams_named_on_request_alone() -> None:
    """Each value is a series for ever: after 200 all further ones are one."""
    async with exporting("127.0.0.1:0", service="test"):
        assert team_label("red") == ""
        values = [bounded_label("model", f"m{number}") for number in range(MAX_LABEL_VALUES + 5)]
        assert values[-6:] == [f"m{MAX_LABEL_VALUES - 1}", *["other"] * 5]
        assert bounded_label("model", "m0") == "m0"
    async with exporting("127.0.0.1:0", service="test", names_teams=True):
        assert team_label("red") == "red"


class Broken:
    """A collector that fails."""

    def collect(self) -> Iterator[Any]:
        """Raise."""
        raise RuntimeError("no figures")


def received(server: ScrapeServer, request: bytes) -> bytes:
    """Return all that a server sends after a request on a connection of its own."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(request)
        with contextlib.suppress(ConnectionError):
            return b"".join(iter(lambda: connection.recv(65_536), b""))
    return b""


def test_a_request_that_fails_is_a_record_of_the_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """No traceback is written beside the log, whose records are JSON; a client that goes away is in no record."""
    registry = CollectorRegistry(auto_describe=False)
    server = ScrapeServer("127.0.0.1", 0, registry)
    try:
        assert b"200 OK" in received(server, b"GET / HTTP/1.0\r\n\r\n")
        registry.register(Broken())
        assert b"500 Internal Server Error" in received(server, b"GET / HTTP/1.0\r\n\r\n")
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            gone.sendall(b"GET /")
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        assert b"500 Internal Server Error" in received(server, b"GET / HTTP/1.0\r\n\r\n")
    finally:
        server.close()
    shown = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert [(record.getMessage(), record.exc_info is not None) for record in shown] == [
        ("request for metrics failed", True)
    ] * 2
    assert "Traceback" not in capfd.readouterr().err


def test_requests_for_metrics_at_once_are_bounded() -> None:
    """Connections that say nothing hold a few threads and no more; once one ends, the next request is answered."""
    server = ScrapeServer("127.0.0.1", 0, CollectorRegistry())
    with contextlib.ExitStack() as silent:
        silent.callback(server.close)
        held = [
            silent.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(MOST_REQUESTS)
        ]
        assert received(server, b"GET / HTTP/1.0\r\n\r\n") == b""
        held[0].close()
        answers = iter(lambda: received(server, b"GET / HTTP/1.0\r\n\r\n"), None)
        assert b"200 OK" in next(filter(None, answers))
