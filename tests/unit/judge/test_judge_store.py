"""What a judge keeps in its database: how much of it, and for how long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from assay.errors import StorageError
from assay.model.scope import LOCAL
from assay.storage.sqlite import SqliteDatabase
from assay_judge.model import RunKey
from assay_judge.state import schema
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Open = Callable[[int], Awaitable[JudgeStore]]

PUTS = 500  # so many puts, and what is too much is pruned


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Return a function that opens a temporary database for so many verdicts; it is closed with the test."""
    stores: list[JudgeStore] = []

    async def open_(most: int) -> JudgeStore:
        stores.append(await JudgeStore.open(None, max_verdicts=most))
        return stores[-1]

    yield open_
    for store in stores:
        await store.aclose()


async def kept(store: JudgeStore) -> set[str]:
    """Return the keys that are stored."""
    return set(await store.database.read(lambda c: c.execute(sa.select(schema.verdicts.c.key)).scalars().all()))


async def put(store: JudgeStore, count: int) -> None:
    """Store so many verdicts, the first one longest ago."""
    for number in range(count):
        await store.put_verdict("local", str(number), {})


@pytest.mark.parametrize("most", [PUTS + 1, PUTS - 1, 1])
async def test_only_what_is_too_much_is_pruned(opened: Open, most: int) -> None:
    """Pruning keeps exactly the allowed number of verdicts, the newest, and returns the number removed."""
    store = await opened(most)
    await put(store, PUTS)
    assert await kept(store) == {str(number) for number in range(max(0, PUTS - most), PUTS)}
    assert store.verdict_count == min(most, PUTS)


async def test_a_verdict_that_was_used_stays(opened: Open) -> None:
    """Pruning removes the verdicts least recently used, to the day."""
    store = await opened(2)
    await put(store, PUTS - 1)
    days_ago = schema.verdicts.update().values(used_at=schema.verdicts.c.used_at - 2 * 24 * 3600)
    await store.database.write(lambda connection: connection.execute(days_ago))
    assert await store.verdict(LOCAL, "0") == {}
    await store.put_verdict("local", "last", {})
    assert await kept(store) == {"0", "last"}


async def test_a_temporary_database_is_gone_once_it_is_closed(opened: Open) -> None:
    """A judge without a state folder leaves nothing behind, and two of them have nothing in common."""
    first, second = await opened(1), await opened(1)
    await first.put_verdict("local", "k", {})
    assert await second.verdict(LOCAL, "k") is None
    assert isinstance(first.database, SqliteDatabase)
    folder = first.database._path.parent
    await first.aclose()
    assert not await asyncio.to_thread(Path.exists, folder)


async def test_what_an_earlier_process_left_is_taken_over(tmp_path: Path) -> None:
    """An earlier process's claims and batch leases end at once; money of pending orders stays reserved."""
    store = await JudgeStore.open(tmp_path)
    run, far = RunKey("local", "r"), 2.0**40
    for name in ("call", "order"):
        await store.reserve(run, name, 70, None, 3_600.0)
    claim = {"team": "local", "key": "k", "owner": "o", "lease_until": far}
    batch = {
        "batch_id": "b", "line": "l", "provider_id": "", "created_at": 0.0, "requests": 1, "owner": "o", "epoch": 1,
        "lease_until": far,
    }  # fmt: skip
    order = {
        "item_id": "i", "batch_id": "b", "line": "l", "key": "k", **run._asdict(), "reserved": 70,
        "reservation": "order", "size": 1, "request": "{}", "changed_at": 0.0,
    }  # fmt: skip
    for table, row in ((schema.claims, claim), (schema.batches, batch), (schema.orders, order)):
        await store.database.write(lambda c, table=table, row=row: c.execute(table.insert().values(**row)))  # type: ignore[misc]
    await store.aclose()
    store = await JudgeStore.open(tmp_path)
    status = await store.read_spending(run)
    assert (status.spent, status.reserved, status.lost) == (70, 70, 70)
    leases = sa.union_all(sa.select(schema.batches.c.lease_until), sa.select(schema.claims.c.lease_until))
    assert await store.database.read(lambda c: c.execute(leases).scalars().all()) == [0.0]
    await store.aclose()


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """The sentence names the file and the remedies; the folder is free again afterwards."""
    store = await JudgeStore.open(tmp_path)
    newer = sa.text(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    await store.database.write(lambda connection: connection.execute(newer))
    await store.aclose()
    for _ in range(2):
        with pytest.raises(StorageError, match="upgrade Assay, or give another folder with --state-dir") as refused:
            await JudgeStore.open(tmp_path)
        assert f"{tmp_path / 'judge.db'} was written by a newer version of Assay (schema 9999" in str(refused.value)


async def test_only_what_must_outlive_a_power_cut_waits_for_the_disk(tmp_path: Path) -> None:
    """Only a durable change is flushed to disk; others are not."""
    store = await JudgeStore.open(tmp_path)
    pragma, normal, full = sa.text("PRAGMA synchronous"), 1, 2
    modes = [
        await store.database.write(lambda connection: connection.execute(pragma).scalar(), durable=durable)
        for durable in (True, False, False, True)
    ]
    assert modes == [full, normal, normal, full]
    await store.aclose()
