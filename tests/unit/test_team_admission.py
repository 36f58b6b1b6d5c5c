"""Turns of teams at a server, late refusals, and quotas as texts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.processes.virtual_time import in_virtual_time

from assay.errors import OverloadedError
from assay.identity.quotas import NANO, Quota
from assay.rpc.admission import Admission, peer_address
from assay.rpc.methods import Slots
from assay.rpc.options import ServerOptions
from assay.rpc.team_admission import Refusals, TeamRefusedError, TeamTurns


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans()), max_size=60))
@in_virtual_time
async def test_no_team_is_worked_on_more_than_it_may(calls: list[tuple[str, int, bool]]) -> None:
    """Whatever calls come and leave while they wait: a team has its turns at most, and none of them is lost."""
    turns, working, most = TeamTurns(most=2), Counter[str](), Counter[str]()

    async def call(team: str, seconds: int) -> None:
        await turns.enter(team)
        working[team] += 1
        most[team] = max(most[team], working[team])
        try:
            await asyncio.sleep(seconds)
        finally:
            working[team] -= 1
            turns.leave(team)

    tasks = [asyncio.create_task(call(team, seconds)) for team, seconds, _ in calls]
    await asyncio.sleep(1)
    for task, (_, _, leaves) in zip(tasks, calls, strict=True):
        if leaves:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(count <= 2 for count in most.values())
    for team in "abc":  # every turn was given back
        await asyncio.gather(turns.enter(team), turns.enter(team))


@in_virtual_time
async def test_calls_of_others_do_not_wait_for_a_flood() -> None:
    """One team's first call is worked on at once, however many calls of another wait."""
    turns, loop = TeamTurns(), asyncio.get_running_loop()

    async def call(team: str) -> float:
        await turns.enter(team)
        begun = loop.time()
        await asyncio.sleep(1)
        turns.leave(team)
        return begun

    flood = [asyncio.create_task(call("flood")) for _ in range(100)]
    assert await call("calm") == loop.time() - 1 == 0
    assert max(await asyncio.gather(*flood)) == 12


@in_virtual_time
async def test_refusals_wait_the_longer_the_more_there_are() -> None:
    """From half a second to five, at most three quarters of what the client waits, and at once beyond a number."""
    refusals, loop = Refusals(jitter=lambda: 0.0), asyncio.get_running_loop()
    error = TeamRefusedError("no", team="t", retry_after_s=60.0, reason="R")

    async def refused(remaining_s: float | None) -> float:
        await refusals.delay(error, remaining_s)
        return loop.time()

    waited = await asyncio.gather(*(refused(None) for _ in range(3_000)))
    assert (waited[0], max(waited), waited[-1]) == (0.5, 5.0, 0.0)
    begun = loop.time()
    assert await refused(0.2) - begun == pytest.approx(0.15)


@in_virtual_time
async def test_refusals_of_calls_that_came_at_once_are_not_sent_at_once() -> None:
    """Of a thousand calls whose client waits six seconds, no tenth of a second refuses more than a tenth."""
    refusals, loop = Refusals(jitter=random.Random(1).random), asyncio.get_running_loop()
    error = TeamRefusedError("no", team="t", retry_after_s=60.0, reason="R")

    async def refused() -> int:
        await refusals.delay(error, 6.0)
        return int(loop.time() * 10)

    waited = Counter(await asyncio.gather(*(refused() for _ in range(1_000))))
    assert max(waited.values()) < 100
    assert max(waited) < 45


@pytest.mark.parametrize(
    ("quota", "text", "amount", "shown"),
    [
        (Quota.ACTIVE_RUNS, "0", 0, "0"),
        (Quota.TOKENS_PER_DAY, "50000000", 50_000_000, "50,000,000"),
        (Quota.STORED_BYTES, "10GB", 10**10, "10.0 GB"),
        (Quota.STORED_BYTES, "1.5 GiB", 3 * 2**29, "1.6 GB"),
        (Quota.STORED_BYTES, "12", 12, "12 bytes"),
        (Quota.MONEY_PER_MONTH, "2.50", 5 * NANO // 2, "$2.50"),
        (Quota.MONEY_PER_MONTH, "$100", 100 * NANO, "$100.00"),
    ],
)
def test_amounts_are_read_and_shown(quota: Quota, text: str, amount: int, shown: str) -> None:
    """In the units that people write."""
    assert (quota.parse(text), quota.shown(amount)) == (amount, shown)


@pytest.mark.parametrize(
    ("quota", "text"),
    [
        (Quota.ACTIVE_RUNS, "-1"),
        (Quota.ACTIVE_RUNS, "1.5"),
        (Quota.ACTIVE_RUNS, "\u0663"),
        (Quota.ACTIVE_RUNS, "9" * 30),
        (Quota.STORED_BYTES, "10 gigs"),
        (Quota.MONEY_PER_MONTH, "nan"),
        (Quota.MONEY_PER_MONTH, "-3"),
        (Quota.MONEY_PER_MONTH, "1e30"),
    ],
)
def test_what_is_no_amount_is_refused(quota: Quota, text: str) -> None:
    """With a sentence that says what would be one."""
    with pytest.raises(ValueError, match=r"must be|too large"):
        quota.parse(text)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:50000", "192.0.2.1"),
        ("ipv6:[2001:db8::7]:50000", "2001:db8::/64"),
        ("ipv6:%5B2001:db8::8%5D:50000", "2001:db8::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::/64"),
        ("ipv6:[::ffff:192.0.2.1]:50000", "192.0.2.1"),
        ("unix:", ""),
        ("unix:/tmp/o.sock", ""),
        ("unix:%00", ""),
        ("vsock:3:1024", "3"),
        ("odd", "odd"),
    ],
)
def test_a_client_is_known_by_its_address(peer: str, address: str) -> None:
    """Its connections count together, and so do the addresses of one IPv6 network; a unix socket is this machine."""
    assert peer_address(peer) == address


def taken(admission: Admission, stack: ExitStack, peer: str, slots: Slots = Slots.STREAMS) -> int:
    """Take slots until one is refused; return how many there were."""
    count = 0
    while True:
        try:
            stack.enter_context(admission.slot(slots, peer))
        except OverloadedError:
            return count
        count += 1


def test_one_address_cannot_take_every_slot() -> None:
    """Alone it has most of them; whoever comes later finds some free, and less is left for each."""
    admission = Admission(ServerOptions(max_open_streams=1000))
    with ExitStack() as stack:
        counts = [taken(admission, stack, f"ipv4:192.0.2.{number}:1") for number in range(4)]
        assert counts == [800, 160, 32, 7]
        assert taken(admission, stack, "ipv4:192.0.2.0:2") == 0
    with ExitStack() as stack:
        assert taken(admission, stack, "ipv4:192.0.2.9:1") == 800


def test_clients_of_this_machine_share_all_slots() -> None:
    """The local stack, at a unix socket, is limited by the whole alone."""
    admission = Admission(ServerOptions(max_open_streams=1000))
    with ExitStack() as stack:
        assert taken(admission, stack, "unix:") == 1000
        assert taken(admission, stack, "unix:", Slots.CALLS) == 1000


def test_health_is_answered_when_every_slot_is_taken() -> None:
    """Checks take no slot, and watches of health have their own."""
    admission = Admission(ServerOptions(max_open_streams=10, max_concurrent_calls=10))
    with ExitStack() as stack:
        for slots in (Slots.CALLS, Slots.STREAMS):
            taken(admission, stack, "unix:", slots)
        assert taken(admission, stack, "unix:", Slots.HEALTH_WATCHES) == 10
        for _ in range(100):
            stack.enter_context(admission.slot(Slots.NONE, "ipv4:192.0.2.1:1"))
