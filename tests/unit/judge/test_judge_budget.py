from __future__ import annotations

import asyncio
import dataclasses
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.judge_specs import judge_of
from tests.support.processes.virtual_time import in_virtual_time
from tests.support.services.memory_books import MemoryBooks

from assay.errors import InvalidInputError, StorageError
from assay.judging.prices import cap_text
from assay.model.model_price import ModelPrice
from assay.model.run import AgentSpec, JudgeModel, MetricSpec, RunSpec
from assay.model.scope import LOCAL
from assay_judge.calls.prices import Price, PriceTable, nano_from_usd, usd_from_nano
from assay_judge.judges import JudgeChoice
from assay_judge.model import Material, Prompt, RunKey, Tokens
from assay_judge.state.accounts import SpendCapReachedError
from assay_judge.state.ledger import Ledger
from assay_judge.state.store import JudgeStore
from assay_judge.verdicts.prompt import build_prompt
from assay_judge.verdicts.rubric_registry import BUILT_IN

if TYPE_CHECKING:
    from pathlib import Path

    from assay.judging.rubric import Rubric

RUN = RunKey("local", "run")
LONG_S = 600.0


@in_virtual_time
async def test_ten_thousand_concurrent_reservations_never_overshoot() -> None:
    """Calls that cost less than reserved, some that die in between: the cap is used and never passed."""
    rng = random.Random(0)
    cap, most = 1_000_000, 1_000
    books = MemoryBooks()
    account = books.account()
    paid: list[int] = []

    async def call() -> bool:
        try:
            reservation = await account.reserve(most, cap, lasts_s=LONG_S)
        except SpendCapReachedError:
            return False
        assert account.spent + account.reserved <= cap
        cost = rng.randint(0, most)
        try:
            await asyncio.sleep(rng.random())
            if rng.random() < 0.1:
                cost = most
                raise asyncio.CancelledError
        finally:
            await reservation.settle(cost)
            paid.append(cost)
        return True

    await asyncio.gather(*(call() for _ in range(10_000)), return_exceptions=True)
    assert account.reserved == 0
    assert account.spent == sum(paid) <= cap
    assert cap - account.spent < most
    assert books.most <= cap
    assert books.paid["run"] == account.spent


@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_whoever_leaves_while_waiting_takes_no_money_along(seed: int) -> None:
    """Cancelling requests at any moment of a reservation keeps the sums right."""
    rng = random.Random(seed)
    books = MemoryBooks()
    account = books.account()
    paid: list[int] = []

    async def call(most: int) -> None:
        reservation = await account.reserve(most, 5_000, lasts_s=LONG_S)
        cost = most
        try:
            await asyncio.sleep(rng.random() / 10)
            cost = rng.randint(0, most)
        finally:
            paid.append(cost)
            await asyncio.shield(reservation.settle(cost))

    tasks = [asyncio.ensure_future(call(rng.randint(1, 400))) for _ in range(300)]
    while not all(task.done() for task in tasks):
        rng.choice(tasks).cancel()
        await asyncio.sleep(rng.random() / 100)
        assert account.spent + account.reserved <= 5_000
    await asyncio.sleep(1)
    assert (account.spent, account.reserved) == (sum(paid), 0)
    assert books.paid["run"] == account.spent


@in_virtual_time
async def test_a_call_waits_where_those_under_way_may_leave_enough() -> None:
    """A call is refused only if too little is left, whatever the calls in flight cost."""
    books = MemoryBooks()
    account = books.account()
    first = await account.reserve(80, 100, lasts_s=LONG_S)
    waiting = asyncio.ensure_future(account.reserve(50, 100, lasts_s=LONG_S))
    await asyncio.sleep(1)
    assert not waiting.done()
    await first.settle(30)
    await (await waiting).settle(50)
    with pytest.raises(SpendCapReachedError):
        await account.reserve(21, 100, lasts_s=LONG_S)
    await (await account.reserve(20, 100, lasts_s=LONG_S)).settle(20)
    assert (account.spent, account.reserved) == (100, 0)


@in_virtual_time
async def test_a_reservation_that_is_cancelled_while_the_disk_is_full_ends_cancelled() -> None:
    """A failed release does not replace the cancellation, and nothing stays reserved."""
    account = MemoryBooks(failures=2).account()
    asking = asyncio.ensure_future(account.reserve(1_000, 10_000, lasts_s=LONG_S))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (account.spent, account.reserved) == (0, 0)


@in_virtual_time
async def test_an_amount_that_cannot_fit_is_refused_at_once() -> None:
    """What is already spent decides: neither waiting calls nor calls in flight delay the refusal."""
    books = MemoryBooks()
    account = books.account()
    first, second = [await account.reserve(40, 100, lasts_s=LONG_S) for _ in range(2)]
    waiting = asyncio.ensure_future(account.reserve(50, 100, lasts_s=LONG_S))
    await asyncio.sleep(1)
    with pytest.raises(SpendCapReachedError):
        await asyncio.wait_for(account.reserve(101, 100, lasts_s=LONG_S), 1)
    await first.settle(60)  # more than was set aside, so that 50 more never fit
    with pytest.raises(SpendCapReachedError):
        await asyncio.wait_for(waiting, 1)
    await second.settle(0)
    assert (account.spent, account.reserved) == (60, 0)


@in_virtual_time
async def test_waiting_for_the_money_of_others_is_announced() -> None:
    """A waiting reservation sets the event; a call that fits at once does not."""
    account, waits = MemoryBooks().account(), asyncio.Event()
    first = await account.reserve(80, 100, lasts_s=LONG_S, waits=waits)
    assert not waits.is_set()
    waiting = asyncio.ensure_future(account.reserve(50, 100, lasts_s=LONG_S, waits=waits))
    await asyncio.wait_for(waits.wait(), 1)
    assert not waiting.done()
    await first.settle(0)
    await (await waiting).settle(0)


@in_virtual_time
async def test_what_is_wanted_at_once_does_not_pass_those_who_wait() -> None:
    """An immediate reservation succeeds if it fits and no call waits; without a cap always."""
    books = MemoryBooks()
    account = books.account()
    first = await account.reserve_now(80, 100, lasts_s=LONG_S)
    assert first is not None
    assert await account.reserve_now(21, 100, lasts_s=LONG_S) is None
    waiting = asyncio.ensure_future(account.reserve(50, 100, lasts_s=LONG_S))
    await asyncio.sleep(1)
    assert await account.reserve_now(1, 100, lasts_s=LONG_S) is None
    assert account.reserved == 80
    assert await account.reserve_now(7, None, lasts_s=LONG_S) is not None
    assert account.reserved == 87
    assert sum(books.held.values()) == 87
    await first.settle(0)
    await waiting
    assert await account.reserve_now(43, 100, lasts_s=LONG_S) is not None
    assert account.reserved == 100


def test_retries_are_ten_or_a_fifth_of_all_calls() -> None:
    """Retries are limited to ten or a fifth of all calls, so that a storm does not feed itself."""

    def may_retry(calls: int, retries: int) -> bool:
        account = MemoryBooks().account()
        account.calls, account.retries = calls, retries
        return account.may_retry()

    assert [may_retry(0, retries) for retries in (0, 9, 10)] == [True, True, False]
    assert [may_retry(50, retries) for retries in (9, 10)] == [True, False]
    assert [may_retry(100, retries) for retries in (19, 20)] == [True, False]


async def test_the_account_used_longest_ago_is_forgotten_first() -> None:
    """Beyond the limit accounts that no request uses are read again from the database; those in use stay."""
    books: Any = MemoryBooks({"a": 1, "b": 2, "c": 3})
    ledger = Ledger(books, accounts=2)
    for run_id in "abac":
        _, close = await ledger.open(LOCAL, run_id)
        close()
    books.paid = {"a": 10, "b": 20, "c": 30}
    assert [(await ledger.open(LOCAL, run_id))[0].spent for run_id in "acb"] == [1, 3, 20]
    _, close = await ledger.open(LOCAL, "d")
    close()
    assert [(await ledger.open(LOCAL, run_id))[0].spent for run_id in "acb"] == [1, 3, 20]


async def test_an_account_that_was_closed_twice_is_still_in_use_by_others() -> None:
    """The deletion of a team and the end of a request both close its account: it counts as one."""
    books: Any = MemoryBooks({"a": 1})
    ledger = Ledger(books, accounts=0)
    _, close = await ledger.open(LOCAL, "a")
    account, _ = await ledger.open(LOCAL, "a")
    close()
    close()
    assert (await ledger.open(LOCAL, "a"))[0] is account


async def test_ten_thousand_accounts_stay_in_memory() -> None:
    """One more, and the first one that is idle is forgotten."""
    books: Any = MemoryBooks()
    ledger = Ledger(books)
    closes = [(await ledger.open(LOCAL, str(number)))[1] for number in range(10_000)]
    closes[0]()
    books.paid = {"0": 5, "1": 5}
    assert (await ledger.open(LOCAL, "0"))[0].spent == 0
    closes[1]()
    await ledger.open(LOCAL, "one more")
    closes[2]()
    assert (await ledger.open(LOCAL, "1"))[0].spent == 5


async def test_what_a_dead_process_had_set_aside_is_spent(tmp_path: Path) -> None:
    """The next process counts a dead process's reservations as spent: the calls may have been paid."""
    store = await JudgeStore.open(tmp_path)
    account, _ = await Ledger(store).open(LOCAL, "run")
    await (await account.reserve(70, 100, lasts_s=LONG_S)).settle(30)
    await account.reserve(50, 100, lasts_s=LONG_S)
    await store.aclose()
    again = await JudgeStore.open(tmp_path)
    account, _ = await Ledger(again).open(LOCAL, "run")
    assert (account.spent, account.reserved, account.unknown) == (80, 0, 50)
    with pytest.raises(SpendCapReachedError):
        await account.reserve(21, 100, lasts_s=LONG_S)
    await again.aclose()


async def test_what_lost_calls_cost_is_bounded_by_an_identical_one(tmp_path: Path) -> None:
    """A lost call costs at most an identical one, even of a dead process; the account states what is unknown."""
    store = await JudgeStore.open(tmp_path)
    account, _ = await Ledger(store).open(LOCAL, "run")
    await (await account.reserve(50, 200, lasts_s=LONG_S, key="k")).lose()
    for key in ("k", "other"):
        await account.reserve(50, 200, lasts_s=LONG_S, key=key)  # in flight when the process dies
    await store.aclose()
    again = await JudgeStore.open(tmp_path)
    account, _ = await Ledger(again).open(LOCAL, "run")
    assert (account.spent, account.unknown) == (150, 150)
    await (await account.reserve(50, 200, lasts_s=LONG_S, key="k")).settle(10, 30)
    assert (account.spent, account.unknown, account.reserved) == (10 + 30 + 30 + 50, 110, 0)
    await (await account.reserve(50, 200, lasts_s=LONG_S, key="k")).settle(10, 1)  # they are bounded once
    assert (account.spent, account.unknown) == (130, 110)
    await again.aclose()
    last = await JudgeStore.open(tmp_path)
    account, _ = await Ledger(last).open(LOCAL, "run")
    assert (account.spent, account.unknown) == (130, 110)
    await last.aclose()


async def test_a_call_of_no_run_is_not_accounted_for(tmp_path: Path) -> None:
    """A call outside a run has no cap and no stored spending; its retries are counted."""
    store = await JudgeStore.open(tmp_path)
    account, _ = await Ledger(store).open(LOCAL, "")
    reservation = await account.reserve(70, None, lasts_s=LONG_S)
    await reservation.settle(30)
    await (await account.reserve(70, None, lasts_s=LONG_S)).lose()
    assert (reservation.name, account.spent, account.reserved) == ("", 0, 0)
    assert (await store.read_spending(RunKey("local", ""))).spent == 0
    await store.aclose()


def test_a_lost_call_is_no_dearer_than_its_bound() -> None:
    """Another attempt at the same verdict has other random numbers and perhaps a sentence more."""
    price = Price((ModelPrice(1.0, 5.0),))
    answered = build_prompt(BUILT_IN["quality"], Material("q", "a" * 5_000, reference="r"))
    lost = build_prompt(BUILT_IN["quality"], Material("q", "a" * 5_000, reference="r"), problem="a number is missing")
    # By a token a byte, the worst tokeniser there can be, and by one that reads four bytes at a time.
    for bytes_per_token in (1, 4):
        read, lost_read = (len(one.text.encode()) // bytes_per_token for one in (answered, lost))
        most = price.most_nano_like(Tokens(read, 9), answered, 2_048)
        assert price.nano(Tokens(lost_read, 2_048)) <= most <= price.most_nano(answered, 2_048)


async def test_first_requests_of_a_run_share_one_account() -> None:
    """Two concurrent first requests of a run share an account."""
    books: Any = MemoryBooks({"run": 5})
    ledger = Ledger(books)
    accounts = await asyncio.gather(*(ledger.open(LOCAL, "run") for _ in range(50)))
    assert len({id(account) for account, _ in accounts}) == 1
    assert accounts[0][0].spent == 5


async def test_verdicts_outlive_the_process_and_the_oldest_go_first(tmp_path: Path) -> None:
    """The first verdict of a key stays; beyond the limit the least recently used are pruned."""
    store = await JudgeStore.open(tmp_path, max_verdicts=100)
    await store.put_verdict("local", "kept", {"verdict": 1})
    await store.put_verdict("local", "kept", {"verdict": 2})
    await store.aclose()
    store = await JudgeStore.open(tmp_path, max_verdicts=100)
    assert await store.verdict(LOCAL, "kept") == {"verdict": 1}
    assert store.verdict_count == 1
    for index in range(700):
        await store.put_verdict("local", f"key {index}", {"verdict": index})
    assert store.verdict_count <= 700
    assert await store.verdict(LOCAL, "key 699") == {"verdict": 699}
    assert await store.verdict(LOCAL, "key 0") is None
    await store.aclose()


async def test_a_state_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    """A file that is no database and a folder that is a file are refused with a sentence."""
    (tmp_path / "judge.db").write_bytes(b"not a database" * 100)
    for folder in (tmp_path, tmp_path / "judge.db"):
        with pytest.raises(StorageError, match="give another folder with --state-dir"):
            await JudgeStore.open(folder)


async def test_a_state_folder_belongs_to_one_process(tmp_path: Path) -> None:
    """A second process is refused, and can use the folder later."""
    first = await JudgeStore.open(tmp_path)
    sentence = r"judge.db is in use by another judge \(process \d+\): stop it, or give another folder with --state-dir"
    with pytest.raises(StorageError, match=sentence):
        await JudgeStore.open(tmp_path)
    await first.aclose()
    await (await JudgeStore.open(tmp_path)).aclose()


@in_virtual_time
async def test_a_reservation_is_settled_once() -> None:
    """A second settlement of the same call changes nothing: neither what is spent nor what is set aside."""
    account = MemoryBooks().account()
    first = await account.reserve(1_000, 10_000, lasts_s=LONG_S)
    await account.reserve(500, 10_000, lasts_s=LONG_S)
    for cost in (300, 300, 0):
        await first.settle(cost)
    assert (account.spent, account.reserved) == (300, 500)


@in_virtual_time
async def test_a_settlement_that_cannot_be_written_is_repeated() -> None:
    """The whole amount stays reserved until the settlement is written, and the cost counts once."""
    books = MemoryBooks()
    account = books.account()
    reservation = await account.reserve(1_000, 10_000, lasts_s=LONG_S)
    books.failures = 2
    for _ in range(2):
        with pytest.raises(StorageError):
            await reservation.settle(300)
        assert (account.spent, account.reserved) == (0, 1_000)
    for _ in range(2):
        await reservation.settle(300)
        assert (account.spent, account.reserved) == (300, 0)


@pytest.mark.parametrize(
    ("tokens", "usd"),
    [
        (Tokens(1_200, 150), 0.00195),
        (Tokens(1_200, 150, cache_read=1_000), 0.00105),
        (Tokens(1_200, 150, cache_write=1_000), 0.0022),
        (Tokens(0, 0), 0.0),
    ],
)
def test_worked_examples_of_cost(tokens: Tokens, usd: float) -> None:
    """At 1 and 5 dollars per million tokens, to the last billionth."""
    assert usd_from_nano(Price((ModelPrice(1.0, 5.0),)).nano(tokens)) == usd


def test_the_worked_example_of_a_batch() -> None:
    """The same tokens at half the price."""
    assert (
        usd_from_nano(Price((ModelPrice(1.0, 5.0),)).nano(Tokens(1_200, 150, cache_read=1_000), batched=True))
        == 0.000525
    )


@given(st.text(max_size=200), st.integers(0, 5_000), st.integers(0, 100))
def test_what_is_reserved_is_never_less_than_the_cost(text: str, output: int, cached: int) -> None:
    """A token has at least a byte, so a call of at most max_tokens cannot cost more than its reservation."""
    price, prompt = Price((ModelPrice(3.0, 15.0),)), Prompt(text, text, text, "id")
    size = 3 * len(text.encode())
    tokens = Tokens(size, output, cache_write=min(size, cached))
    assert price.nano(tokens) <= price.most_nano(prompt, output)


def test_prices_come_from_a_file(tmp_path: Path) -> None:
    """The operator's file replaces ours; the first pattern holds; services of others have no price of ours."""
    ours = PriceTable()
    assert ours.find(JudgeChoice("openai", "gpt-4o-mini-2024-07-18")) == Price((ModelPrice(0.15, 0.6, 0.5, 1),))
    assert ours.find(JudgeChoice("openai", "gpt-4o-mini", "http://localhost:1/v1")) is None
    assert ours.find(JudgeChoice("openai", "unheard-of")) is None
    path = tmp_path / "prices.json"
    path.write_text('{"prices": [{"model": "a*", "input": 1, "output": 2}, {"model": "*", "base_url": "http://x*", '
                    '"input": 0, "output": 0}]}')  # fmt: skip
    own = PriceTable(path)
    assert own.find(JudgeChoice("anthropic", "abc", "http://anywhere")) == Price((ModelPrice(1, 2),))
    assert own.find(JudgeChoice("openai", "b", "http://x.y/v1")) == Price((ModelPrice(0, 0),))
    assert own.find(JudgeChoice("openai", "b")) is None


@pytest.mark.parametrize(
    ("model", "named", "is_capped", "usd"),
    [
        ("gpt-4o-mini", None, True, 0.15 + 0.6),
        ("gpt-4o-mini", ModelPrice(0, 0), False, 0.15 + 0.6),
        ("gpt-4o-mini", ModelPrice(0, 9), False, 0 + 9),
        ("gpt-4o-mini", ModelPrice(9, 9), True, 9 + 9),
        ("unheard-of", ModelPrice(1, 2), False, 1 + 2),
        ("unheard-of", ModelPrice(1, 2), True, None),
        ("unheard-of", None, False, None),
    ],
)
def test_a_request_cannot_lower_a_price(model: str, named: ModelPrice | None, is_capped: bool, usd: object) -> None:
    """The higher price counts for each call; a request's price counts alone if the operator sets no cap."""
    price = PriceTable(is_capped=is_capped).find(JudgeChoice("openai", model, prices=named))
    assert (None if price is None else usd_from_nano(price.nano(Tokens(1_000_000, 1_000_000)))) == usd
    if price is not None:
        most = price.most_nano(Prompt("s", "c", "u", "id"), 1_000_000)
        assert most >= price.nano(Tokens(2_000, 1_000_000))


@pytest.mark.parametrize("rubric", [rubric for rubric in BUILT_IN.values() if not rubric.compares])
@pytest.mark.parametrize("name", ["quality", "own"])
@pytest.mark.parametrize("price", [ModelPrice(3, 15), ModelPrice(3, 15, cache_write=0.5)])
@pytest.mark.parametrize("batched", [False, True])
def test_a_cap_allows_as_many_verdicts_as_is_said(rubric: Rubric, name: str, price: ModelPrice, batched: bool) -> None:
    """What is said before a run is at most what calls on as much text may cost, by any rubric."""
    own = "" if name == "quality" else "name: own\n" + 3_000 * "#"
    judge = judge_of("openai", "m", prices=price, batch=batched)
    metric = MetricSpec("judge_score", rubric="own", rubric_yaml=own) if own else MetricSpec("quality")
    spec = RunSpec("r", AgentSpec("replay"), [metric], judges=(judge,), spend_cap_nano_usd=2 * 10**9)
    material = Material("é" * 250, "a" * 500, None, "r" * 500, ("c" * 500,))
    if own:
        rubric = dataclasses.replace(rubric, description=rubric.description + "#" * 3_000)
    prompt = build_prompt(rubric, material, problem="the reply holds more than one object")
    price_of_call = PriceTable().find(JudgeChoice("openai", "m", prices=price))
    assert price_of_call is not None
    match = re.search(r"up to \$([0-9.]+), at least ([0-9,]+) like that", cap_text(spec, {}))
    assert match is not None
    most = usd_from_nano(price_of_call.most_nano(prompt, judge.members[0].max_tokens, batched=batched))
    assert most - 0.0001 <= float(match[1]) < 1.5 * most
    assert int(match[2].replace(",", "")) <= 2.0 / most


def test_what_a_cap_allows_is_said_where_prices_are_known() -> None:
    """A jury pays for each of its judges; nothing is said without a cap, without a price, or for another machine."""
    price = ModelPrice(1, 0)
    judge = judge_of("openai", "m", prices=price)
    spec = RunSpec("r", AgentSpec("replay"), [MetricSpec("quality")], judges=(judge,), spend_cap_nano_usd=50_000_000)
    assert cap_text(spec, {}) == "a verdict on 2 KB of text may cost up to $0.0100, at least 5 like that"
    jury = dataclasses.replace(judge, members=(*judge.members, JudgeModel("openai", "n", prices=price)))
    assert (
        cap_text(dataclasses.replace(spec, judges=(jury,)), {})
        == "a verdict on 2 KB of text may cost up to $0.0200, at least 2 by all of the jury"
    )
    assert cap_text(dataclasses.replace(spec, spend_cap_nano_usd=1_000_000), {}).endswith("$0.0100, it may allow none")
    for silent in ({"spend_cap_nano_usd": None}, {"judges": (judge_of("openai", "m"),)}):
        assert cap_text(dataclasses.replace(spec, **silent), {}) == ""
    assert cap_text(spec, None) == ""


@pytest.mark.parametrize(
    ("provider", "model", "price"),
    [
        ("openai", "gpt-4o", (2.5, 10)),
        ("openai", "gpt-4o-2024-05-13", (5, 15)),
        ("openai", "gpt-4o-2031-01-01", None),
        ("openai", "gpt-5-2025-08-07", (1.25, 10)),
        ("openai", "gpt-6-sol", (2, 10)),
        ("openai", "gpt-6-luna", (0.1, 0.5)),
        ("openai", "gpt-6.1-terra", (1, 5)),
        ("openai", "o3", (2, 8)),
        ("openai", "o3-pro", None),
        ("anthropic", "claude-opus-5-5", (4, 20)),
        ("anthropic", "claude-opus-5", (5, 25)),
        ("anthropic", "claude-opus-4-6", (5, 25)),
        ("anthropic", "claude-fable-5-1", (10, 50)),
        ("anthropic", "claude-sonnet-5-5", (2, 10)),
        ("anthropic", "claude-haiku-4-5-20251001", (1, 5)),
        ("anthropic", "gpt-4o", None),
    ],
)
def test_list_prices(provider: str, model: str, price: tuple[float, float] | None) -> None:
    """Each model and dated variant has its own price; an unlisted model has none."""
    listed = PriceTable().find(JudgeChoice(provider, model))
    assert (None if listed is None else (listed.prices[0].input, listed.prices[0].output)) == price


def test_a_long_request_has_its_own_price() -> None:
    """All of it is dearer above the limit, and what is set aside counts with that."""
    price = Price((ModelPrice(0.1, 0.5, long=100_000, long_input=5, long_output=5),))
    assert usd_from_nano(price.nano(Tokens(100_000, 1_000))) == 0.0105
    assert usd_from_nano(price.nano(Tokens(100_001, 1_000))) == 0.0525005
    prompt = Prompt("x" * 98_001, "", "", "id")
    assert price.most_nano(prompt, 1_000) == price.nano(Tokens(100_001, 1_000, cache_write=100_001))


def test_all_problems_of_a_price_file_are_said_at_once(tmp_path: Path) -> None:
    """All problems of a price file are reported at once, each with its line."""
    path = tmp_path / "prices.yaml"
    path.write_text("prices:\n  - {model: a, input: -1}\n  - {inptu: 1, output: true}\n  - 3\n")
    with pytest.raises(InvalidInputError) as caught:
        PriceTable(path)
    assert {(problem.field, problem.line) for problem in caught.value.problems} == {
        ("prices[0].input", 2), ("prices[0].output", 2), ("prices[1].inptu", 3), ("prices[1].model", 3),
        ("prices[1].input", 3), ("prices[1].output", 3), ("prices[2]", 4),
    }  # fmt: skip


def test_dollars_become_billionths_as_they_are_written() -> None:
    """0.1 dollars are a hundred million billionths, not one less."""
    assert nano_from_usd(0.1) == 100_000_000
    assert nano_from_usd(0.0000000019) == 1
