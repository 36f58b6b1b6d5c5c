"""The endpoint where Prometheus reads a process's instruments: HTTP without TLS, in its own threads."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.telemetry.instruments import FAST_S, Gauge, Histogram, begin_export, end_export
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LAG_PROBE_S = 0.25

BUILD = Gauge("assay_build_info", "1, with the service, its role and its version", ("service", "role", "version"))
LOOP_LAG = Histogram(
    "assay_event_loop_lag_seconds",
    f"How late a timer of the event loop is, probed every {_LAG_PROBE_S:g} s",
    buckets=FAST_S,
)


@asynccontextmanager
async def exporting(address: str, *, service: str, role: str = "", names_teams: bool = False) -> AsyncIterator[str]:
    """Serve `/metrics` inside the block, and yield the address with its port; without an address do nothing.

    Args:
        address: HOST:PORT; port 0 takes a free one. Empty for none.
        service: The service's name.
        role: The role of this process, if processes have different roles.
        names_teams: Whether series may name teams.

    Raises:
        SetupError: The address is taken or invalid.
    """
    if not address:
        yield ""
        return
    import prometheus_client as prometheus  # imported here: a process that exports nothing does without it

    registry = prometheus.CollectorRegistry()
    prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
    from assay.telemetry.scrape_server import ScrapeServer  # imported here, like the package that it serves

    host, port = _host_and_port(address)
    try:
        server = ScrapeServer(host, port, registry)
    except OSError as error:
        raise SetupError(f"Cannot serve metrics at {address}: {error}", reason="ADDRESS_TAKEN") from error
    for collector in (prometheus.ProcessCollector, prometheus.PlatformCollector, prometheus.GCCollector):
        collector(registry=registry)
    begin_export(registry, names_teams=names_teams)
    BUILD.series(service, role, __version__).set(1)
    probing = asyncio.create_task(_probe_loop(), name="probe the lag of the event loop")
    try:
        yield f"{host}:{server.port}"
    finally:
        probing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await probing
        end_export()
        await asyncio.to_thread(server.close)


async def _probe_loop() -> None:
    loop, series = asyncio.get_running_loop(), LOOP_LAG.series()
    while True:
        due = loop.time() + _LAG_PROBE_S
        await asyncio.sleep(_LAG_PROBE_S)
        series.observe(max(0.0, loop.time() - due))


def _host_and_port(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65_535:
        raise SetupError(
            f'"{address}" is no address to serve metrics at; use host:port, e.g. 127.0.0.1:9090.', reason="BAD_ADDRESS"
        )
    return host.strip("[]"), int(port)
