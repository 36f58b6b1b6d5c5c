"""The gauges of the queue: read from the database periodically, so that a scrape costs no query."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from assay.process.periodic_check import PeriodicCheck
from assay.telemetry.instruments import team_label
from assay_orchestrator import instruments
from assay_orchestrator.store.shards.queue_figures import read_queue_figures

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

    from assay_orchestrator.store.shards.queue_figures import QueueFigures

READ_S = 15.0
"""Prometheus scrapes about this often; nothing is read in between."""


class Store(Protocol):
    """The source of the figures."""

    async def read(self, query: Callable[[sa.Connection], QueueFigures]) -> QueueFigures:
        """Return the result of a query."""


class QueueGauges(PeriodicCheck):
    """Keeps the gauges of the queue up to date, with every series that was ever set: an empty one becomes 0.

    All processes report the same figures: aggregate them with `max`.

    Args:
        database: The store.
        read_s: Time between two reads, in seconds.
    """

    def __init__(self, database: Store, *, read_s: float = READ_S) -> None:
        super().__init__("read the figures of the queue", read_s, at_once=True)
        self._database = database
        self._runs: set[tuple[str, str, str]] = set()
        self._rows: set[tuple[str, str]] = set()

    async def check(self) -> None:
        """Read the figures and set the gauges."""
        self._show(await self._database.read(read_queue_figures), time.time())

    def _show(self, figures: QueueFigures, now: float) -> None:
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
