"""Allowances: what a run's team has set aside for verdicts, which grows while the run works and is never passed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.support.processes.waiting import until

from assay.judge.v1 import judge_pb2 as pb
from assay.testing.judges import says
from assay.testing.providers import Reply, Tokens
from assay.v1.price_pb2 import ModelPrice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Any]

GOOD = {"reasoning": "It is right.", "score": 4}
PAID = 1_950_000
"""What a verdict costs, in billionths of a dollar: 1,200 tokens at 1 and 150 at 5 dollars a million."""
BATCH: dict[str, Any] = {"batch_base_urls": ("http://127.0.0.1:*",), "batch_wait_s": 0.05, "batch_poll_s": 0.02}


async def test_a_call_beyond_the_allowance_costs_nothing_and_says_what_it_needs(start: Start) -> None:
    """With that much the verdict is had; the next one needs what is spent beside it, whatever the run's cap is."""
    judge = await start()
    refused = (await judge.grade(run_id="r", allowance_nano_usd=0, spend_cap_usd=1.0)).verdict
    assert (refused.status, refused.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, "allowance_too_small")
    assert judge.provider.requests == []
    needed = refused.needed_nano_usd
    assert needed > PAID
    assert (await judge.grade(run_id="r", allowance_nano_usd=needed - 1)).verdict.reason == "allowance_too_small"
    response = await judge.grade(run_id="r", allowance_nano_usd=needed)
    assert response.verdict.status == pb.VERDICT_STATUS_VALID
    assert round(response.spending.spent_usd * 10**9) == PAID
    assert (await judge.grade("Rome", run_id="r", allowance_nano_usd=needed)).verdict.reason == "allowance_too_small"
    assert (await judge.grade("Rome", run_id="r", allowance_nano_usd=needed + PAID)).verdict.reason == ""
    capped = await judge.grade("Oslo", run_id="r", allowance_nano_usd=10**9, spend_cap_usd=0.0001)
    assert capped.verdict.reason == "spend_cap_reached"
    found = await judge.grade(run_id="r", validate_only=True)
    assert round(found.spending.spent_usd * 10**9) == 2 * PAID
    with pytest.raises(grpc.aio.AioRpcError, match="needs run_id"):
        await judge.grade(allowance_nano_usd=1)


async def test_an_allowance_holds_no_judge_without_a_price(start: Start, tmp_path: Path) -> None:
    """What it costs is not known, so that there is nothing to set aside; a spend cap refuses it."""
    (tmp_path / "none.yaml").write_text("prices: [{model: other, input: 1, output: 1}]")
    judge = await start(prices=tmp_path / "none.yaml")
    assert (await judge.grade(run_id="r", allowance_nano_usd=0)).verdict.status == pb.VERDICT_STATUS_VALID


async def test_prices_of_a_request_weaken_no_limit_and_change_no_verdict(start: Start, tmp_path: Path) -> None:
    """Beside the operator's price the higher counts; where the operator has none and no cap, that of the request."""

    def asked(judge: Any, price: float) -> pb.JudgeModel:
        return pb.JudgeModel(
            provider="openai", model="judge-1", base_url=judge.provider.openai_url, key_variable="JUDGE_KEY",
            prices=ModelPrice(input=price, output=price),
        )  # fmt: skip

    listed = await start()
    for answer, price, cost in (("Paris", 0.0, PAID), ("Rome", 10.0, 13_500_000)):
        verdict = (await listed.grade(answer, run_id="r", judge=asked(listed, price), spend_cap_usd=1.0)).verdict
        assert round(verdict.usage.cost_usd * 10**9) == cost
    again = await listed.grade(run_id="r", judge=asked(listed, 10.0))
    assert again.verdict.cached
    (tmp_path / "none.yaml").write_text("prices: [{model: other, input: 1, output: 1}]")
    unlisted = await start(prices=tmp_path / "none.yaml")
    verdict = (await unlisted.grade(run_id="r", judge=asked(unlisted, 1.0), spend_cap_usd=1.0)).verdict
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
    assert (await judge.grade("a", run_id="r", spend_cap_usd=0.1)).spending.spent_usd == pytest.approx(0.7512)
    free = pb.JudgeModel(provider="openai", model="free", base_url=judge.provider.openai_url, key_variable="JUDGE_KEY")
    verdict = (await judge.grade("b", run_id="r", judge=free, spend_cap_usd=0.1)).verdict
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
    assert (verdict.status, verdict.attempts) == (pb.VERDICT_STATUS_VALID, 2)
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
    assert round(waiting.spending.reserved_usd * 10**9) == needed
    ordered = await until(lambda: grade("two", 3 * needed), lambda found: found.spending.reserved_usd * 10**9 > needed)
    assert ordered.verdict.reason == "batch_pending"
    judge.provider.batches.is_held = False
    for answer in ("one", "two"):
        delivered = functools.partial(grade, answer, 3 * needed)
        await until(delivered, lambda found: found.verdict.status == pb.VERDICT_STATUS_VALID)
    assert len(judge.provider.batches.paid) == 2
    found = await judge.grade(run_id="r", validate_only=True)
    assert (found.spending.reserved_usd, round(found.spending.spent_usd * 10**9)) == (0, PAID)
