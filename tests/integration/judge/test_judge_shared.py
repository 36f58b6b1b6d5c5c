"""The judge's store over both databases; several replicas on one: one cache, and caps that hold to the last cent."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import until

from assay.judge.v1 import judge_pb2 as pb
from assay.judge.v1 import judge_pb2_grpc
from assay.model.scope import LOCAL
from assay.rpc.channel import open_channel, wait_for_ready
from assay.storage import revisions
from assay.testing.judges import says
from assay.testing.providers import ScriptedProvider
from assay_judge.model import RunKey
from assay_judge.resources import open_service
from assay_judge.settings import Settings
from assay_judge.state import schema
from assay_judge.state.accounts import SpendCapReachedError
from assay_judge.state.claims import Claims
from assay_judge.state.ledger import Ledger
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.processes.fork_server import ForkServer

    Open = Callable[[], Any]

GOOD = {"reasoning": "It is right.", "score": 4}
PAID = 0.00195  # of one verdict at 1 and 5 dollars per million tokens
RUN = RunKey("local", "r")
LONG_S = 600.0


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return a function that opens the judge's store, over each database."""
    url = str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""
    return lambda: JudgeStore.open(tmp_path, url, max_verdicts=600)


@pytest.mark.parametrize("folder", ["/proc/judge", "judge"])
async def test_replicas_with_a_database_use_no_folder(postgres_url: str, tmp_path: Path, folder: str) -> None:
    """They may have the same --state-dir, or one that cannot be made, as its default in a container."""
    own = Settings(database_url=postgres_url, state_dir=tmp_path / folder)
    async with open_service(own, {}, asyncio.Event()), open_service(own, {}, asyncio.Event()):
        assert await asyncio.to_thread(lambda: list(tmp_path.iterdir())) == []


async def test_verdicts_are_kept(open_store: Open) -> None:
    """By their key; the first one stays, surplus ones go, least recently used first."""
    store = await open_store()
    try:
        assert await store.verdict(LOCAL, "k") is None
        await store.put_verdict("local", "k", {"verdict": {"reasoning": "é\x00\ud800"}})
        await store.put_verdict("local", "k", {"verdict": {}})
        assert await store.verdict(LOCAL, "k") == {"verdict": {"reasoning": "é\x00\ud800"}}
        assert store.verdict_count == 1
        for number in range(998):  # the last one is the 1,000th: then surplus ones are pruned
            await store.put_verdict("local", f"{number}", {"n": number})
        assert store.verdict_count == 600
        assert await store.verdict(LOCAL, "997") == {"n": 997}
        assert await store.verdict(LOCAL, "0") is None
    finally:
        await store.aclose()


async def test_money_is_set_aside_and_paid(open_store: Open) -> None:
    """Never more than the cap; a reservation is settled once, also by a process that is started later."""
    store = await open_store()
    try:
        assert (await store.reserve(RUN, "a", 600, 1_000, LONG_S)).fits
        assert not (await store.reserve(RUN, "b", 401, 1_000, LONG_S)).fits
        found = await store.reserve(RUN, "c", 400, 1_000, LONG_S)
        assert (found.fits, found.spent, found.reserved) == (True, 0, 1_000)
        assert (await store.reserve(RunKey("local", "other"), "d", 5_000, None, LONG_S)).fits
    finally:
        await store.aclose()
    store = await open_store()
    try:
        for _ in range(2):
            found = await store.settle(RUN, "a", 250)
            assert found.spent + found.reserved == 650  # the other call is lost where no other process can make it
        assert (await store.reserve(RUN, "e", 350, 1_000, LONG_S)).fits
    finally:
        await store.aclose()


async def test_what_a_lost_process_set_aside_is_spent(open_store: Open) -> None:
    """After its time it counts as spent, and no call waits for it; a process that was only slow is paid exactly."""
    store = await open_store()
    try:
        await store.reserve(RUN, "lost", 700, 1_000, -1.0)
        found = await store.read_spending(RUN)
        assert (found.spent, found.reserved) == (700, 0)
        account, close = await Ledger(store).open(LOCAL, "r")
        with pytest.raises(SpendCapReachedError):
            await account.reserve(400, 1_000, lasts_s=LONG_S)
        close()
        assert (await store.settle(RUN, "lost", 100)).spent == 100
        assert (await store.settle(RUN, "lost", 100)).spent == 100
    finally:
        await store.aclose()


async def test_an_absurd_sum_stays_a_sum(open_store: Open) -> None:
    """It is cut to what the database can hold."""
    store = await open_store()
    try:
        for name in ("a", "b"):
            await store.reserve(RUN, name, 1, None, LONG_S)
            found = await store.settle(RUN, name, 2**63 - 1)
        assert found.spent == 2**63 - 1
    finally:
        await store.aclose()


async def test_calls_wait_for_what_others_leave(open_store: Open) -> None:
    """In the order in which they came; those that cannot fit any more are refused, and no other money is lost."""
    store = await open_store()
    try:
        account, close = await Ledger(store).open(LOCAL, "r")
        first = await account.reserve(900, 1_000, lasts_s=LONG_S)
        waits = asyncio.Event()
        second = asyncio.ensure_future(account.reserve(500, 1_000, waits=waits, lasts_s=LONG_S))
        leaving = asyncio.ensure_future(account.reserve(500, 1_000, lasts_s=LONG_S))
        third = asyncio.ensure_future(account.reserve(500, 1_000, lasts_s=LONG_S))
        await waits.wait()
        assert not second.done()
        leaving.cancel()
        await first.settle(100)
        await (await second).settle(400)
        await (await third).settle(500)
        assert (account.spent, account.reserved) == (1_000, 0)
        with pytest.raises(SpendCapReachedError):
            await account.reserve(1, 1_000, lasts_s=LONG_S)
        close()
    finally:
        await store.aclose()


async def test_the_migrations_make_the_tables_of_the_schema(open_store: Open, request: pytest.FixtureRequest) -> None:
    """A database that was upgraded step by step has the tables of a new one."""
    import psycopg

    await (await open_store()).aclose()
    name = request.node.callspec.params["open_store"]
    if name == "postgres":
        url = request.getfixturevalue("postgres_url")
        made = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=sa.NullPool)
    else:
        made = sa.create_engine(f"sqlite:///{request.getfixturevalue('tmp_path')}/judge.db", poolclass=sa.NullPool)
    found = described(made)
    with made.begin() as connection:
        schema.metadata.drop_all(connection)
        connection.exec_driver_sql(f"DROP TABLE {schema.VERSION_TABLE}")
    with made.connect() as connection:
        if name == "postgres":
            schema.metadata.create_all(connection)
            connection.commit()
        else:
            revisions.upgrade(connection, schema.TABLES)
            assert revisions.read_revision(connection, schema.TABLES) == schema.HEAD_REVISION
    assert described(made) == found
    made.dispose()


def described(engine: sa.Engine) -> dict[str, Any]:
    inspector = sa.inspect(engine)
    return {
        table: (
            [(column["name"], str(column["type"]), column["nullable"]) for column in inspector.get_columns(table)],
            inspector.get_pk_constraint(table)["constrained_columns"],
            sorted(str(index["column_names"]) for index in inspector.get_indexes(table)),
        )
        for table in sorted(schema.metadata.tables)
    }


@asynccontextmanager
async def replica(
    judges: ForkServer, folder: Path, name: str, provider: ScriptedProvider, url: str
) -> AsyncIterator[tuple[Any, Any]]:
    """A judge process on a database, and a client of it; it is killed in the end."""
    (folder / "prices.yaml").write_text("prices: [{model: '*', input: 1, output: 5}]")
    flags = {
        "listen": f"unix:{folder}/{name}.sock", "provider": "openai", "model": "judge-1",
        "base-url": provider.openai_url, "state-dir": folder / name, "prices": folder / "prices.yaml",
    }  # fmt: skip
    arguments = [f"--{key}={value}" for key, value in flags.items()]
    variables = {**os.environ, "ASSAY_DATABASE_URL": url}
    with (folder / f"{name}.log").open("ab") as log:
        streams = (0, log.fileno(), log.fileno())
        process = judges.start(arguments, folder=folder, environment=variables, streams=streams)
    try:
        async with open_channel(f"unix:{folder}/{name}.sock") as channel:
            await wait_for_ready(channel, "assay.judge.v1.JudgeService", 60)
            yield judge_pb2_grpc.JudgeServiceStub(channel), process
    finally:
        process.kill()
        process.wait()


async def grade(stub: Any, answer: str, cap: float = 0.1) -> pb.GradeResponse:
    request = pb.GradeRequest(
        rubric="quality", question="q", answer=answer, run_id="r", spend_cap_nano_usd=round(cap * 10**9)
    )
    response: pb.GradeResponse = await stub.Grade(request, timeout=180, wait_for_ready=True)
    return response


async def test_two_replicas_race_for_the_last_cent(judges: ForkServer, tmp_path: Path, postgres_url: str) -> None:
    """Both have more requests than the cap pays for: together they use it and never pass it."""
    cap = 0.1
    with ScriptedProvider(says(GOOD, delay_s=0.02)) as provider:
        async with (
            replica(judges, tmp_path, "one", provider, postgres_url) as (one, _),
            replica(judges, tmp_path, "two", provider, postgres_url) as (two, _),
        ):
            stubs = [one, two]
            responses = await asyncio.gather(*(grade(stubs[n % 2], f"a{n}", cap) for n in range(120)))
            standing = [(await grade(stub, "", cap)).spending for stub in stubs]
        paid = len(provider.requests) * PAID
    valid = [response for response in responses if response.verdict.scores]
    assert {one.verdict.reason for one in responses if not one.verdict.scores} == {"spend_cap_reached"}
    assert len(valid) == len(provider.requests)
    assert all(
        response.spending.spent_nano_usd / 1e9 + response.spending.reserved_nano_usd / 1e9 <= cap
        for response in responses
    )
    assert cap - 0.02 < paid <= cap
    assert [round(spending.spent_nano_usd / 1e9, 9) for spending in standing] == [round(paid, 9)] * 2
    assert [spending.reserved_nano_usd / 1e9 for spending in standing] == [0.0, 0.0]


async def test_a_verdict_of_one_replica_is_found_by_the_other(
    judges: ForkServer, tmp_path: Path, postgres_url: str
) -> None:
    """The cache is one: nothing is paid again."""
    with ScriptedProvider(says(GOOD)) as provider:
        async with (
            replica(judges, tmp_path, "one", provider, postgres_url) as (one, _),
            replica(judges, tmp_path, "two", provider, postgres_url) as (two, _),
        ):
            assert not (await grade(one, "a")).verdict.cached
            found = (await grade(two, "a")).verdict
    assert (dict(found.scores), found.cached, len(provider.requests)) == ({"score": 4.0}, True, 1)


async def test_equal_requests_of_all_replicas_are_paid_once(
    judges: ForkServer, tmp_path: Path, postgres_url: str
) -> None:
    """One of them calls the judge, the others wait for its verdict."""
    with ScriptedProvider(says(GOOD, delay_s=0.3)) as provider:
        async with (
            replica(judges, tmp_path, "one", provider, postgres_url) as (one, _),
            replica(judges, tmp_path, "two", provider, postgres_url) as (two, _),
        ):
            asked = [grade(stub, f"a{number % 2}") for number in range(10) for stub in (one, two)]
            verdicts = [response.verdict for response in await asyncio.gather(*asked)]
    assert [dict(verdict.scores) for verdict in verdicts] == [{"score": 4.0}] * 20
    assert len(provider.requests) == 2
    assert sum(verdict.usage.cost_usd for verdict in verdicts) == pytest.approx(2 * PAID)


async def test_a_claim_is_one_replicas_until_its_lease_ends(open_store: Open) -> None:
    """Another waits; the claim of a replica that was killed is taken over, one that is renewed is not."""
    store = await open_store()
    try:
        lease_s = 3.0  # a busy machine may renew a second late
        first, second = Claims(store.database, lease_s=lease_s), Claims(store.database, lease_s=lease_s)
        async with first.held("local", "k"), second.held("other", "k"):
            query = sa.select(schema.claims.c.lease_until).where(schema.claims.c.team == "local")
            claimed_until = await store.database.read(lambda c: c.execute(query).scalar_one())
            await until(
                lambda: store.database.read(lambda c: c.execute(query).scalar_one()), lambda end: end > claimed_until
            )
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3), second.held("local", "k"):
                    raise AssertionError("two replicas have one claim")
        ends_at = time.time() + 0.3
        dead = {"team": "local", "key": "k", "owner": "dead", "lease_until": ends_at}
        await store.database.write(lambda connection: connection.execute(schema.claims.insert().values(**dead)))
        async with second.held("local", "k"):
            assert time.time() > ends_at
        assert await store.database.read(lambda c: c.execute(sa.select(schema.claims)).all()) == []
    finally:
        await store.aclose()


async def test_what_lost_calls_cost_is_bounded_over_replicas(open_store: Open) -> None:
    """Expired or not: the claim belongs to the request that answers for its verdict."""
    store = await open_store()
    try:
        await store.reserve(RUN, "killed", 700, None, LONG_S, key="k")
        await store.reserve(RUN, "late", 700, None, -1.0, key="k")
        await store.reserve(RUN, "other", 50, None, LONG_S, key="l")
        await store.reserve(RUN, "repair", 700, None, LONG_S, key="k")
        found = await store.settle(RUN, "repair", 100, key="k", lost_most=300)
        assert (found.spent, found.reserved, found.lost) == (100 + 300 + 300, 50, 600)
        assert (await store.lose(RUN, "other")).lost == 650
        assert (await store.settle(RUN, "killed", 150)).spent == 100 + 150 + 300 + 50  # it was only late
    finally:
        await store.aclose()


async def test_what_a_killed_replica_had_set_aside_stays_set_aside(
    judges: ForkServer, tmp_path: Path, postgres_url: str
) -> None:
    """kill -9 in the midst of calls: their most counts towards the cap at the other replica, which goes on."""
    with ScriptedProvider(says(GOOD, delay_s=30.0)) as slow, ScriptedProvider(says(GOOD)) as provider:
        async with (
            replica(judges, tmp_path, "one", slow, postgres_url) as (one, process),
            replica(judges, tmp_path, "two", provider, postgres_url) as (two, _),
        ):
            asking = [asyncio.ensure_future(grade(one, f"a{n}")) for n in range(3)]
            await until(lambda: len(slow.requests) >= 3)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            for one_call in asking:
                one_call.cancel()
            response = await grade(two, "b")
            assert dict(response.verdict.scores) == {"score": 4.0}
            assert response.spending.spent_nano_usd / 1e9 == pytest.approx(PAID)
            assert response.spending.reserved_nano_usd / 1e9 > 3 * 0.01
            assert (await grade(two, "", cap=0.03)).spending.reserved_nano_usd / 1e9 > 3 * 0.01
