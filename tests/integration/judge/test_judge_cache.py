from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until

from assay.errors import InvalidInputError, OverloadedError
from assay.judge.v1 import judge_pb2 as pb
from assay.rpc.status import translated
from assay.testing.judges import says
from assay.testing.providers import Reply, Tokens
from assay.v1 import judge_spec_pb2
from assay_judge.judges import JudgeChoice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Any]

GOOD = {"reasoning": "It is right.", "score": 4}
REPLAY = JudgeChoice("replay")


def cache_of(response: pb.GradeResponse) -> tuple[int, int, int, int]:
    return (response.cache.hits, response.cache.misses, response.cache.joined, response.cache.entries)


def held(verdict: dict[str, Any], **reply: Any) -> tuple[Callable[[Any], Reply], threading.Event]:
    """Return a script of a judge that answers only once an event is set, and the event."""
    released = threading.Event()

    def script(request: Any) -> Reply:
        assert released.wait(60), "the test has not released the judge"
        return says(verdict, **reply)(request)

    return script, released


async def asked(judge: Any, count: int) -> None:
    """Wait until so many requests have asked the judge or joined one that has; what a rule decides is not counted."""
    await until(lambda: judge.grade(""), lambda seen: seen.cache.misses + seen.cache.joined >= count)


async def takes_more(judge: Any) -> bool:
    """Return whether the limit of requests under way leaves room for another one."""
    try:
        with translated():
            await judge.grade("")
    except OverloadedError:
        return False
    return True


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
        {"answer": "Paris "}, {"rubric": "quality", "judge": judge_spec_pb2.JudgeModel(temperature=0.2)},
        {"judge": judge_spec_pb2.JudgeModel(max_tokens=77)},
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


@pytest.mark.parametrize("other", [{"run_id": "rich"}, {"run_id": "poor", "spend_cap_nano_usd": 1_000_000_000}])
async def test_a_request_under_too_small_a_cap_joins_no_call(start: Start, other: dict[str, Any]) -> None:
    """The material of a call in flight, asked for by another run or under another cap, gets an outcome of its own."""
    script, released = held(GOOD)
    judge = await start(script)
    judged = asyncio.ensure_future(judge.grade(**other))
    await asked(judge, 1)
    refused = asyncio.ensure_future(judge.grade(run_id="poor", spend_cap_nano_usd=100_000))
    await asked(judge, 2)
    released.set()
    assert (await refused).verdict.reason == "spend_cap_reached"
    assert dict((await judged).verdict.scores) == {"score": 4.0}
    assert len(judge.provider.requests) == 1


@pytest.mark.parametrize("other", [{"run_id": "rich"}, {"run_id": "poor", "spend_cap_nano_usd": 1_000_000_000}])
async def test_a_request_that_waits_under_a_cap_is_joined_by_no_other(start: Start, other: dict[str, Any]) -> None:
    """What waits for the money of a call in flight, and gets too little of it, takes no other request along."""
    script, released = held(GOOD, usage=Tokens(1_200, 2_000))  # which leaves too little for a second call
    judge = await start(script)
    poor = {"run_id": "poor", "spend_cap_nano_usd": 20_000_000}  # a call may cost 0.0162
    paying = asyncio.ensure_future(judge.grade("Rome", **poor))
    await until(lambda: judge.provider.requests)
    waiting = asyncio.ensure_future(judge.grade(**poor))
    await asked(judge, 2)
    judged = asyncio.ensure_future(judge.grade(**other))
    await asked(judge, 3)
    released.set()
    assert dict((await paying).verdict.scores) == {"score": 4.0}
    assert (await waiting).verdict.reason == "spend_cap_reached"
    assert dict((await judged).verdict.scores) == {"score": 4.0}
    assert (await judged).verdict.usage.requests == 1
    assert len(judge.provider.requests) == 2


async def test_two_runs_pay_for_their_own_calls(start: Start) -> None:
    """Runs that ask the same at the same moment have a call each: neither pays for the other."""
    script, released = held(GOOD)
    judge = await start(script)
    grading = [asyncio.ensure_future(judge.grade(run_id=run_id)) for run_id in ("one", "two", "one")]
    await asked(judge, 3)
    released.set()
    responses = await asyncio.gather(*grading)
    assert len(judge.provider.requests) == 2
    assert sum(response.verdict.usage.requests for response in responses) == 2
    for run_id in ("one", "two"):
        assert (await judge.grade("", run_id=run_id)).spending.spent_nano_usd / 1e9 == pytest.approx(0.00195)


async def test_identical_requests_under_way_are_one_call(start: Start) -> None:
    """Fifty at once cost one; each gets the verdict."""
    script, released = held(GOOD)
    judge = await start(script)
    grading = [asyncio.ensure_future(judge.grade()) for _ in range(50)]
    await asked(judge, 50)
    released.set()
    responses = await asyncio.gather(*grading)
    assert len(judge.provider.requests) == 1
    assert {dict(response.verdict.scores)["score"] for response in responses} == {4.0}
    assert sum(response.verdict.usage.requests for response in responses) == 1
    assert sum(response.verdict.cached for response in responses) == 49
    assert sum(response.verdict.saved.requests for response in responses) == 49


async def test_a_request_that_is_cancelled_leaves_its_call_to_the_others(start: Start) -> None:
    """The first of two identical requests is cancelled; the second one is answered by the same call."""
    script, released = held(GOOD)
    judge = await start(script, queue_limit=3)
    request = pb.GradeRequest(rubric="quality", question="Capital of France?", reference="Paris", answer="Paris")
    leaving = judge.stub.Grade(request, timeout=180)
    await until(lambda: judge.provider.requests)
    staying = asyncio.ensure_future(judge.grade())
    await asked(judge, 2)
    third = asyncio.ensure_future(judge.grade("Rome"))
    await until(lambda: len(judge.provider.requests) >= 2)
    assert not await takes_more(judge)
    leaving.cancel()
    await until(lambda: takes_more(judge))  # the judge has noticed
    released.set()
    assert (await staying).verdict.status == (await third).verdict.status == pb.VERDICT_STATUS_VALID
    assert len(judge.provider.requests) == 2


@pytest.mark.parametrize("bad", [Reply("5"), Reply("x", status=400), Reply("", stop="length")])
async def test_only_valid_verdicts_are_kept(start: Start, bad: Reply) -> None:
    """A failure is asked for again the next time."""
    judge = await start(bad, bad, says(GOOD))
    failed = await judge.grade()
    assert failed.verdict.status != pb.VERDICT_STATUS_VALID
    assert failed.cache.entries == 0
    valid = await until(judge.grade, lambda seen: seen.verdict.status == pb.VERDICT_STATUS_VALID)
    assert not valid.verdict.cached
    assert (await judge.grade()).verdict.cached


async def test_a_kept_verdict_that_was_changed_on_disk_is_not_believed(start: Start, tmp_path: Path) -> None:
    """What is read is checked like a reply: a score off the scale is asked for anew."""
    judge = await start(says(GOOD), state_dir=tmp_path / "state")
    await judge.grade()
    with sqlite3.connect(tmp_path / "state" / "judge.db") as database:
        database.execute("UPDATE judge_verdicts SET record = replace(record, '\"score\": 4', '\"score\": 9')")
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
    named = (await second.grade(judge=judge_spec_pb2.JudgeModel(provider="replay", model=name))).verdict
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
        {
            "rubric": "quality",
            "question": "q",
            "answer": f"answer {index}",
            "run_id": "r",
            "spend_cap_nano_usd": 30_000_000,
        }
        for index in range(30)
    ]
    verdicts = await judge.grade_all(asked)
    valid = [verdict for verdict in verdicts if verdict.status == pb.VERDICT_STATUS_VALID]
    refused = [verdict for verdict in verdicts if verdict.reason == "spend_cap_reached"]
    assert len(valid) + len(refused) == 30
    assert len(valid) == len(judge.provider.requests)
    assert 2 <= len(valid) <= 15
    response = await judge.grade("", run_id="r", spend_cap_nano_usd=30_000_000)
    assert response.spending.spent_nano_usd / 1e9 == pytest.approx(0.00195 * len(valid), abs=1e-12)
    assert (response.spending.reserved_nano_usd / 1e9, response.spending.cap_nano_usd) == (0, 30_000_000)
    other = await judge.grade("b", run_id="other", spend_cap_nano_usd=30_000_000)
    assert other.verdict.status == pb.VERDICT_STATUS_VALID


async def test_the_operators_cap_holds_too(start: Start) -> None:
    """A request cannot raise it, and one without a cap of its own has it."""
    judge = await start(says(GOOD), spend_cap_usd=0.001)
    for cap in ({}, {"spend_cap_nano_usd": 100_000_000_000}):
        verdict = (await judge.grade(run_id="r", **cap)).verdict
        assert verdict.reason == "spend_cap_reached"
        assert "0.001" in verdict.message
    with pytest.raises(InvalidInputError, match="run_id: is required"), translated():
        await judge.grade()
    assert judge.provider.requests == []


async def test_a_cap_without_a_price_is_refused(start: Start, tmp_path: Path) -> None:
    """Nothing is asked that nobody could pay for knowingly; without a cap the cost is absent, never 0."""
    (tmp_path / "none.yaml").write_text("prices: [{model: other, input: 1, output: 1}]")
    judge = await start(says(GOOD), prices=tmp_path / "none.yaml")
    capped = (await judge.grade(run_id="r", spend_cap_nano_usd=1_000_000_000)).verdict
    assert (capped.status, capped.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, "price_unknown")
    free = (await judge.grade(run_id="r")).verdict
    assert free.status == pb.VERDICT_STATUS_VALID
    assert not free.usage.HasField("cost_usd")


async def test_a_cap_belongs_to_a_run(start: Start) -> None:
    """A cap without a run is refused; it could bound nothing."""
    judge = await start()
    with pytest.raises(InvalidInputError) as caught, translated():
        await judge.grade(spend_cap_nano_usd=10**9)
    assert [problem.field for problem in caught.value.problems] == ["spend_cap_nano_usd"]
