"""The gauges of batches. They are read from the store periodically, so that a scrape costs no query."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from assay.process.periodic_check import PeriodicCheck
from assay_judge.batches.orders import judge_from_client_key
from assay_judge.instruments import BATCH_OLDEST, BATCH_ORDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

READ_S = 15.0
"""About as often as Prometheus scrapes."""


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


class BatchGauges(PeriodicCheck):
    """Keeps the gauges of batches up to date.

    Replicas that share a database report the same figures: aggregate them with `max`.

    Args:
        store: The store of orders and batches.
        read_s: Time between two reads, in seconds.
    """

    def __init__(self, store: Store, *, read_s: float = READ_S) -> None:
        super().__init__("read the figures of batches", read_s, at_once=True)
        self._store = store
        self._known: set[str] = set()

    async def check(self) -> None:
        """Set the gauges of every provider seen so far; a provider without orders has 0."""
        pending, now = await self._store.pending(), time.time()
        orders, oldest = Counter[str](), Counter[str]()
        for judge in pending:
            provider = urlsplit(judge_from_client_key(judge.client_key).url).hostname or ""
            orders[provider] += judge.orders
            if judge.oldest_at is not None:
                oldest[provider] = max(oldest[provider], round(now - judge.oldest_at))
        self._known.update(orders)
        for provider in self._known:
            BATCH_ORDERS.series(provider).set(orders[provider])
            BATCH_OLDEST.series(provider).set(oldest[provider])
