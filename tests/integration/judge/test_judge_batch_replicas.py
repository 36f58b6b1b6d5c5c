"""Several replicas of the judge share orders and batches: each is paid once, whichever replica ends or stands still."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import until

from assay.judge.v1 import judge_pb2 as pb
from assay.judge.v1 import judge_pb2_grpc
from assay.model.scope import LOCAL
from assay.rpc.channel import open_channel, wait_for_ready
from assay.testing.judges import says, system_of
from assay.testing.providers import Reply, ScriptedProvider
from assay_judge.batches.orders import Order, new_id, outcome_text
from assay_judge.batches.store import BatchStore, Finished, LeaseLostError
from assay_judge.judges import JudgeChoice
from assay_judge.model import Asker, Material, RunKey
from assay_judge.providers.verdict_request import JudgeParameters
from assay_judge.state import schema
from assay_judge.state.store import JudgeStore
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.prompt import build_prompt
from assay_judge.verdicts.rubric_registry import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from tests.support.processes.fork_server import ForkServer, Process

    from assay_judge.batches.store import BatchRecord

GOOD = {"reasoning": "It is right.", "score": 4}
HALF_PRICE = 0.000975
LONG_S = 3_600.0
RUBRIC = BUILT_IN["quality"]
RUN = RunKey("local", "r")
QUICK = {"batch-wait-s": 0.3, "batch-poll-s": 0.1}  # leases of one second
PROTOCOLS = ("openai", "anthropic")
TABLES = (schema.orders, schema.batches, schema.reservations, schema.spending)


def order_for(key: str, run_id: str = "r", **fields: Any) -> Order:
    material, judge = Material("Paris", "Capital?"), JudgeChoice("openai", "judge-1")
    prompt = build_prompt(RUBRIC, material)
    return Order(
        new_id(),
        key,
        RunKey("local", run_id),
        1_000,
        70,
        judge,
        RUBRIC,
        material,
        prompt,
        JudgeParameters(100),
        **fields,
    )


FAILED = outcome_text(Outcome(Status.UNAVAILABLE, reason="refused", message="m"), 0)


class Stores:
    """One replica whose leases end at once, another one whose leases last, and their database."""

    def __init__(self, shared: JudgeStore) -> None:
        self.shared = shared
        self.brief = BatchStore(shared, 0.0)
        self.lasting = BatchStore(shared, LONG_S)

    async def formed(self, store: BatchStore) -> BatchRecord:
        """Return a batch of what waits."""
        record = await store.form(new_id(), order_for("k").client_key, most=100, most_chars=10**9)
        assert record is not None
        return record

    async def contents(self) -> list[list[str]]:
        """Return what the tables of orders, batches and money hold."""

        def query(connection: sa.Connection) -> list[list[str]]:
            return [sorted(map(str, connection.execute(sa.select(table)))) for table in TABLES]

        return await self.shared.database.read(query)


@pytest.fixture(params=["sqlite", "postgres"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    """Two processes' stores on one database."""
    url = str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""
    shared = await JudgeStore.open(None, url)
    yield Stores(shared)
    await shared.aclose()


async def test_a_key_has_one_order_over_all_replicas(stores: Stores) -> None:
    """Of those that are added at once one is kept, and the others learn whose it is; each is in one batch."""
    added = await asyncio.gather(
        *(store.add(order_for(f"{n}", run)) for n in range(20) for run in "ab"
          for store in (stores.brief, stores.lasting))
    )  # fmt: skip
    kept = [n // 4 for n, winner in enumerate(added) if winner is None]
    assert sorted(kept) == list(range(20))
    line = order_for("k").client_key
    formed = await asyncio.gather(
        *(store.form(new_id(), line, most=3, most_chars=10**9) for store in (stores.brief, stores.lasting) * 6)
    )
    batches = [await stores.lasting.orders(record.batch_id) for record in formed if record is not None]
    items = [order.item_id for orders in batches for order in orders]
    assert len(items) == len(set(items)) == 20
    order = batches[0][0]
    assert await stores.brief.add(order_for(order.key, "c")) == order.run


async def test_only_an_order_that_is_not_stored_returns_its_money(stores: Stores) -> None:
    """Where a commit took place though its connection broke, the money stays set aside for the order."""
    for key in ("stored", "lost"):
        order = order_for(key, reservation=key)
        await stores.shared.reserve(RUN, key, 70, None, LONG_S)
        if key == "stored":
            await stores.lasting.add(order)
        await stores.lasting.withdraw(order)
    assert (await stores.shared.read_spending(RUN)).reserved == 70


async def test_an_outcome_of_the_run_is_not_ordered_again(stores: Stores) -> None:
    """A replica that waited for money while another one's order came to its end adds none."""
    order = order_for("k")
    assert await stores.lasting.add(order) is None
    record = await stores.formed(stores.lasting)
    await stores.lasting.finish(record, [Finished(order, FAILED, 0)])
    assert await stores.brief.add(order_for("k")) == RUN
    assert await stores.brief.add(order_for("k", "other")) is None
    for _ in range(2):
        found = await stores.brief.fetch(LOCAL, "k", "r", RUBRIC, Asker("row-1"))
        assert found is not None
        assert found.reason == "refused"
    assert await stores.brief.fetch(LOCAL, "k", "r", RUBRIC, Asker("row-1", round=1)) is None
    assert (await stores.brief.progress([order.name]))[order.name][0].run.run_id == "other"


async def test_only_an_expired_lease_is_acquired(stores: Stores) -> None:
    """By one replica, with the next epoch; a release ends it at once, and what is excluded stays."""
    await stores.lasting.add(order_for("k"))
    record = await stores.formed(stores.lasting)
    assert not (await stores.brief.backlog(wait_s=0, most=1, most_chars=1)).has_expired
    assert await stores.brief.acquire([]) == []
    await stores.lasting.release()
    assert (await stores.brief.backlog(wait_s=0, most=1, most_chars=1)).has_expired
    assert await stores.brief.acquire([record.batch_id]) == []
    acquired = await asyncio.gather(*(store.acquire([]) for store in [stores.lasting] * 4))
    assert [one for batch in acquired for one in batch] == [dataclasses.replace(record, epoch=2)]
    assert await stores.lasting.renew_all([record, acquired[0][0]] if acquired[0] else [record]) <= {record.batch_id}


@pytest.mark.parametrize("write", ["renew", "renew_all", "submitted", "finish", "remove"])
async def test_a_former_owner_writes_nothing(stores: Stores, write: str) -> None:
    """After another replica has acquired the batch each write is refused, and tables stay as they are."""
    order = order_for("k", reservation="money")
    await stores.shared.reserve(RUN, "money", 70, None, LONG_S)
    await stores.brief.add(order)
    stale = await stores.formed(stores.brief)
    await stores.brief.renew(stale)  # no other replica has acquired it: the lease begins again
    (record,) = await stores.lasting.acquire([])
    before = await stores.contents()
    again = Finished(order, FAILED, 50, dataclasses.replace(order, item_id=new_id()))
    if write == "renew_all":
        assert await stores.brief.renew_all([stale]) == set()
    else:
        given: dict[str, list[Any]] = {"submitted": ["theirs"], "finish": [[again]]}
        arguments = given.get(write, [])
        with pytest.raises(LeaseLostError):
            await getattr(stores.brief, write)(stale, *arguments)
    assert await stores.contents() == before
    await stores.lasting.finish(record, [Finished(order, FAILED, 50)])
    await stores.lasting.remove(record)
    standing = await stores.shared.read_spending(RUN)
    assert (standing.spent, standing.reserved) == (50, 0)


def contents(url: str) -> list[Any]:
    """Return what the tables of orders, batches and money hold."""
    with psycopg.connect(url) as connection:
        return [sorted(map(str, connection.execute(f"SELECT * FROM {table.name}").fetchall())) for table in TABLES]


class Replica:
    """A judge process on a shared database, and a client of it."""

    def __init__(self, stub: Any, process: Process, log: Path) -> None:
        self.stub = stub
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    async def grade(self, answer: str = "a", **fields: Any) -> pb.GradeResponse:
        """Return the response to one request for a batched verdict of a row."""
        asked = {"run_id": "r", "row": "0", "spend_cap_nano_usd": 1_000_000_000, "batch": True, **fields}
        request = pb.GradeRequest(rubric="quality", question="q", answer=answer, **asked)
        response: pb.GradeResponse = await self.stub.Grade(request, timeout=180, wait_for_ready=True)
        return response

    async def spent(self) -> tuple[float, float]:
        """Return what the run has spent and set aside."""
        spending = (await self.grade("")).spending
        return round(spending.spent_nano_usd / 1e9, 9), round(spending.reserved_nano_usd / 1e9, 9)


@asynccontextmanager
async def replica(
    judges: ForkServer, folder: Path, name: str, provider: ScriptedProvider, url: str, *,
    protocol: str = "openai", failpoints: str = "", flags: Mapping[str, Any] = QUICK,
) -> AsyncIterator[Replica]:  # fmt: skip
    """A replica; it is killed in the end."""
    (folder / "prices.yaml").write_text("prices: [{model: '*', input: 1, output: 5}]")
    given = {
        "listen": f"unix:{folder}/{name}.sock", "provider": protocol, "model": "judge-1",
        "base-url": provider.openai_url if protocol == "openai" else provider.url,
        "batch-base-urls": "http://127.0.0.1:*", "state-dir": folder / name, "prices": folder / "prices.yaml",
        **QUICK, **flags,
    }  # fmt: skip
    arguments = [f"--{key}={value}" for key, value in given.items()]
    variables = {"ASSAY_DATABASE_URL": url, "ASSAY_FAILPOINTS": failpoints}
    with started(judges, arguments, folder, folder / f"{name}.log", **variables) as process:
        async with open_channel(f"unix:{folder}/{name}.sock") as channel:
            await wait_for_ready(channel, "assay.judge.v1.JudgeService", 60)
            yield Replica(judge_pb2_grpc.JudgeServiceStub(channel), process, folder / f"{name}.log")


@contextmanager
def started(judges: ForkServer, arguments: list[str], folder: Path, log: Path, **variables: str) -> Iterator[Process]:
    with log.open("ab") as file:
        streams = (0, file.fileno(), file.fileno())
        process = judges.start(arguments, folder=folder, environment={**os.environ, **variables}, streams=streams)
    try:
        yield process
    finally:
        process.kill()  # also one that stands still
        process.wait()


def is_suspended(process: Process) -> bool:
    """Return whether a process stands still."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def check(verdict: pb.Verdict) -> None:
    """Fail unless this is the verdict, with what it has cost: its row has it."""
    assert (dict(verdict.scores), verdict.batched, verdict.cached) == ({"score": 4.0}, True, False)
    assert verdict.usage.cost_usd == pytest.approx(HALF_PRICE, abs=1e-12)


async def test_two_replicas_that_are_asked_the_same_order_it_once(
    judges: ForkServer, tmp_path: Path, postgres_url: str
) -> None:
    """One order for each, paid once; callers at both, of the same row and of another run, get its outcome."""
    patient = {"batch-wait-s": 2.0}  # all requests are there before a batch is made
    with ScriptedProvider(says(GOOD)) as provider:
        async with (
            replica(judges, tmp_path, "one", provider, postgres_url, flags=patient) as one,
            replica(judges, tmp_path, "two", provider, postgres_url, flags=patient) as two,
        ):
            asked = [(at, n) for n in range(20) for at in (one, two)]
            responses = await asyncio.gather(*(at.grade(f"a{n}", row=f"{n}") for at, n in asked))
            for response in responses:
                check(response.verdict)
            assert await one.spent() == await two.spent() == (round(20 * HALF_PRICE, 9), 0)
            provider.batches.is_held = True
            runs = {"one": one, "two": two}
            for run_id, at in runs.items():
                assert (await at.grade("b", run_id=run_id, timeout_ms=1)).verdict.reason == "batch_pending"
            provider.batches.is_held = False
            responses = await asyncio.gather(*(at.grade("b", run_id=run_id) for run_id, at in runs.items()))
            assert sum(response.verdict.usage.requests for response in responses) == 1
            assert all(dict(response.verdict.scores) == {"score": 4.0} for response in responses)
        assert sum(map(len, provider.batches.submitted)) == len(provider.batches.paid) == 21


@pytest.mark.parametrize(
    ("point", "protocol"),
    [
        ("judge.order_after_commit", "openai"),
        *((f"judge.batch_{when}_submit", protocol) for when in ("before", "after") for protocol in PROTOCOLS),
    ],
)
async def test_a_batch_of_a_killed_replica_is_carried_by_another(
    judges: ForkServer, tmp_path: Path, postgres_url: str, protocol: str, point: str
) -> None:
    """kill -9 with an order stored, before the submission or after it: one submission, and its row has the outcome.

    The state folder of the replica that was killed is not needed: the other one has a folder of its own.
    """
    with ScriptedProvider(says(GOOD)) as provider:
        # The other one starts when this one has the order: its poll could take it up first.
        async with replica(
            judges, tmp_path, "one", provider, postgres_url, protocol=protocol, failpoints=f"{point}=kill"
        ) as one:
            asking = asyncio.ensure_future(one.grade())
            await until(one.process.poll, lambda code: code is not None)
            asking.cancel()
        async with replica(judges, tmp_path, "two", provider, postgres_url, protocol=protocol) as two:
            check((await two.grade()).verdict)
            assert await two.spent() == (round(HALF_PRICE, 9), 0)
        assert len(provider.batches.submitted) == len(provider.batches.paid) == 1


@pytest.mark.parametrize("point", ["judge.batch_before_submit", "judge.batch_before_settle"])
async def test_a_suspended_replica_neither_submits_nor_writes(
    judges: ForkServer, tmp_path: Path, postgres_url: str, point: str
) -> None:
    """SIGSTOP for longer than the lease: another replica acquires the batch, and what comes after SIGCONT is refused.

    The first reply is no verdict, so that the suspended replica is about to order a second turn.
    """

    def script(request: Any) -> Reply:
        return says(GOOD if "An earlier reply" in system_of(request) else {**GOOD, "score": 9})(request)

    with ScriptedProvider(script) as provider:
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(
                replica(judges, tmp_path, "one", provider, postgres_url, failpoints=f"{point}=stop@1")
            )
            asking = asyncio.ensure_future(one.grade(row=""))
            await until(lambda: is_suspended(one.process))
            two = await stack.enter_async_context(replica(judges, tmp_path, "two", provider, postgres_url))
            verdict = (await two.grade(row="")).verdict
            assert (dict(verdict.scores), verdict.usage.requests) == ({"score": 4.0}, 2)
            await until(lambda: contents(postgres_url)[1] == [])  # its batches are over
            submitted, before = len(provider.batches.submitted), contents(postgres_url)[:2]
            os.kill(one.process.pid, signal.SIGCONT)
            await until(lambda: "lost batch lease" in one.log or len(provider.batches.submitted) > submitted)
            assert len(provider.batches.submitted) == submitted
            assert dict((await asking).verdict.scores) == {"score": 4.0}
            assert contents(postgres_url)[:2] == before
            assert await one.spent() == (round(2 * HALF_PRICE, 9), 0)
        assert len(provider.batches.submitted) == len(provider.batches.paid) == 2


async def test_a_graceful_stop_releases_its_batches(judges: ForkServer, tmp_path: Path, postgres_url: str) -> None:
    """Another replica acquires them at once, though their leases would last for an hour."""
    slow = {"batch-poll-s": 1_800}
    with ScriptedProvider(says(GOOD)) as provider:
        async with (
            replica(judges, tmp_path, "one", provider, postgres_url, flags=slow) as one,
            replica(judges, tmp_path, "two", provider, postgres_url, flags={**slow, "batch-wait-s": 600}) as two,
        ):
            assert (await one.grade(timeout_ms=1)).verdict.reason == "batch_pending"
            await until(lambda: "submitted batch" in one.log)
            os.kill(one.process.pid, signal.SIGTERM)
            await until(one.process.poll, lambda code: code is not None)
            assert one.process.returncode == 0
            await until(lambda: "acquired orphaned batch" in two.log, within_s=60)
            check((await two.grade()).verdict)
        assert len(provider.batches.submitted) == 1


async def test_the_cap_holds_over_the_orders_of_all_replicas(
    judges: ForkServer, tmp_path: Path, postgres_url: str
) -> None:
    """Both have more requests than the cap pays for: together they use it and never pass it."""
    cap = 0.03
    with ScriptedProvider(says(GOOD)) as provider:
        async with (
            replica(judges, tmp_path, "one", provider, postgres_url) as one,
            replica(judges, tmp_path, "two", provider, postgres_url) as two,
        ):
            asked = [(at, n) for n in range(30) for at in (one, two)]
            responses = await asyncio.gather(
                *(
                    at.grade(
                        f"a{n} {at.process.pid}", row=f"{n} {at.process.pid}", spend_cap_nano_usd=round(cap * 10**9)
                    )
                    for at, n in asked
                )
            )
            valid = [response for response in responses if response.verdict.scores]
            refused = [response for response in responses if response.verdict.reason == "spend_cap_reached"]
            assert len(valid) + len(refused) == 60
            assert all(one.spending.spent_nano_usd + one.spending.reserved_nano_usd <= cap * 10**9 for one in responses)
            paid = round(len(provider.batches.paid) * HALF_PRICE, 9)
            assert len(valid) == len(provider.batches.paid)
            assert cap - 0.02 < paid <= cap
            assert await one.spent() == await two.spent() == (paid, 0)
