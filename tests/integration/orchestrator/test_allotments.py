"""Money and tokens of a team are reserved before calls: whatever its runs do at once, they spend no more than that."""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import AsyncExitStack
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import sqlalchemy as sa
from tests.integration.orchestrator.test_run_pause import until
from tests.support.processes import waiting
from tests.support.services.held_amounts import held_by
from tests.support.services.shared_installation import SharedInstallation, shared_installation

from assay.client import admin
from assay.identity.quotas import Quota
from assay.model.answers.agent_request import AgentRequest
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, PauseCause, RunState
from assay.testing.providers import Reply, ScriptedProvider, Tokens
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.prompt import PromptAgent
from assay_orchestrator.budgets.budget_store import BudgetExhaustedError
from assay_orchestrator.budgets.run_budget import RunBudget
from assay_orchestrator.runs.budget_watch import BudgetWatch
from assay_orchestrator.store import schema
from assay_orchestrator.store.shards.shards import FencedError
from assay_orchestrator.store.teams import allotments, quotas
from assay_orchestrator.store.teams.allotments import NOTHING, UNLIMITED, Amount, Holder, JudgingNeed, Shortage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import RunSpec
    from assay.storage.database import Database

    SettingsOf = Callable[..., RunSpec]

T = TypeVar("T")

CASES = [Case(f"c{number}", (Turn(f"q{number}", references=("yes",)),)) for number in range(12)]
PRICES = {"input": 1, "output": 10}
CALL = Amount(1_900_000, 1_090)
"""What each call takes: 1,000 tokens at 1 and 90 at 10 dollars a million."""


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    """Return a provider whose replies all cost the same, after a moment in which others are asked."""
    with ScriptedProvider(Reply("yes", usage=Tokens(1_000, 90), delay_s=0.02)) as running:
        yield running


async def limit(database: Database, quota: Quota, amount: int) -> None:
    """Set a quota of the team."""
    await database.write(lambda c: quotas.set_quotas(c, "search", {quota: amount}))


async def used(client: Client, quota: Quota) -> int:
    """Return what the team has used."""
    (usage,) = await admin.list_team_usage(client)
    return usage.used[quota]


@pytest.mark.parametrize(
    ("quota", "amount", "each"),
    [(Quota.MONEY_PER_MONTH, 25_000_000, CALL.nano_usd), (Quota.TOKENS_PER_DAY, 15_000, CALL.tokens)],
)
async def test_runs_at_several_workers_spend_no_more_than_the_quota(
    quota: Quota,
    amount: int,
    each: int,
    tmp_path: Path,
    database_url: str,
    settings_of: SettingsOf,
    provider: ScriptedProvider,
) -> None:
    """Three runs of twelve calls, at two workers where the database is shared, stop below the quota, and say why.

    What is paid is counted where it is paid, at the provider. With more in the quota the runs continue, and what is
    stored as spent is what the provider was paid.
    """
    changes: dict[str, Any] = {"database_url": database_url, "http_hosts": ("127.0.0.1",), "egress_networks": None}
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(shared_installation(tmp_path, **changes))
        installations: list[SharedInstallation] = [first]
        if database_url:
            address = f"unix:{tmp_path}/second.sock"
            installations.append(
                await stack.enter_async_context(shared_installation(tmp_path, listen=address, **changes))
            )
        await limit(first.database, quota, amount)
        token = await first.token("search")
        clients = [await each.client(token) for each in installations]
        options = {"base_url": provider.openai_url, "max_tokens": 100, "prices": PRICES}
        settings = settings_of("openai", "m", concurrency=4, options=options)
        dataset = await clients[0].upload_dataset(CASES, name="d")
        runs = [await clients[number % len(clients)].create_run(settings, dataset.dataset_id) for number in range(3)]
        ended = [await until(clients[0], run.run_id, RunState.PAUSED, RunState.COMPLETED) for run in runs]
        paid = len(provider.requests) * each
        assert paid <= amount
        assert len(provider.requests) >= 5
        assert {run.pause_cause for run in ended if run.state is RunState.PAUSED} == {PauseCause.QUOTA}
        reason = next(run.state_message for run in ended if run.state is RunState.PAUSED)
        assert f"too little left of its quota {quota.value} for the next call" in reason
        assert await used(clients[0], quota) == paid
        await limit(first.database, quota, 10**12)
        for run in ended:
            if run.state is RunState.PAUSED:
                await clients[0].resume_run(run.run_id)
        for run in runs:
            assert (await until(clients[0], run.run_id, RunState.COMPLETED)).counts.finished_count == len(CASES)
        assert len(provider.requests) == 3 * len(CASES)
        assert await used(clients[0], quota) == 3 * len(CASES) * each
        held = await first.database.read(held_by("search"))
        assert held == NOTHING


async def test_parts_shrink_as_the_quota_is_used_up(open_store: Callable[[], Database]) -> None:
    """A holder takes 64 calls or an eighth of what is left; what another holds is not given out again."""
    database, call = open_store(), Amount(10, 10)
    one, two = Holder("search", "r", "one"), Holder("search", "r", "two")

    async def take(holder: Holder, used: Amount = NOTHING, recorded: Amount = NOTHING) -> Amount | Shortage:
        return await database.write(lambda c: allotments.take(c, holder, used, recorded, call))

    try:
        assert await take(one) == UNLIMITED
        await limit(database, Quota.MONEY_PER_MONTH, 8_000)
        assert await take(one) == Amount(640, UNLIMITED.tokens)
        assert await take(two) == Amount(640, UNLIMITED.tokens)
        await limit(database, Quota.MONEY_PER_MONTH, 800)
        assert await take(one, used=Amount(630)) == Shortage(Quota.MONEY_PER_MONTH, 800, 0, 1_270, 10)
        assert await take(two, used=Amount(20)) == Amount(20 + 17, UNLIMITED.tokens)
        await database.write(lambda c: allotments.release(c, one))
        assert await take(two, used=Amount(20)) == Amount(20 + 97, UNLIMITED.tokens)
    finally:
        database.close()


async def test_what_a_lost_worker_held_is_free_after_its_lease(open_store: Callable[[], Database]) -> None:
    """A renewed lease lasts; one that has expired cannot be renewed, and what it held is free."""
    database, call = open_store(), Amount(10)
    lost, alive = Holder("search", "r", "lost"), Holder("search", "r", "alive")
    try:
        await limit(database, Quota.MONEY_PER_MONTH, 100)
        for holder in (lost, alive):
            await database.write(lambda c, holder=holder: allotments.take(c, holder, Amount(30), NOTHING, call))  # type: ignore[misc]
        assert await database.read(held_by("search")) == Amount(80)
        past = sa.update(schema.allotments).where(schema.allotments.c.holder == "lost").values(expires_at="2020")
        await database.write(lambda c: c.execute(past))
        assert await database.write(lambda c: allotments.renew(c, ["lost", "alive"])) == {"alive"}
        assert await database.read(held_by("search")) == Amount(40)
    finally:
        database.close()


async def test_a_team_without_a_quota_is_not_looked_up(open_store: Callable[[], Database]) -> None:
    """Its calls ask no database and compute no bound, and are counted all the same."""

    class Untouched:
        async def write(self, change: Callable[[sa.Connection], T]) -> T:
            raise AssertionError("asked for a team without a quota")

        write_once = write

    budget = RunBudget("search", "r")
    budget.attach(Untouched())

    def bound() -> Amount:
        raise AssertionError("computed for a team without a quota")

    with await budget.reserve(bound) as reservation:
        reservation.cost = CALL
    assert budget.used == CALL


async def test_a_call_settled_while_the_database_answers_leaves_its_rest(open_store: Callable[[], Database]) -> None:
    """The quota is not used up by what the last call in flight might have taken and did not take."""
    database, pauses = open_store(), list[str]()

    class Settling:
        """Settles the call in flight after the transaction, before its outcome is known."""

        def __init__(self) -> None:
            self.in_flight: Any = None

        async def write(self, change: Callable[[sa.Connection], T]) -> T:
            found = await database.write(change)
            if self.in_flight is not None:
                call, self.in_flight = self.in_flight, None
                call.cost = Amount(1)
                call.__exit__(None, None, None)
            return found

        write_once = write

    async def pause(reason: str) -> None:
        pauses.append(reason)

    store, budget = Settling(), RunBudget("search", "r", pause)
    budget.attach(store)
    budget.limit(frozenset({"nano_usd"}))
    try:
        await limit(database, Quota.MONEY_PER_MONTH, 100)
        store.in_flight = await budget.reserve(lambda: Amount(60))
        with await budget.reserve(lambda: Amount(60)) as reservation:
            reservation.cost = Amount(2)
        assert pauses == []
        assert budget.used == Amount(3)
    finally:
        database.close()


class Asked:
    """A database whose changes are counted once they are made."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.count = 0

    async def write(self, change: Callable[[sa.Connection], T]) -> T:
        """Make a change."""
        found = await self._database.write(change)
        self.count += 1
        return found

    write_once = write


class Owner:
    """Pauses no run: none is over its quota."""

    def on_pausing(self, run_id: str) -> None:
        """Fail."""
        raise AssertionError(f"{run_id} is being paused")

    def on_paused(self, run_id: str, reason: str) -> None:
        """Fail."""
        raise AssertionError(f"{run_id} is paused: {reason}")


async def test_calls_that_wait_are_given_up_when_the_run_is_being_paused(open_store: Callable[[], Database]) -> None:
    """All of them, while a call that may leave enough is in flight; those that need not wait are made."""
    database = open_store()
    store, budget = Asked(database), RunBudget("search", "r")
    budget.attach(store)
    budget.limit(frozenset({"nano_usd"}))
    try:
        await limit(database, Quota.MONEY_PER_MONTH, 100)
        first = await budget.reserve(lambda: Amount(60))
        calls = [asyncio.ensure_future(budget.reserve(lambda: Amount(60))) for _ in range(3)]
        await waiting.until(lambda: store.count, lambda count: count >= 2)
        budget.pausing.set()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [BudgetExhaustedError] * 3
        with first:
            first.cost = Amount(10)
        with await budget.reserve(lambda: Amount(20)) as small:
            small.cost = Amount(20)
        assert (first.has_waited, small.has_waited) == (True, False)
        assert budget.used == Amount(30)
    finally:
        database.close()


async def test_a_call_that_has_waited_says_so(open_store: Callable[[], Database]) -> None:
    """Whether for the database, for a call in flight or for its turn: what was true before may not be."""
    database = open_store()
    store, budget = Asked(database), RunBudget("search", "r")
    budget.attach(store)
    budget.limit(frozenset({"nano_usd"}))
    try:
        await limit(database, Quota.MONEY_PER_MONTH, 100)
        first = await budget.reserve(lambda: Amount(60))
        calls = [asyncio.ensure_future(budget.reserve(lambda: Amount(40))) for _ in range(2)]
        await waiting.until(lambda: calls[0].done())
        with first:
            first.cost = NOTHING
        assert [call.has_waited for call in await asyncio.gather(*calls)] == [True, True]
    finally:
        database.close()


async def test_a_call_that_must_not_go_out_after_its_wait_takes_nothing(
    provider: ScriptedProvider, open_store: Callable[[], Database]
) -> None:
    """Its shard went to another worker meanwhile: no model is asked, and what was set aside is free again."""
    database, budget = open_store(), RunBudget("search", "r")
    budget.attach(Asked(database))
    budget.limit(frozenset({"nano_usd"}))
    options = {"base_url": provider.openai_url, "max_tokens": 100, "prices": PRICES}
    agent = PromptAgent(AgentSpec("openai", "m", options=options), AgentAccess(("127.0.0.1",), ()), budget)

    async def before() -> None:
        raise FencedError("another worker has it")

    try:
        await limit(database, Quota.MONEY_PER_MONTH, 4_000_000)
        for _ in range(3):
            with pytest.raises(FencedError):
                await agent.answer_after_waiting(AgentRequest("r#0", "r", "c", "q"), CASES[0], before)
            budget.limit(frozenset())  # so that the next call asks the database again
            budget.limit(frozenset({"nano_usd"}))
        assert (provider.requests, budget.used) == ([], NOTHING)
    finally:
        await agent.aclose()
        database.close()


async def test_a_pause_stops_calls_that_wait_for_money(tmp_path: Path, settings_of: SettingsOf) -> None:
    """Only the call in flight ends: the quota has room for one at a time, and seven others wait for what it leaves."""
    may_answer = threading.Event()

    def answer(request: object) -> Reply:
        may_answer.wait()
        return Reply("yes", usage=Tokens(10, 1))

    with ScriptedProvider(answer) as provider:
        try:
            async with shared_installation(tmp_path, http_hosts=("127.0.0.1",), egress_networks=None) as shared:
                await limit(shared.database, Quota.MONEY_PER_MONTH, 4_000_000)
                client = await shared.member("search")
                options = {"base_url": provider.openai_url, "max_tokens": 100, "prices": PRICES}
                dataset = await client.upload_dataset(CASES, name="d")
                settings = settings_of("openai", "m", concurrency=8, options=options)
                run = await client.create_run(settings, dataset.dataset_id)
                await waiting.until(lambda: provider.requests)
                await client.pause_run(run.run_id)
                may_answer.set()
                paused = await until(client, run.run_id, RunState.PAUSED, RunState.COMPLETED)
                assert (paused.state, paused.pause_cause) == (RunState.PAUSED, PauseCause.OWNER)
                assert (len(provider.requests), paused.counts.finished_count) == (1, 1)
        finally:
            may_answer.set()


@pytest.mark.parametrize("judges", [False, True])
async def test_a_lease_ends_while_the_machine_is_suspended(
    judges: bool, open_store: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was away for longer than its lease takes anew: others may have spent what it held."""
    database, asleep_s = open_store(), [0.0]
    for module in ("run_budget", "judge_budget"):
        monkeypatch.setattr(f"assay_orchestrator.budgets.{module}.boot_time", lambda: monotonic() + asleep_s[0])
    store, budget = Asked(database), RunBudget("search", "r")
    budget.attach(store)
    budget.limit(frozenset({"nano_usd"}))

    async def use() -> None:
        if judges:
            assert await budget.judge.allowance()
        else:
            with await budget.reserve(lambda: Amount(10)) as reservation:
                reservation.cost = NOTHING

    try:
        await limit(database, Quota.MONEY_PER_MONTH, 1_000)
        if judges:
            await budget.judge.grow(0, 10)
        await use()
        await use()
        assert store.count == 1
        asleep_s[0] = 2 * allotments.LEASE_S
        await use()
        assert store.count == 2
    finally:
        database.close()


async def test_a_lease_that_cannot_be_renewed_is_used_no_longer(open_store: Callable[[], Database]) -> None:
    """Where the clock that ends leases was set forward, others may have what it held."""
    database = open_store()
    watch = BudgetWatch(database, Owner(), check_s=3600.0)
    watch.start()
    try:
        await limit(database, Quota.MONEY_PER_MONTH, 1_000)
        budget = await watch.open("search", "r")
        store = Asked(database)
        budget.attach(store)
        with await budget.reserve(lambda: Amount(10)) as reservation:
            reservation.cost = NOTHING
        past = sa.update(schema.allotments).values(expires_at="2020")
        await database.write(lambda c: c.execute(past))
        await watch.check()
        with await budget.reserve(lambda: Amount(10)) as reservation:
            reservation.cost = NOTHING
        assert store.count == 2
    finally:
        await watch.aclose()
        database.close()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("offset_s", [-3600.0, 3600.0])
async def test_leases_end_by_the_clock_of_the_server(
    offset_s: float, open_store: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host whose clock is wrong neither takes what others hold nor keeps what it holds longer or shorter."""
    database, call = open_store(), Amount(60)
    right, wrong = Holder("search", "r", "right"), Holder("search", "r", "wrong")
    judging = Holder("search", "r", "judging")
    try:
        await limit(database, Quota.MONEY_PER_MONTH, 100)
        await database.write(lambda c: allotments.take(c, right, NOTHING, NOTHING, Amount(30)))
        monkeypatch.setattr("assay.storage.times.clock_offset_s", lambda: offset_s)
        found = await database.write(lambda c: allotments.take(c, wrong, NOTHING, NOTHING, Amount(80)))
        assert isinstance(found, Shortage)
        await database.write(lambda c: allotments.take(c, wrong, NOTHING, NOTHING, Amount(20)))
        need = JudgingNeed(0, 0, 10, 10)
        assert await database.write(lambda c: allotments.take_judging(c, judging, wrong, need)) == 10
        monkeypatch.setattr("assay.storage.times.clock_offset_s", lambda: 0.0)
        names = {holder.name for holder in (right, wrong, judging)}
        assert await database.write(lambda c: allotments.renew(c, names)) == names
        assert await database.read(held_by("search")) == Amount(30 + 20 + 10)
        ends = sa.select(schema.allotments.c.expires_at)
        found_at = await database.read(lambda c: c.execute(ends).scalars().all())
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each) for each in found_at)
        assert isinstance(await database.write(lambda c: allotments.take(c, right, NOTHING, NOTHING, call)), Amount)
    finally:
        database.close()
