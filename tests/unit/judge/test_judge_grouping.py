"""Requests that share a transaction: each has its own result, and fails by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from assay.errors import StorageError
from assay.model.scope import LOCAL
from assay_judge.state import schema
from assay_judge.state.store import Grouped, JudgeStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from assay.storage.database import Database


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    """A judge's database on a temporary file."""
    store = await JudgeStore.open(None)
    yield store.database
    await store.aclose()


def claiming(key: str) -> Callable[[sa.Connection], str]:
    """Return work that inserts a row with a key, and returns the key."""

    def work(connection: sa.Connection) -> str:
        connection.execute(schema.claims.insert().values(team="t", key=key, owner="o", lease_until=0.0))
        return key

    return work


async def claimed(database: Database) -> list[str]:
    """Return the keys that are stored."""
    query = sa.select(schema.claims.c.key).order_by(schema.claims.c.key)
    return list(await database.read(lambda connection: connection.execute(query).scalars().all()))


async def test_requests_that_wait_at_the_same_time_share_a_transaction(database: Database) -> None:
    """Each request gets its own result."""
    transactions: list[int] = []

    async def write(work: Callable[[sa.Connection], list[Any]]) -> list[Any]:
        results = await database.write(work)
        transactions.append(len(results))
        return results

    writes = Grouped(write)
    assert await asyncio.gather(*(writes.do(claiming(key)) for key in "abcd")) == list("abcd")
    assert transactions == [4]
    assert await claimed(database) == list("abcd")


async def test_a_request_that_fails_takes_no_other_one_with_it(database: Database) -> None:
    """The other requests of the transaction are stored; only its own caller gets the error."""
    writes = Grouped(database.write)
    results = await asyncio.gather(*(writes.do(claiming(key)) for key in "aab"), return_exceptions=True)
    assert (results[0], results[2]) == ("a", "b")
    assert isinstance(results[1], StorageError)
    assert await claimed(database) == ["a", "b"]
    assert await writes.do(claiming("c")) == "c"


async def test_a_cancelled_request_is_stored(database: Database) -> None:
    """A cancelled request is stored, because others share its transaction; closing waits for it."""
    writes = Grouped(database.write)
    cancelled, other = (asyncio.ensure_future(writes.do(claiming(key))) for key in "ab")
    await asyncio.sleep(0)
    cancelled.cancel()
    await writes.aclose()
    assert await other == "b"
    assert cancelled.cancelled()
    assert await claimed(database) == ["a", "b"]


async def test_a_store_that_is_closed_has_written_what_was_asked_of_it() -> None:
    """Closing writes every pending request, even one with a transaction of its own."""
    store = await JudgeStore.open(None)
    writing = [asyncio.ensure_future(store.put_verdict("local", f"{number}", {})) for number in range(20)]
    await asyncio.sleep(0)
    await store.aclose()
    await asyncio.gather(*writing)
    assert store.verdict_count == 20
    with pytest.raises(RuntimeError):
        await store.verdict(LOCAL, "0")
