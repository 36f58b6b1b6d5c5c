"""A provider whose usage cannot be used: the judge service's own estimate counts, and the spend cap holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.testing.judges import says
from assay_judge.model import RunKey
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Any]

GOOD = {"reasoning": "It is right.", "score": 4}
# 1 and 5 dollars per million: 2,048 tokens of the reply, and no more than a token for each byte of the request.
LEAST_USD, MOST_USD = 0.01024, 0.02
BATCH: dict[str, Any] = {"batch_base_urls": ("http://127.0.0.1:*",), "batch_wait_s": 0.05, "batch_poll_s": 0.02}

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
    """The verdict counts, its cost is our estimate and says so, and the account goes on to be used."""
    judge = await start(says(GOOD, raw_usage=usage), says(GOOD), protocol=protocol, **BATCH)
    response = await judge.grade(run_id="r", spend_cap_usd=1.0, batch=batch)
    verdict = response.verdict
    assert dict(verdict.scores) == {"score": 4.0}
    share = 0.5 if batch else 1.0
    assert LEAST_USD * share <= verdict.usage.cost_usd <= MOST_USD * share
    assert verdict.usage.estimated
    assert [one.estimated for one in verdict.tries] == [True]
    assert verdict.usage.output_tokens == 2_048
    assert response.spending.spent_usd == pytest.approx(verdict.usage.cost_usd)
    again = (await judge.grade("Lyon", run_id="r", spend_cap_usd=1.0)).verdict
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
        {"rubric": "quality", "question": "q", "answer": f"a{n}", "run_id": "r", "spend_cap_usd": 0.1}
        for n in range(300)
    ]
    verdicts = await judge.grade_all(asked)
    valid = [verdict for verdict in verdicts if dict(verdict.scores)]
    assert {verdict.reason for verdict in verdicts if not dict(verdict.scores)} == {"spend_cap_reached"}
    assert len(valid) == len(judge.provider.requests) <= 0.1 / LEAST_USD
    spending = (await judge.grade("", run_id="r", spend_cap_usd=0.1)).spending
    assert 0.05 < spending.spent_usd <= 0.1


async def test_an_account_with_an_absurd_sum_is_a_reached_cap(start: Start, tmp_path: Path) -> None:
    """With a cap the sentence says so, without one calls are made."""
    state = tmp_path / "state"
    store = await JudgeStore.open(state)
    await store.reserve(RunKey("local", "r"), "a", 1, None, 60.0)
    await store.settle(RunKey("local", "r"), "a", 2**63 - 1)
    await store.aclose()
    judge = await start(state_dir=state)
    capped = (await judge.grade("second", run_id="r", spend_cap_usd=1.0)).verdict
    assert capped.reason == "spend_cap_reached"
    for answer in ("third", "fourth"):
        assert dict((await judge.grade(answer, run_id="r")).verdict.scores) == {"score": 4.0}


async def test_a_cap_beyond_all_money_is_a_cap(start: Start) -> None:
    """It is cut to a billion dollars, online and in batches."""
    judge = await start(**BATCH)
    for batch in (False, True):
        verdict = (await judge.grade(f"a{batch}", run_id="r", spend_cap_usd=1e300, batch=batch)).verdict
        assert dict(verdict.scores) == {"score": 4.0}
