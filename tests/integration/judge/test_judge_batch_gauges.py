"""The gauges of batches: what is ordered and not there yet, by provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.judge.test_judge_batch_replicas import FAILED, order_for
from tests.support.processes.waiting import until
from tests.support.services.scraped_metrics import scraped

from assay.telemetry.exporter import exporting
from assay_judge.batches.batch_gauges import BatchGauges
from assay_judge.batches.orders import new_id
from assay_judge.batches.store import BatchStore, Finished
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


ORDERS, OLDEST = "assay_judge_batch_orders", "assay_judge_batch_oldest_seconds"
PROVIDER = ("api.openai.com",)


@pytest.fixture
async def store() -> AsyncIterator[BatchStore]:
    """Where orders and batches are stored."""
    judge_store = await JudgeStore.open(None)
    yield BatchStore(judge_store, 3_600.0)
    await judge_store.aclose()


async def test_orders_and_the_oldest_batch_are_shown_until_they_have_ended(store: BatchStore) -> None:
    """Orders count before they are in a batch and while they are, the age from when it was made up; then both are 0."""
    async with exporting("127.0.0.1:0", service="judge") as address, BatchGauges(store, read_s=0.05):
        orders = [order_for(f"{number}") for number in range(3)]
        for order in orders:
            await store.add(order)
        found = await until(lambda: scraped(address), lambda seen: seen.get(ORDERS) == {PROVIDER: 3})
        assert found[OLDEST] == {PROVIDER: 0}
        record = await store.form(new_id(), orders[0].client_key, most=2, most_chars=10**9)
        assert record is not None
        (batch,) = [one for one in await store.pending() if one.client_key == orders[0].client_key]
        assert batch.orders == 3
        assert batch.oldest_at == pytest.approx(record.created_at)
        taken = await store.orders(record.batch_id)
        await store.finish(record, [Finished(order, FAILED, 0) for order in taken])
        await until(lambda: scraped(address), lambda seen: seen[ORDERS] == {PROVIDER: 1})
        await store.remove(record)
        last = await store.form(new_id(), orders[0].client_key, most=2, most_chars=10**9)
        assert last is not None
        await store.finish(last, [Finished(order, FAILED, 0) for order in await store.orders(last.batch_id)])
        await store.remove(last)
        found = await until(lambda: scraped(address), lambda seen: seen[ORDERS] == {PROVIDER: 0})
        assert await store.pending() == []
        assert found[OLDEST] == {PROVIDER: 0}
