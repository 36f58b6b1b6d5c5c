"""What a judge keeps in its SQLite file: how much of it, and how surely."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from assay.model.scope import LOCAL
from assay_judge.model import RunKey
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Open = Callable[[int], Awaitable[JudgeStore]]

PUTS = 500  # so many puts, and what is too much is pruned


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Return a function that opens a database in memory for so many verdicts; it is closed with the test."""
    stores: list[JudgeStore] = []

    async def open_(most: int) -> JudgeStore:
        stores.append(await JudgeStore.open(None, max_verdicts=most))
        return stores[-1]

    yield open_
    for store in stores:
        await store.aclose()


async def kept(store: JudgeStore) -> set[str]:
    """Return the keys that are in the file."""

    def read(connection: sqlite3.Connection) -> set[str]:
        return {key for (key,) in connection.execute("SELECT key FROM verdicts")}

    return await store.run(read)


@pytest.mark.parametrize("most", [PUTS + 1, PUTS, PUTS - 1, PUTS - 2, 1])
async def test_only_what_is_too_much_is_pruned(opened: Open, most: int) -> None:
    """The newest verdicts stay, exactly as many as are allowed, and the count says so."""
    store = await opened(most)
    for number in range(PUTS):
        await store.put_verdict("local", str(number), {})
    assert await kept(store) == {str(number) for number in range(max(0, PUTS - most), PUTS)}
    assert store.verdict_count == min(most, PUTS)


async def test_a_verdict_that_was_used_stays(opened: Open) -> None:
    """Pruning takes those first that were used longest ago."""
    store = await opened(2)
    for number in range(PUTS - 1):
        await store.put_verdict("local", str(number), {})
    assert await store.verdict(LOCAL, "0") == {}
    await store.put_verdict("local", "last", {})
    assert await kept(store) == {"0", "last"}


async def test_work_at_once_is_done_one_after_the_other(opened: Open) -> None:
    """SQLite is used in one thread, whatever number of requests want something of it."""
    store = await opened(1_000)
    await asyncio.gather(*(store.put_spending(RunKey("local", "run"), number) for number in range(200)))
    await asyncio.gather(*(store.put_verdict("local", str(number), {}) for number in range(200)))
    assert await store.spending(RunKey("local", "run")) == 199
    assert await kept(store) == {str(number) for number in range(200)}


async def test_only_what_must_outlive_a_power_cut_waits_for_the_disk(tmp_path: Path) -> None:
    """Verdicts are written without a flush each; what asks for one has it, and what follows has none again."""
    store = await JudgeStore.open(tmp_path)

    def synchronous(connection: sqlite3.Connection) -> int:
        found: int = connection.execute("PRAGMA synchronous").fetchone()[0]
        return found

    normal, full = 1, 2
    assert [await store.run(synchronous, surely=surely) for surely in (False, True, False)] == [normal, full, normal]
    await store.aclose()
