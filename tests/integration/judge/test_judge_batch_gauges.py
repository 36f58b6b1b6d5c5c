"""The gauges of batches: what is ordered and not there yet by provider, over one store or one that replicas share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.judge.test_judge_batch_replicas import FAILED, order_for
from tests.support.processes.waiting import until
from tests.support.services.scraped_metrics import scraped

from assay.telemetry.exporter import exporting
from assay_judge.batches.batch_gauges import batch_gauges
from assay_judge.batches.orders import new_id
from assay_judge.batches.shared_store import SharedBatchStore
from assay_judge.batches.store import BatchStore, Finished
from assay_judge.state.shared.store import SharedStore
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay_judge.batches.store import OrderStore

ORDERS, OLDEST = "assay_judge_batch_orders", "assay_judge_batch_oldest_seconds"
PROVIDER = ("api.openai.com",)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OrderStore]:
    """Where orders and batches of one process are kept, and of many."""
    if request.param == "sqlite":
        own = await JudgeStore.open(tmp_path)
        yield await BatchStore.open(own, time.time())
        await own.aclose()
    else:
        shared = await SharedStore.open(request.getfixturevalue("postgres_url"), path=Path("unused"))
        yield SharedBatchStore(shared.database, 3_600.0)
        await shared.aclose()


async def test_orders_and_the_oldest_batch_are_shown_until_they_have_ended(store: OrderStore) -> None:
    """Orders count before they are in a batch and while they are, the age from when it was made up; then both are 0."""
    async with exporting("127.0.0.1:0", service="judge") as address, batch_gauges(store, read_s=0.05):
        orders = [order_for(f"{number}") for number in range(3)]
        for order in orders:
            await store.add(order, time.time())
        found = await until(lambda: scraped(address), lambda seen: seen.get(ORDERS) == {PROVIDER: 3})
        assert found[OLDEST] == {PROVIDER: 0}
        began = time.time() - 100
        formed = await store.form(new_id(), orders[0].client_key, began, most=2, most_chars=10**9)
        assert formed is not None
        record, items = formed
        (batch,) = [one for one in await store.pending() if one.client_key == orders[0].client_key]
        assert batch.orders == 3
        assert batch.oldest_at == pytest.approx(record.created_at)
        taken = [order for order in orders if order.item_id in items]
        await store.finish(record, [Finished(order, FAILED, 0) for order in taken], time.time())
        await until(lambda: scraped(address), lambda seen: seen[ORDERS] == {PROVIDER: 1})
        await store.remove(record)
        (rest,) = [order for order in orders if order.item_id not in items]
        last = await store.form(new_id(), rest.client_key, began, most=2, most_chars=10**9)
        assert last is not None
        await store.finish(last[0], [Finished(rest, FAILED, 0)], time.time())
        await store.remove(last[0])
        found = await until(lambda: scraped(address), lambda seen: seen[ORDERS] == {PROVIDER: 0})
        assert await store.pending() == []
        assert found[OLDEST] == {PROVIDER: 0}
