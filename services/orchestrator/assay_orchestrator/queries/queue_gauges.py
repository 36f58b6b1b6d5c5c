"""The gauges of the queue: read from the database periodically, so that a scrape costs no query."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from assay.errors import AssayError
from assay.telemetry.instruments import team_label
from assay_orchestrator import instruments
from assay_orchestrator.store.shards.queue_figures import read_queue_figures

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import sqlalchemy as sa

    from assay_orchestrator.store.shards.queue_figures import QueueFigures

READ_S = 15.0
"""Prometheus scrapes about this often; nothing is read in between."""

_log = logging.getLogger(__name__)


class Store(Protocol):
    """The source of the figures."""

    async def read(self, query: Callable[[sa.Connection], QueueFigures]) -> QueueFigures:
        """Return the result of a query."""


@asynccontextmanager
async def queue_gauges(database: Store, *, read_s: float = READ_S) -> AsyncIterator[None]:
    """Keep the gauges of the queue up to date inside the block.

    Every process that does this has the same figures, so readers take one of them, by `max`.

    Args:
        database: The store.
        read_s: How often the figures are read, in seconds.
    """
    reading = asyncio.create_task(_keep_reading(database, read_s), name="read the figures of the queue")
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _keep_reading(database: Store, read_s: float) -> None:
    gauges = _Gauges()
    while True:
        try:
            gauges.show(await database.read(read_queue_figures), time.time())
        except AssayError as problem:
            _log.warning("cannot read the figures of the queue, retrying: %s", problem.message)
        except Exception:  # noqa: BLE001 - the boundary of a task: the loop must not end
            _log.exception("reading the figures of the queue failed")
        await asyncio.sleep(read_s)


class _Gauges:
    """The gauges, with every series that was ever set: a series with nothing left becomes 0."""

    def __init__(self) -> None:
        self._runs: set[tuple[str, str, str]] = set()
        self._rows: set[tuple[str, str]] = set()

    def show(self, figures: QueueFigures, now: float) -> None:
        """Set them to figures read at a time, in seconds since 1970."""
        counts, rows = Counter[tuple[str, str, str]](), Counter[tuple[str, str]]()
        for run_figures in figures.runs:
            team = team_label(run_figures.team)
            counts[team, run_figures.state, run_figures.cause] += run_figures.count
            rows[team, run_figures.state] += run_figures.unfinished_rows
        self._runs |= counts.keys()
        self._rows |= rows.keys()
        for labels in self._runs:
            instruments.RUNS.series(*labels).set(counts[labels])
        for pair in self._rows:
            instruments.UNFINISHED_ROWS.series(*pair).set(rows[pair])
        for state in ("waiting", "queued", "taken"):
            instruments.QUEUED_SHARDS.series(state).set(figures.shards.get(state, 0))
        instruments.OLDEST_PENDING.series().set(_age_s(figures.oldest_pending_at, now))
        instruments.PROCESSES.series().set(figures.processes)
        instruments.READ_AT.series().set(now)


def _age_s(moment: str, now: float) -> float:
    if not moment:
        return 0.0
    created_at = datetime.fromisoformat(moment)
    return max(0.0, now - (created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)).timestamp())
