"""Writes of batches that fail: verdicts are delivered all the same, and the money of a run is right in the end."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.support.processes.waiting import until

from assay.errors import StorageError
from assay.judge.v1 import judge_pb2 as pb
from assay.rpc.status import translated
from assay.testing.judges import says
from assay_judge.batches.store import BatchStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from assay_judge.batches.store import BatchRecord, Finished

    Start = Callable[..., Any]

GOOD = {"reasoning": "It is right.", "score": 4}
NO_VERDICT = {"nonsense": 1}
QUICK: dict[str, Any] = {"batch_base_urls": ("http://127.0.0.1:*",), "batch_wait_s": 0.05, "batch_poll_s": 0.02}
HALF_PRICE = 0.000975
NANO = 1_000_000_000


class Database:
    """The database of a judge, in which a trigger makes writes fail."""

    def execute(self, statement: str) -> list[Any]:
        """Run one statement; return its rows."""
        raise NotImplementedError

    def refuse(self, writes: str, condition: str = "") -> None:
        """Refuse some writes."""
        raise NotImplementedError

    def accept(self) -> None:
        """Refuse nothing any more."""
        self.execute("DROP TRIGGER refused")

    def refuse_reordering(self) -> None:
        """Refuse each write that orders a request again."""
        self.refuse("UPDATE ON judge_orders", "WHEN (OLD.batch_id <> '' AND NEW.batch_id = '')")

    def refuse_release(self) -> None:
        """Refuse each write that returns money."""
        self.refuse("DELETE ON judge_reservations")

    def nano(self) -> int:
        """Return what all runs have spent or set aside, as it is stored."""
        amounts = "SELECT nano FROM judge_spending UNION ALL SELECT nano FROM judge_reservations"
        return int(self.execute(f"SELECT sum(nano) FROM ({amounts}) AS amounts")[0][0])


class OwnFile(Database):
    """The file of one judge process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def execute(self, statement: str) -> list[Any]:
        """Run one statement; return its rows."""
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=60)) as connection:
            return connection.execute(statement).fetchall()

    def refuse(self, writes: str, condition: str = "") -> None:
        """Refuse some writes."""
        fails = "SELECT RAISE(ABORT, 'the disk is full')"
        self.execute(f"CREATE TRIGGER refused BEFORE {writes} {condition} BEGIN {fails}; END")


class SharedDatabase(Database):
    """The database of all replicas."""

    def __init__(self, url: str) -> None:
        self._url = url

    def execute(self, statement: str) -> list[Any]:
        """Run one statement; return its rows."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def refuse(self, writes: str, condition: str = "") -> None:
        """Refuse some writes."""
        fails = "RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the disk is full'; END $$"
        self.execute(f"CREATE FUNCTION refuse() {fails}")
        self.execute(f"CREATE TRIGGER refused BEFORE {writes} FOR EACH ROW {condition} EXECUTE FUNCTION refuse()")

    def accept(self) -> None:
        """Refuse nothing any more."""
        self.execute("DROP FUNCTION refuse CASCADE")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """The judge's database: a file of its own, or that of all replicas."""
    if request.param == "sqlite":
        return OwnFile(tmp_path / "state" / "judge.db")
    return SharedDatabase(request.getfixturevalue("postgres_url"))


@pytest.fixture
def start_on(request: pytest.FixtureRequest, start: Start, tmp_path: Path, database: Database) -> Start:
    """Start a judge on the database."""
    if isinstance(database, OwnFile):
        return partial(start, state_dir=tmp_path / "state", **QUICK)
    return partial(start, database_url=request.getfixturevalue("postgres_url"), **QUICK)


own_file = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


async def order(judge: Any, answer: str = "Paris", run_id: str = "r") -> None:
    """Order a verdict, whose batch the provider holds back."""
    judge.provider.batches.is_held = True
    asked = {"batch": True, "run_id": run_id, "spend_cap_usd": 1.0, "timeout_ms": 1}
    assert (await judge.grade(answer, **asked)).verdict.reason == "batch_pending"


async def settled(judge: Any, answer: str = "Paris", run_id: str = "r") -> pb.Verdict:
    """Return the verdict that was ordered, once it is not pending any more."""

    async def grade() -> pb.Verdict:
        asked = {"batch": True, "run_id": run_id, "spend_cap_usd": 1.0, "timeout_ms": 1_000}
        verdict: pb.Verdict = (await judge.grade(answer, **asked)).verdict
        return verdict

    found: pb.Verdict = await until(grade, lambda verdict: verdict.reason != "batch_pending")
    return found


async def spending(judge: Any, run_id: str = "r") -> tuple[float, float]:
    """Return what a run has spent and set aside."""
    found = (await judge.grade("", run_id=run_id)).spending
    return round(found.spent_usd, 9), round(found.reserved_usd, 9)


async def failures(caplog: pytest.LogCaptureFixture, said: str, count: int = 3) -> None:
    """Wait until so many failures are logged."""
    await until(lambda: caplog.text.count(said), lambda seen: seen >= count)


async def test_an_order_that_cannot_be_stored_again_leaves_no_money_set_aside(
    start_on: Start, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """However often the write fails: in the end both turns are paid, and nothing is set aside."""
    judge = await start_on(says(NO_VERDICT), says(GOOD))
    await order(judge)
    database.refuse_reordering()
    judge.provider.batches.is_held = False
    await failures(caplog, "batch call failed, retrying")
    database.accept()
    assert dict((await settled(judge)).scores) == {"score": 4.0}
    assert await spending(judge) == (round(2 * HALF_PRICE, 9), 0)
    await until(database.nano, lambda nano: nano == round(2 * HALF_PRICE * NANO))


async def test_money_that_a_later_order_cannot_have_is_returned_by_the_earlier_one(
    start_on: Start, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Two orders of one batch need another turn, and the money of the second one cannot be stored at first."""
    judge = await start_on(says(NO_VERDICT), says(NO_VERDICT), says(GOOD), batch_requests=2, batch_wait_s=60.0)
    for run_id in ("a", "b"):
        await order(judge, f"answer of {run_id}", run_id)
    reserved = database.nano()
    database.refuse("INSERT ON judge_reservations", "WHEN (NEW.run_id = 'b')")
    judge.provider.batches.is_held = False
    await failures(caplog, "batch call failed, retrying")
    assert database.nano() <= reserved * 3 // 2  # what the first order had for its turn was returned each time
    database.accept()
    for run_id in ("a", "b"):
        assert dict((await settled(judge, f"answer of {run_id}", run_id)).scores) == {"score": 4.0}
        assert await spending(judge, run_id) == (round(2 * HALF_PRICE, 9), 0)


async def test_an_order_that_is_stored_though_its_write_failed_keeps_its_money(
    start_on: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection may break after the commit: the second turn is paid from what was set aside for it."""
    committed = BatchStore.finish
    broken: list[BatchRecord] = []

    async def finish(self: BatchStore, record: BatchRecord, finished: Sequence[Finished]) -> None:
        await committed(self, record, finished)
        if not broken:
            broken.append(record)
            raise StorageError("the connection broke")

    monkeypatch.setattr(BatchStore, "finish", finish)
    judge = await start_on(says(NO_VERDICT), says(GOOD))
    await order(judge)
    judge.provider.batches.is_held = False
    assert dict((await settled(judge)).scores) == {"score": 4.0}
    assert await spending(judge) == (round(2 * HALF_PRICE, 9), 0)
    assert len(broken) == 1


async def test_an_order_that_cannot_be_stored_answers_all_who_wait_for_it(
    start_on: Start, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that made it fails, a request of another run has a reason, and nothing is set aside.

    The release of its money cannot be written at first: no answer waits for that.
    """
    is_about_to_store, may_fail = asyncio.Event(), asyncio.Event()

    async def add(*_: Any) -> None:
        is_about_to_store.set()
        await may_fail.wait()
        raise StorageError("the disk is full")

    monkeypatch.setattr(BatchStore, "add", add)
    judge = await start_on()
    asked = {"batch": True, "spend_cap_usd": 1.0}
    first = asyncio.ensure_future(judge.grade(run_id="r", **asked))
    await is_about_to_store.wait()
    second = asyncio.ensure_future(judge.grade(run_id="other", **asked))
    await until(lambda: judge.grade(""), lambda response: response.cache.joined)
    database.refuse_release()
    may_fail.set()
    assert (await second).verdict.reason == "batch_failed"
    with pytest.raises(StorageError), translated():
        await first
    database.accept()
    await until(database.nano, lambda nano: nano == 0)
    assert await spending(judge) == (0, 0)


@own_file
async def test_an_order_that_cannot_be_stored_may_be_of_a_deleted_team(
    start_on: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request fails for the database, as without the deletion."""
    is_about_to_store, may_fail = asyncio.Event(), asyncio.Event()

    async def add(*_: Any) -> None:
        is_about_to_store.set()
        await may_fail.wait()
        raise StorageError("the disk is full")

    monkeypatch.setattr(BatchStore, "add", add)
    judge = await start_on()
    asking = asyncio.ensure_future(judge.grade(run_id="r", batch=True))
    await is_about_to_store.wait()
    await judge.stub.DeleteScope(pb.DeleteScopeRequest())
    may_fail.set()
    with pytest.raises(StorageError), translated():
        await asking


async def test_a_reply_is_not_lost_where_its_cost_cannot_be_written(
    start_on: Start, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """It is paid for: its verdict is delivered, and what was set aside for the call stays spent."""
    judge = await start_on(says(GOOD), says(GOOD))
    database.refuse_release()
    first = await judge.grade(run_id="r", spend_cap_usd=1.0)
    assert dict(first.verdict.scores) == {"score": 4.0}
    assert caplog.text.count("cannot settle the cost of a call") == 1
    assert database.nano() > round(2 * HALF_PRICE * NANO)
    database.accept()
    second = await judge.grade("another answer", run_id="r", spend_cap_usd=1.0)
    assert dict(second.verdict.scores) == {"score": 4.0}
    assert database.nano() >= round(4 * HALF_PRICE * NANO)
