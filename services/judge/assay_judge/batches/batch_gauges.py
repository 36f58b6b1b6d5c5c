"""The gauges of batches. They are read from the store periodically, so that a scrape costs no query."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from assay.errors import AssayError
from assay_judge.batches.orders import judge_from_client_key
from assay_judge.instruments import BATCH_OLDEST, BATCH_ORDERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

READ_S = 15.0
"""About as often as Prometheus scrapes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PendingBatches:
    """The orders of one judge that its provider has not delivered.

    Args:
        client_key: The key of the judge's provider client.
        orders: Number of orders without an outcome, including those that wait for a batch.
        oldest_at: When the oldest unfinished batch was formed, in seconds since 1970; None without a batch.
    """

    client_key: str
    orders: int
    oldest_at: float | None


class Store(Protocol):
    """The source of the figures."""

    async def pending(self) -> Sequence[PendingBatches]:
        """Return the orders without an outcome."""


@asynccontextmanager
async def batch_gauges(store: Store, *, read_s: float = READ_S) -> AsyncIterator[None]:
    """Keep the gauges of batches up to date inside the block.

    Replicas that share a database report the same figures: aggregate them with `max`.

    Args:
        store: The store of orders and batches.
        read_s: Interval between two reads, in seconds.
    """
    reading = asyncio.create_task(_keep_reading(store, read_s), name="read the figures of batches")
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _keep_reading(store: Store, read_s: float) -> None:
    known: set[str] = set()
    while True:
        try:
            _show(await store.pending(), known, time.time())
        except AssayError as problem:
            _log.warning("cannot read the figures of batches, retrying: %s", problem.message)
        except Exception:  # noqa: BLE001 - the boundary of a task: the loop must not end
            _log.exception("reading the figures of batches failed")
        await asyncio.sleep(read_s)


def _show(pending: Sequence[PendingBatches], known: set[str], now: float) -> None:
    """Set the gauges of every provider seen so far; a provider without orders has 0."""
    orders, oldest = Counter[str](), Counter[str]()
    for judge in pending:
        provider = urlsplit(judge_from_client_key(judge.client_key).url).hostname or ""
        orders[provider] += judge.orders
        if judge.oldest_at is not None:
            oldest[provider] = max(oldest[provider], round(now - judge.oldest_at))
    known.update(orders)
    for provider in known:
        BATCH_ORDERS.series(provider).set(orders[provider])
        BATCH_OLDEST.series(provider).set(oldest[provider])
