"""Allowances of runs and the spend cap: they hold as runs grow, and where a provider reports no usable token counts."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.support.processes.waiting import until

from assay.judge.v1 import judge_pb2 as pb
from assay.testing.judges import says
from assay.testing.providers import Reply, Tokens
from assay.v1 import judge_spec_pb2
from assay.v1.price_pb2 import ModelPrice
from assay_judge.model import RunKey
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Any]
    from collections.abc import Callable


GOOD = {"reasoning": "It is right.", "score": 4}
PAID = 1_950_000
"""What a verdict costs, in billionths of a dollar: 1,200 tokens at 1 and 150 at 5 dollars a million."""
BATCH: dict[str, Any] = {"batch_base_urls": ("http://127.0.0.1:*",), "batch_wait_s": 0.05, "batch_poll_s": 0.02}


async def test_a_call_beyond_the_allowance_costs_nothing_and_says_what_it_needs(start: Start) -> None:
    """With that much the verdict is had; the next one needs what is spent beside it, whatever the run's cap is."""
    judge = await start()
    refused = (await judge.grade(run_id="r", allowance_nano_usd=0, spend_cap_nano_usd=1_000_000_000)).verdict
    assert (refused.status, refused.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, "allowance_too_small")
    assert judge.provider.requests == []
    needed = refused.needed_nano_usd
    assert needed > PAID
    assert (await judge.grade(run_id="r", allowance_nano_usd=needed - 1)).verdict.reason == "allowance_too_small"
    response = await judge.grade(run_id="r", allowance_nano_usd=needed)
    assert response.verdict.status == pb.VERDICT_STATUS_VALID
    assert response.spending.spent_nano_usd == PAID
    assert (await judge.grade("Rome", run_id="r", allowance_nano_usd=needed)).verdict.reason == "allowance_too_small"
    assert (await judge.grade("Rome", run_id="r", allowance_nano_usd=needed + PAID)).verdict.reason == ""
    capped = await judge.grade("Oslo", run_id="r", allowance_nano_usd=10**9, spend_cap_nano_usd=100_000)
    assert capped.verdict.reason == "spend_cap_reached"
    found = await judge.grade(run_id="r", validate_only=True)
    assert found.spending.spent_nano_usd == 2 * PAID
    with pytest.raises(grpc.aio.AioRpcError, match="needs run_id"):
        await judge.grade(allowance_nano_usd=1)


async def test_an_allowance_holds_no_judge_without_a_price(start: Start, tmp_path: Path) -> None:
    """What it costs is not known, so that there is nothing to set aside; a spend cap refuses it."""
    (tmp_path / "none.yaml").write_text("prices: [{model: other, input: 1, output: 1}]")
    judge = await start(prices=tmp_path / "none.yaml")
    assert (await judge.grade(run_id="r", allowance_nano_usd=0)).verdict.status == pb.VERDICT_STATUS_VALID


async def test_prices_of_a_request_weaken_no_limit_and_change_no_verdict(start: Start, tmp_path: Path) -> None:
    """Beside the operator's price the higher counts; where the operator has none and no cap, that of the request."""

    def asked(judge: Any, price: float) -> judge_spec_pb2.JudgeModel:
        return judge_spec_pb2.JudgeModel(
            provider="openai", model="judge-1", base_url=judge.provider.openai_url, key_variable="JUDGE_KEY",
            prices=ModelPrice(input=price, output=price),
        )  # fmt: skip

    listed = await start()
    for answer, price, cost in (("Paris", 0.0, PAID), ("Rome", 10.0, 13_500_000)):
        verdict = (
            await listed.grade(answer, run_id="r", judge=asked(listed, price), spend_cap_nano_usd=1_000_000_000)
        ).verdict
        assert round(verdict.usage.cost_usd * 10**9) == cost
    again = await listed.grade(run_id="r", judge=asked(listed, 10.0))
    assert again.verdict.cached
    (tmp_path / "none.yaml").write_text("prices: [{model: other, input: 1, output: 1}]")
    unlisted = await start(prices=tmp_path / "none.yaml")
    verdict = (await unlisted.grade(run_id="r", judge=asked(unlisted, 1.0), spend_cap_nano_usd=1_000_000_000)).verdict
    assert round(verdict.usage.cost_usd * 10**9) == 1_350_000
    capped = await start(prices=tmp_path / "none.yaml", spend_cap_usd=1.0)
    refused = (await capped.grade(run_id="r", judge=asked(capped, 0.0))).verdict
    assert (refused.reason, capped.provider.requests) == ("price_unknown", [])
    with pytest.raises(grpc.aio.AioRpcError, match="at most 10,000"):
        await listed.grade(run_id="r", judge=asked(listed, 1e300))


async def test_a_judge_that_costs_nothing_is_not_asked_above_the_cap(start: Start, tmp_path: Path) -> None:
    """Usage may be dearer than what was set aside; the free judge of a jury is then refused like the others."""
    (tmp_path / "two.yaml").write_text(
        "prices: [{model: judge-1, input: 1, output: 5}, {model: free, input: 0, output: 0}]"
    )
    dear = {"prompt_tokens": 1_200, "completion_tokens": 150_000}
    judge = await start(says(GOOD, raw_usage=dear), prices=tmp_path / "two.yaml")
    response = await judge.grade("a", run_id="r", spend_cap_nano_usd=100_000_000)
    assert response.spending.spent_nano_usd == 751_200_000
    free = judge_spec_pb2.JudgeModel(
        provider="openai", model="free", base_url=judge.provider.openai_url, key_variable="JUDGE_KEY"
    )
    verdict = (await judge.grade("b", run_id="r", judge=free, spend_cap_nano_usd=100_000_000)).verdict
    assert verdict.reason == "spend_cap_reached"
    assert verdict.message.endswith("0.751200 of the run's spend cap of 0.1 are spent")


async def test_the_tokens_of_a_verdict_stay_within_its_allowance(start: Start) -> None:
    """All of its calls count, one without an answer with the most that it may have taken; a cached verdict counts 0."""
    unclear = Reply("It is right.", usage=Tokens(1_200, 150))
    judge = await start(unclear, says(GOOD), Reply(raw=b"no reply"), attempts=1, pause_s=0.01)
    refused = (await judge.grade(token_allowance=0)).verdict
    assert (refused.reason, refused.charged_tokens) == ("allowance_too_small", 0)
    assert judge.provider.requests == []
    enough = refused.needed_tokens
    verdict = (await judge.grade(token_allowance=enough)).verdict
    assert (verdict.status, verdict.call_count) == (pb.VERDICT_STATUS_VALID, 2)
    assert verdict.charged_tokens == verdict.usage.total_tokens == 2 * 1_350
    assert (await judge.grade(token_allowance=0)).verdict.charged_tokens == 0  # from the cache
    failed = (await judge.grade("Rome", token_allowance=enough)).verdict
    assert (failed.reason, failed.usage.total_tokens) == ("judge_unavailable", 0)
    assert 2_048 < failed.charged_tokens <= enough // 2


async def test_an_order_waits_no_longer_than_its_allowance_is_too_small(start: Start) -> None:
    """One that waits for the money of another is made at once where the allowance has grown, and is paid once."""
    judge = await start(**{**BATCH, "batch_poll_s": 0.1})
    judge.provider.batches.is_held = True

    async def grade(answer: str, allowance: int) -> Any:
        return await judge.grade(answer, run_id="r", row=answer, batch=True, timeout_ms=1, allowance_nano_usd=allowance)

    needed = (await grade("one", 0)).verdict.needed_nano_usd
    assert needed > 0
    for answer in ("one", "two"):
        assert (await grade(answer, needed)).verdict.reason == "batch_pending"
    waiting = await grade("two", needed)
    assert waiting.spending.reserved_nano_usd == needed
    ordered = await until(lambda: grade("two", 3 * needed), lambda found: found.spending.reserved_nano_usd > needed)
    assert ordered.verdict.reason == "batch_pending"
    judge.provider.batches.is_held = False
    for answer in ("one", "two"):
        delivered = functools.partial(grade, answer, 3 * needed)
        await until(delivered, lambda found: found.verdict.status == pb.VERDICT_STATUS_VALID)
    assert len(judge.provider.batches.paid) == 2
    found = await judge.grade(run_id="r", validate_only=True)
    assert (found.spending.reserved_nano_usd / 1e9, found.spending.spent_nano_usd) == (0, PAID)


# 1 and 5 dollars per million: 2,048 tokens of the reply, and no more than a token for each byte of the request.
LEAST_USD, MOST_USD = 0.01024, 0.02

OPENAI = {
    "absent": None,
    "empty": {},
    "total alone": {"total_tokens": 1_350},
    "unknown names": {"read_tokens": 1_200, "made_tokens": 150},
    "negative": {"prompt_tokens": -1, "completion_tokens": 150},
    "texts": {"prompt_tokens": "1200", "completion_tokens": "150"},
    "truths": {"prompt_tokens": True, "completion_tokens": True},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0},
    "nothing written": {"prompt_tokens": 1_200, "completion_tokens": 0},
    "an underflow": {"prompt_tokens": 2**64 - 1, "completion_tokens": 150},
    "far too much written": {"prompt_tokens": 1_200, "completion_tokens": 2**31},
    "beyond any integer": {"prompt_tokens": 10**300, "completion_tokens": 150},
    "a list": [1_200, 150],
    "one for a whole request": {"prompt_tokens": 1, "completion_tokens": 150},
    "one for a whole reply": {"prompt_tokens": 1_200, "completion_tokens": 1},
}
ANTHROPIC = {
    "absent": None,
    "empty": {},
    "unknown names": {"read_tokens": 1_200, "made_tokens": 150},
    "negative": {"input_tokens": 1_200, "output_tokens": -150},
    "zero": {"input_tokens": 0, "output_tokens": 0},
    "one": {"input_tokens": 1, "output_tokens": 1},
    "an underflow": {"input_tokens": 2**64 - 1, "output_tokens": 150},
    "an underflow of the cache": {"input_tokens": 1, "output_tokens": 150, "cache_read_input_tokens": 2**64 - 1},
}
ALL = [("openai", name, usage) for name, usage in OPENAI.items()]
ALL += [("anthropic", name, usage) for name, usage in ANTHROPIC.items()]


@pytest.mark.parametrize(("protocol", "usage"), [(one[0], one[2]) for one in ALL], ids=[f"{a}-{b}" for a, b, _ in ALL])
@pytest.mark.parametrize("batch", [False, True], ids=["online", "batch"])
async def test_usage_that_cannot_be_used_is_estimated(start: Start, protocol: str, usage: Any, batch: bool) -> None:
    """The verdict counts, its cost is our estimate and says so, and the account stays in use."""
    judge = await start(says(GOOD, raw_usage=usage), says(GOOD), protocol=protocol, **BATCH)
    response = await judge.grade(run_id="r", spend_cap_nano_usd=1_000_000_000, batch=batch)
    verdict = response.verdict
    assert dict(verdict.scores) == {"score": 4.0}
    share = 0.5 if batch else 1.0
    assert LEAST_USD * share <= verdict.usage.cost_usd <= MOST_USD * share
    assert verdict.usage.estimated
    assert [one.estimated for one in verdict.calls] == [True]
    assert verdict.usage.output_tokens == 2_048
    assert response.spending.spent_nano_usd / 1e9 == pytest.approx(verdict.usage.cost_usd)
    again = (await judge.grade("Lyon", run_id="r", spend_cap_nano_usd=1_000_000_000)).verdict
    assert (dict(again.scores), again.usage.estimated) == ({"score": 4.0}, False)
    assert again.usage.cost_usd == pytest.approx(0.00195)


async def test_usage_that_can_be_true_is_taken(start: Start) -> None:
    """Parts that cannot be a part are cut to the whole."""
    said = {
        "prompt_tokens": 1_200,
        "completion_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 2**64 - 1, "cache_write_tokens": 7},
        "completion_tokens_details": {"reasoning_tokens": 10**30},
    }
    usage = (await (await start(says(GOOD, raw_usage=said))).grade()).verdict.usage
    assert not usage.estimated
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (1_200, 1_200, 0)
    assert usage.reasoning_tokens == 150


async def test_reasoning_beside_the_output_is_paid_for(start: Start) -> None:
    """Some services leave thoughts out of completion_tokens, and compatible ones use the names of another API."""
    for thoughts in (5_000, 50_000):  # max_tokens, 2,048 here, bounds the text alone there
        beside = {"prompt_tokens": 1_000, "completion_tokens": 150, "total_tokens": 1_150 + thoughts}
        usage = (await (await start(says(GOOD, raw_usage=beside))).grade()).verdict.usage
        assert (usage.input_tokens, usage.output_tokens, usage.estimated) == (1_000, 150 + thoughts, False)
        assert usage.cost_usd == pytest.approx(0.001 + (150 + thoughts) * 5e-6)
    other = {"input_tokens": 1_200, "output_tokens": 150}
    usage = (await (await start(says(GOOD, raw_usage=other))).grade()).verdict.usage
    assert (usage.input_tokens, usage.output_tokens, usage.estimated) == (1_200, 150, False)


async def test_a_cap_holds_where_usage_is_not_said(start: Start) -> None:
    """Of 300 calls no more are made than the cap pays for by the estimate; the rest says that it is reached."""
    judge = await start(says(GOOD, raw_usage={"total_tokens": 1_350}))
    asked = [
        {"rubric": "quality", "question": "q", "answer": f"a{n}", "run_id": "r", "spend_cap_nano_usd": 100_000_000}
        for n in range(300)
    ]
    verdicts = await judge.grade_all(asked)
    valid = [verdict for verdict in verdicts if dict(verdict.scores)]
    assert {verdict.reason for verdict in verdicts if not dict(verdict.scores)} == {"spend_cap_reached"}
    assert len(valid) == len(judge.provider.requests) <= 0.1 / LEAST_USD
    spending = (await judge.grade("", run_id="r", spend_cap_nano_usd=100_000_000)).spending
    assert 0.05 < spending.spent_nano_usd / 1e9 <= 0.1


async def test_an_account_with_an_absurd_sum_is_a_reached_cap(start: Start, tmp_path: Path) -> None:
    """With a cap the sentence says so, without one calls are made."""
    state = tmp_path / "state"
    store = await JudgeStore.open(state)
    await store.reserve(RunKey("local", "r"), "a", 1, None, 60.0)
    await store.settle(RunKey("local", "r"), "a", 2**63 - 1)
    await store.aclose()
    judge = await start(state_dir=state)
    capped = (await judge.grade("second", run_id="r", spend_cap_nano_usd=1_000_000_000)).verdict
    assert capped.reason == "spend_cap_reached"
    for answer in ("third", "fourth"):
        assert dict((await judge.grade(answer, run_id="r")).verdict.scores) == {"score": 4.0}


async def test_a_cap_beyond_all_money_is_a_cap(start: Start) -> None:
    """It is cut to a billion dollars, online and in batches."""
    judge = await start(**BATCH)
    for batch in (False, True):
        verdict = (
            await judge.grade(
                f"a{batch}",
                run_id="r",
                spend_cap_nano_usd=2**64 - 1,
                batch=batch,
            )
        ).verdict
        assert dict(verdict.scores) == {"score": 4.0}
