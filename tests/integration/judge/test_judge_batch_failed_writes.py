"""Batches that outlast failed writes and restarts: verdicts arrive, and accounts and gauges stay right."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.integration.judge.test_judge_batch_replicas import FAILED, order_for
from tests.support.processes.waiting import until
from tests.support.services.scraped_metrics import scraped

from assay.errors import StorageError
from assay.judge.v1 import judge_pb2 as pb
from assay.judge.v1 import judge_pb2_grpc
from assay.rpc.channel import open_channel, wait_for_ready
from assay.rpc.status import translated
from assay.telemetry.exporter import exporting
from assay.testing.judges import says
from assay.testing.providers import Reply, ScriptedProvider
from assay_judge.batches.batch_gauges import BatchGauges
from assay_judge.batches.orders import new_id
from assay_judge.batches.store import BatchStore, Finished
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from assay_judge.batches.store import BatchRecord

    Start = Callable[..., Any]
    from collections.abc import AsyncIterator

    from tests.support.processes.fork_server import ForkServer


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
    asked = {"batch": True, "run_id": run_id, "spend_cap_nano_usd": 1_000_000_000, "timeout_ms": 1}
    assert (await judge.grade(answer, **asked)).verdict.reason == "batch_pending"


async def settled(judge: Any, answer: str = "Paris", run_id: str = "r") -> pb.Verdict:
    """Return the verdict that was ordered, once it is not pending any more."""

    async def grade() -> pb.Verdict:
        asked = {"batch": True, "run_id": run_id, "spend_cap_nano_usd": 1_000_000_000, "timeout_ms": 1_000}
        verdict: pb.Verdict = (await judge.grade(answer, **asked)).verdict
        return verdict

    found: pb.Verdict = await until(grade, lambda verdict: verdict.reason != "batch_pending")
    return found


async def spending(judge: Any, run_id: str = "r") -> tuple[float, float]:
    """Return what a run has spent and set aside."""
    found = (await judge.grade("", run_id=run_id)).spending
    return round(found.spent_nano_usd / 1e9, 9), round(found.reserved_nano_usd / 1e9, 9)


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
    asked = {"batch": True, "spend_cap_nano_usd": 1_000_000_000}
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
    first = await judge.grade(run_id="r", spend_cap_nano_usd=1_000_000_000)
    assert dict(first.verdict.scores) == {"score": 4.0}
    assert caplog.text.count("cannot settle the cost of a call") == 1
    assert database.nano() > round(2 * HALF_PRICE * NANO)
    database.accept()
    second = await judge.grade("another answer", run_id="r", spend_cap_nano_usd=1_000_000_000)
    assert dict(second.verdict.scores) == {"score": 4.0}
    assert database.nano() >= round(4 * HALF_PRICE * NANO)


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


LEAST_RESERVED = 0.004  # of one request: its reply may have 2,048 tokens
COUNT = 20
both_protocols = pytest.mark.parametrize("protocol", ["openai", "anthropic"])


@asynccontextmanager
async def judge_process(
    judges: ForkServer,
    folder: Path,
    provider: ScriptedProvider,
    protocol: str,
    failpoints: str = "",
    database_url: str = "",
) -> AsyncIterator[tuple[Any, Any]]:
    """A judge process with its state in a folder, and a client of it; it is killed in the end."""
    (folder / "prices.yaml").write_text("prices: [{model: '*', input: 1, output: 5}]")
    socket = folder / "judge.sock"
    url = provider.openai_url if protocol == "openai" else provider.url
    flags = {
        "listen": f"unix:{socket}", "provider": protocol, "model": "judge-1", "base-url": url,
        "batch-base-urls": "http://127.0.0.1:*", "state-dir": folder / "state", "prices": folder / "prices.yaml",
        "batch-wait-s": 5, "batch-requests": COUNT, "batch-poll-s": 0.1,
    }  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    variables = {"ASSAY_DATABASE_URL": database_url, "ASSAY_FAILPOINTS": failpoints}
    with (folder / "judge.log").open("ab") as log:
        streams = (0, log.fileno(), log.fileno())
        process = judges.start(arguments, folder=folder, environment={**os.environ, **variables}, streams=streams)
        try:
            async with open_channel(f"unix:{socket}") as channel:
                await wait_for_ready(
                    channel, "assay.judge.v1.JudgeService", 60
                )  # also after a connection to one killed before
                yield judge_pb2_grpc.JudgeServiceStub(channel), process
        finally:
            process.kill()
            process.wait()


async def ask_all(stub: Any, timeout_ms: int) -> list[pb.Verdict]:
    """Ask for all verdicts one after the other, each with so much patience."""
    verdicts = []
    for index in range(COUNT):
        request = pb.GradeRequest(rubric="quality", question="q", answer=f"answer {index}", run_id="r", batch=True,
                                  spend_cap_nano_usd=1_000_000_000, timeout_ms=timeout_ms)  # fmt: skip
        verdicts.append((await stub.Grade(request, timeout=180, wait_for_ready=True)).verdict)
    return verdicts


async def spent(stub: Any) -> tuple[float, float]:
    request = pb.GradeRequest(rubric="quality", question="q", answer="", run_id="r")
    spending = (await stub.Grade(request, timeout=180, wait_for_ready=True)).spending
    return spending.spent_nano_usd / 1e9, spending.reserved_nano_usd / 1e9


async def all_submitted(provider: ScriptedProvider, stub: Any, count: int = COUNT) -> None:
    """Wait until so many requests were submitted; one that is lost, or one too many, fails."""

    async def submitted() -> int:
        found = sum(map(len, provider.batches.submitted))
        reserved = (await spent(stub))[1]
        assert reserved >= (count - found) * LEAST_RESERVED, "an order was lost: its money is not set aside"
        return found

    assert await until(submitted, lambda found: found >= count) == count


async def looked(provider: ScriptedProvider) -> None:
    """Wait until the judge knows the number of its batch: it has looked at it."""
    await until(lambda: provider.batches.looked, lambda times: times >= 2)


async def order_all_and_be_killed(
    judges: ForkServer, folder: Path, provider: ScriptedProvider, protocol: str, database_url: str = ""
) -> None:
    """Order all verdicts from a process, which is killed while their batch is out."""
    provider.batches.is_held = True
    async with judge_process(judges, folder, provider, protocol, database_url=database_url) as (stub, process):
        assert {verdict.reason for verdict in await ask_all(stub, 1)} == {"batch_pending"}
        await all_submitted(provider, stub)
        await looked(provider)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


async def check_the_rest(
    judges: ForkServer, folder: Path, provider: ScriptedProvider, protocol: str, database_url: str = ""
) -> None:
    """Ask another process for all verdicts: each comes from what is out already, and is paid for once."""
    submitted = len(provider.batches.submitted)
    async with judge_process(judges, folder, provider, protocol, database_url=database_url) as (stub, _):
        _, reserved = await spent(stub)
        assert reserved > 0
        assert {verdict.reason for verdict in await ask_all(stub, 1)} == {"batch_pending"}
        provider.batches.is_held = False
        verdicts = await ask_all(stub, 30_000)
        assert all(dict(verdict.scores) == {"score": 4.0} for verdict in verdicts)
        assert all(verdict.usage.cost_usd == pytest.approx(HALF_PRICE, abs=1e-12) for verdict in verdicts)
        paid, reserved = await spent(stub)
        assert (round(paid, 9), reserved) == (round(COUNT * HALF_PRICE, 9), 0)
        assert all(verdict.cached for verdict in await ask_all(stub, 1))
    assert len(provider.batches.submitted) == submitted
    assert len(provider.batches.paid) == len(set(provider.batches.paid)) == COUNT


@pytest.mark.parametrize("shared", [False, True])
async def test_no_verdict_is_paid_twice_when_the_judge_is_killed(
    judges: ForkServer, tmp_path: Path, postgres_url: str, shared: bool
) -> None:
    """kill -9 while a batch is out: the next process looks after it, callers join it, the sums are right.

    Where replicas share their books, what the killed process had set aside is found there by the next one.
    """
    url = postgres_url if shared else ""
    with ScriptedProvider(says(GOOD)) as provider:
        await order_all_and_be_killed(judges, tmp_path, provider, "openai", url)
        await check_the_rest(judges, tmp_path, provider, "openai", url)


@both_protocols
async def test_a_kill_between_submission_and_its_record_pays_nothing_twice(
    judges: ForkServer, tmp_path: Path, protocol: str
) -> None:
    """The provider has the batch and the store does not know: it is found by its mark, or by its requests."""
    with ScriptedProvider(says(GOOD)) as provider:
        await order_all_and_be_killed(judges, tmp_path, provider, protocol)
        with sqlite3.connect(tmp_path / "state" / "judge.db") as database:
            assert database.execute("UPDATE judge_batches SET provider_id = ''").rowcount >= 1
        database.close()
        await check_the_rest(judges, tmp_path, provider, protocol)


async def test_a_kill_before_the_submission_loses_no_order(judges: ForkServer, tmp_path: Path) -> None:
    """An order is on disk before its caller hears that it waits; the next process submits it.

    The last order takes 2 s to be stored, its caller has 1 ms, and the process is killed when the caller has its
    answer.
    """
    with ScriptedProvider(says(GOOD)) as provider:
        provider.batches.refusals = [Reply("not now", status=503)] * 100_000
        slow = f"judge.order_before_commit=delay:2@{COUNT}"
        async with judge_process(judges, tmp_path, provider, "openai", slow) as (stub, process):
            assert {verdict.reason for verdict in await ask_all(stub, 1)} == {"batch_pending"}
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert provider.batches.submitted == []
        with closing(sqlite3.connect(tmp_path / "state" / "judge.db")) as database:
            assert database.execute("SELECT count(*) FROM judge_orders").fetchone() == (COUNT,)
        provider.batches.refusals = []
        provider.batches.is_held = True
        await check_the_rest_was_submitted(judges, tmp_path, provider)


async def check_the_rest_was_submitted(judges: ForkServer, folder: Path, provider: ScriptedProvider) -> None:
    async with judge_process(judges, folder, provider, "openai") as (stub, _):
        await all_submitted(provider, stub)
        provider.batches.is_held = False
        verdicts = await ask_all(stub, 30_000)
    assert all(dict(verdict.scores) == {"score": 4.0} for verdict in verdicts)
    assert len(provider.batches.paid) == COUNT


async def test_results_that_came_while_nobody_ran_are_fetched(judges: ForkServer, tmp_path: Path) -> None:
    """The batch ends while the judge is away; an outcome that is no verdict waits on disk for its row."""

    def script(request: Any) -> Reply:
        return Reply("no", status=400) if "answer 7\n" in request.question else says(GOOD)(request)

    with ScriptedProvider(script) as provider:
        await order_all_and_be_killed(judges, tmp_path, provider, "openai")
        provider.batches.is_held = False
        async with judge_process(judges, tmp_path, provider, "openai") as (stub, process):
            await until(lambda: spent(stub), lambda seen: not seen[1])
            assert len(provider.batches.paid) == COUNT - 1
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        async with judge_process(judges, tmp_path, provider, "openai") as (stub, _):
            verdicts = await ask_all(stub, 5_000)
        assert [verdict.reason for verdict in verdicts if verdict.reason] == ["judge_refuses_request"]
        assert all(verdict.usage.HasField("cost_usd") for verdict in verdicts)
    assert len(provider.batches.paid) == COUNT - 1
    assert json.dumps(GOOD) not in (tmp_path / "judge.log").read_text()
