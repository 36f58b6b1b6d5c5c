from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import until

from assay.errors import InvalidInputError
from assay.rpc.status import translated
from assay.testing.judges import says
from assay.testing.providers import Reply
from assay.v1 import judge_pb2 as pb
from assay_judge.judges import JudgeChoice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Any]

GOOD = {"reasoning": "It is right.", "score": 4}
REPLAY = JudgeChoice("replay")


def cache_of(response: pb.GradeResponse) -> tuple[int, int, int, int]:
    return (response.cache.hits, response.cache.misses, response.cache.joined, response.cache.entries)


async def test_the_same_request_is_paid_for_once(start: Start) -> None:
    """The second answer is the first one again, costs nothing, and says so and what it saves; the statistics count."""
    judge = await start(says(GOOD), says({**GOOD, "score": 1}))
    first, second = await judge.grade(), await judge.grade()
    assert dict(first.verdict.scores) == dict(second.verdict.scores) == {"score": 4.0}
    assert (first.verdict.cached, second.verdict.cached) == (False, True)
    assert first.verdict.key == second.verdict.key
    assert first.verdict.temperature == second.verdict.temperature == 0.1
    assert second.verdict.usage.requests == 0
    assert not first.verdict.HasField("saved")
    used, saved = first.verdict.usage, second.verdict.saved
    for name in ("requests", "input_tokens", "output_tokens", "cost_usd"):
        assert getattr(saved, name) == getattr(used, name) > 0
    assert (cache_of(first), cache_of(second)) == ((0, 1, 0, 1), (1, 1, 0, 1))


@pytest.mark.parametrize(
    "other",
    [
        {"sample_index": 1}, {"question": "Capital of france?"}, {"reference": "paris"}, {"contexts": ["x"]},
        {"answer": "Paris "}, {"rubric": "quality", "judge": pb.JudgeModel(temperature=0.2)},
        {"judge": pb.JudgeModel(max_tokens=77)},
    ],
)  # fmt: skip
async def test_anything_else_is_another_verdict(start: Start, other: dict[str, Any]) -> None:
    """Any change of any part, and repeated samples, are asked for anew."""
    judge = await start(says(GOOD))
    first = await judge.grade()
    second = await judge.grade(**other)
    assert first.verdict.key != second.verdict.key
    assert not second.verdict.cached
    assert len(judge.provider.requests) == 2


async def test_passages_in_another_order_are_another_verdict(start: Start) -> None:
    """A judge reads passages in their order, so that the order is part of the key; the same order is the same key."""
    judge = await start(says(GOOD))
    first, other, again = [
        (await judge.grade(contexts=passages)).verdict for passages in (["one", "two"], ["two", "one"], ["one", "two"])
    ]
    assert (first.cached, other.cached, again.cached) == (False, False, True)
    assert first.key == again.key != other.key
    # Nor are two passages what one is that holds both.
    joined = (await judge.grade(contexts=["one two"])).verdict
    assert joined.key not in (first.key, other.key)


@pytest.mark.parametrize("other", [{"run_id": "rich"}, {"run_id": "poor", "spend_cap_usd": 1.0}])
async def test_requests_under_other_caps_do_not_join(start: Start, other: dict[str, Any]) -> None:
    """The same material at the same moment, for another run or under another cap: each has its own outcome.

    A call that waits under a cap that is too small takes no other one along.
    """
    judge = await start(says(GOOD, delay_s=0.3))
    poor = {"run_id": "poor", "spend_cap_usd": 0.0001}
    for order in ([poor, other], [other, poor]):
        asked = [judge.grade(f"answer {order.index(poor)}", **fields) for fields in order]
        verdicts = [response.verdict for response in await asyncio.gather(*asked)]
        refused, judged = verdicts[order.index(poor)], verdicts[order.index(other)]
        assert refused.reason == "spend_cap_reached"
        assert dict(judged.scores) == {"score": 4.0}
        assert judged.usage.requests == 1
    assert len(judge.provider.requests) == 2


async def test_two_runs_pay_for_their_own_calls(start: Start) -> None:
    """Runs that ask the same at the same moment have a call each: neither pays for the other."""
    judge = await start(says(GOOD, delay_s=0.3))
    responses = await asyncio.gather(*(judge.grade(run_id=run_id) for run_id in ("one", "two", "one")))
    assert len(judge.provider.requests) == 2
    assert sum(response.verdict.usage.requests for response in responses) == 2
    for run_id in ("one", "two"):
        assert (await judge.grade("", run_id=run_id)).spending.spent_usd == pytest.approx(0.00195)


async def test_identical_requests_under_way_are_one_call(start: Start) -> None:
    """Fifty at once cost one; each gets the verdict."""
    judge = await start(says(GOOD, delay_s=0.2))
    responses = await asyncio.gather(*(judge.grade() for _ in range(50)))
    assert len(judge.provider.requests) == 1
    assert {dict(response.verdict.scores)["score"] for response in responses} == {4.0}
    assert sum(response.verdict.usage.requests for response in responses) == 1
    assert sum(response.verdict.cached for response in responses) == 49
    assert sum(response.verdict.saved.requests for response in responses) == 49


async def test_whoever_leaves_leaves_the_others_their_verdict(start: Start) -> None:
    """The first of two identical requests is cancelled; the second one is answered by the same call."""
    answered = threading.Event()

    def held(request: Any) -> Reply:
        answered.wait()
        return says(GOOD)(request)

    judge = await start(held)
    request = pb.GradeRequest(rubric="quality", question="Capital of France?", reference="Paris", answer="Paris")
    leaving = judge.stub.Grade(request, timeout=180)
    await until(lambda: judge.provider.requests)
    staying = asyncio.ensure_future(judge.grade())
    await until(lambda: judge.grade(""), lambda said: said.cache.joined >= 1)
    leaving.cancel()
    answered.set()
    assert (await staying).verdict.status == pb.VERDICT_STATUS_VALID
    assert len(judge.provider.requests) == 1


@pytest.mark.parametrize("bad", [Reply("5"), Reply("x", status=400), Reply("", stop="length")])
async def test_only_valid_verdicts_are_kept(start: Start, bad: Reply) -> None:
    """A failure is asked for again the next time."""
    judge = await start(bad, bad, says(GOOD))
    while (await judge.grade()).verdict.status != pb.VERDICT_STATUS_VALID:
        assert (await judge.grade("")).cache.entries == 0
    assert (await judge.grade()).verdict.cached


async def test_a_kept_verdict_that_was_changed_on_disk_is_not_believed(start: Start, tmp_path: Path) -> None:
    """What is read is checked like a reply: a score off the scale is asked for anew."""
    judge = await start(says(GOOD), state_dir=tmp_path / "state")
    await judge.grade()
    with sqlite3.connect(tmp_path / "state" / "judge.db") as database:
        database.execute("UPDATE verdicts SET record = replace(record, '\"score\": 4', '\"score\": 9')")
    database.close()
    second = (await judge.grade()).verdict
    assert dict(second.scores) == {"score": 4.0}
    assert not second.cached


async def test_the_cache_can_be_switched_off(start: Start) -> None:
    """Then every request is asked."""
    judge = await start(says(GOOD), cache=False)
    await judge.grade()
    assert not (await judge.grade()).verdict.cached
    assert len(judge.provider.requests) == 2


async def test_what_was_not_recorded_has_a_reason(start: Start, tmp_path: Path) -> None:
    """A replaying service asks nobody and makes nothing up."""
    record = tmp_path / "verdicts.jsonl"
    record.write_text(json.dumps({"key": "0" * 64, "judge": "openai:m", "verdict": GOOD}) + "\n")
    judge = await start(judge=REPLAY, replay=record)
    verdict = (await judge.grade()).verdict
    assert (verdict.status, verdict.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, "not_recorded")
    assert "openai:m" in verdict.message
    assert judge.provider.requests == []


async def test_a_recording_is_replayed(start: Start, tmp_path: Path) -> None:
    """What one service recorded, another one replays; two recorded judges must be told apart."""
    record = tmp_path / "verdicts.jsonl"
    first = await start(says(GOOD), record=record)
    asked = (await first.grade()).verdict
    name = json.loads(record.read_text())["judge"]
    second = await start(judge=REPLAY, replay=record)
    replayed = (await second.grade()).verdict
    assert dict(replayed.scores) == {"score": 4.0}
    assert (replayed.key, replayed.fingerprint) == (asked.key, asked.fingerprint)
    assert (replayed.cached, replayed.usage.requests, replayed.reasoning) == (False, 0, "It is right.")
    named = (await second.grade(judge=pb.JudgeModel(provider="replay", model=name))).verdict
    assert named.status == pb.VERDICT_STATUS_VALID
    with record.open("a") as file:
        file.write(json.dumps({"key": "k", "judge": "other:m", "verdict": GOOD}) + "\n")
    third = await start(judge=REPLAY, replay=record)
    with pytest.raises(InvalidInputError, match="other:m"), translated():
        await third.grade()


async def test_a_spend_cap_holds_for_all_calls_of_a_run(start: Start) -> None:
    """The most that a call may cost is set aside first; what does not fit is an outcome, and other runs go on."""
    judge = await start(says(GOOD))
    asked = [
        {"rubric": "quality", "question": "q", "answer": f"answer {index}", "run_id": "r", "spend_cap_usd": 0.03}
        for index in range(30)
    ]
    verdicts = await judge.grade_all(asked)
    valid = [verdict for verdict in verdicts if verdict.status == pb.VERDICT_STATUS_VALID]
    refused = [verdict for verdict in verdicts if verdict.reason == "spend_cap_reached"]
    assert len(valid) + len(refused) == 30
    assert len(valid) == len(judge.provider.requests)
    assert 2 <= len(valid) <= 15
    response = await judge.grade("", run_id="r", spend_cap_usd=0.03)
    assert response.spending.spent_usd == pytest.approx(0.00195 * len(valid), abs=1e-12)
    assert (response.spending.reserved_usd, response.spending.cap_usd) == (0, 0.03)
    other = await judge.grade("b", run_id="other", spend_cap_usd=0.03)
    assert other.verdict.status == pb.VERDICT_STATUS_VALID


async def test_the_operators_cap_holds_too(start: Start) -> None:
    """A request cannot raise it, and one without a cap of its own has it."""
    judge = await start(says(GOOD), spend_cap_usd=0.001)
    for cap in ({}, {"spend_cap_usd": 100.0}):
        verdict = (await judge.grade(run_id="r", **cap)).verdict
        assert verdict.reason == "spend_cap_reached"
        assert "0.001" in verdict.message
    with pytest.raises(InvalidInputError, match="run_id: is needed here"), translated():
        await judge.grade()
    assert judge.provider.requests == []


async def test_a_cap_without_a_price_is_refused(start: Start, tmp_path: Path) -> None:
    """Nothing is asked that nobody could pay for knowingly; without a cap the cost is absent, never 0."""
    (tmp_path / "none.yaml").write_text("prices: [{model: other, input: 1, output: 1}]")
    judge = await start(says(GOOD), prices=tmp_path / "none.yaml")
    capped = (await judge.grade(run_id="r", spend_cap_usd=1.0)).verdict
    assert (capped.status, capped.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, "price_unknown")
    free = (await judge.grade(run_id="r")).verdict
    assert free.status == pb.VERDICT_STATUS_VALID
    assert not free.usage.HasField("cost_usd")


@pytest.mark.parametrize("cap", [-1.0, float("nan"), float("inf")])
async def test_a_cap_is_a_number_and_belongs_to_a_run(start: Start, cap: float) -> None:
    """Both problems are said at once."""
    judge = await start()
    with pytest.raises(InvalidInputError) as caught, translated():
        await judge.grade(spend_cap_usd=cap)
    assert len(caught.value.problems) == 2


async def test_another_runs_cap_decides_about_no_one_else(start: Start) -> None:
    """Of two identical requests at once, the poor run is refused and the rich one answered."""
    judge = await start(says(GOOD, delay_s=0.1))
    poor, rich = await asyncio.gather(
        judge.grade(run_id="poor", spend_cap_usd=0.0001), judge.grade(run_id="rich", spend_cap_usd=1.0)
    )
    assert poor.verdict.reason == "spend_cap_reached"
    assert rich.verdict.status == pb.VERDICT_STATUS_VALID
