"""What runs have spent, as the store keeps it: amounts from 0 to the largest one, whatever was reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio
import sqlalchemy as sa

from assay.identity.quotas import MAX_AMOUNT, Quota
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef
from assay.model.scope import Scope
from assay_orchestrator.identity.admin_service import status_of
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.teams import allotments, quotas, spending
from assay_orchestrator.store.teams.allotments import NOTHING, Amount, Holder, Shortage
from assay_orchestrator.store.teams.spending import Spent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from assay.storage.database import Database

TEAM = "search"
RUNS = ("one", "two", "three")


@pytest_asyncio.fixture
async def store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a database with some runs of a team."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "u", 0, [("c", datasets.case_text(Case("c", (Turn("q"),))))])
        datasets.finish_upload(connection, Scope(TEAM), "u", DatasetRef("d", "d", "jsonl", 1))
        for name in RUNS:
            record = RunRecord(name, name, name, {"repeats": 1}, "d", 1, "0", "2026-01-01", TEAM, concurrency=4)
            runs.create_run(connection, record)

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


async def spend(database: Database, run_id: str, spent: Spent) -> None:
    """Store what a run has spent."""
    await database.write(lambda c: spending.add_spent(c, run_id, spent))


async def used(database: Database) -> dict[str, int]:
    """Return what the team has used, as clients see it."""
    found = await database.read(lambda c: status_of(c, TEAM))
    return {use.quota: use.used for use in found.uses}


async def test_sums_end_at_the_largest_amount(store: Database) -> None:
    """More is spent by several runs, and by each of them, than the integers of the database hold."""
    for run_id in RUNS:
        for _ in range(3):
            await spend(store, run_id, Spent(2**63 - 1, 10**30, 5))
    found = await used(store)
    assert (found["tokens-per-day"], found["money-per-month"]) == (MAX_AMOUNT, MAX_AMOUNT)
    assert found["stored-bytes"] >= 45


async def test_nothing_spent_is_given_back(store: Database) -> None:
    """An amount below 0 takes nothing off what was spent, whatever reported it."""
    await spend(store, "one", Spent(10, 100))
    await spend(store, "one", Spent(-50, -500))
    await spend(store, "two", Spent(-50, -500))
    found = await used(store)
    assert (found["tokens-per-day"], found["money-per-month"]) == (10, 100)


async def test_an_allotment_of_more_than_fits_is_recorded(store: Database) -> None:
    """What calls have taken may be more than any amount: rows are stored all the same, and nothing is left to take."""
    holder, call = Holder(TEAM, "one", "h"), Amount(10, 10)
    await store.write(lambda c: quotas.set_quotas(c, TEAM, {Quota.MONEY_PER_MONTH: 1000}))
    await store.write(lambda c: allotments.take(c, holder, NOTHING, NOTHING, call))
    taken = Amount(10**30, 10**30)
    await store.write(lambda c: allotments.record(c, holder, taken))
    await spend(store, "one", Spent(taken.tokens, taken.nano_usd))
    found = await store.write(lambda c: allotments.take(c, holder, taken, taken, call))
    assert isinstance(found, Shortage)
    assert (found.quota, found.spent) == (Quota.MONEY_PER_MONTH, MAX_AMOUNT)
