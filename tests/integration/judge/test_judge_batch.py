from __future__ import annotations

import asyncio
import itertools
import json
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until

from assay.errors import InvalidInputError
from assay.judge.v1 import judge_pb2 as pb
from assay.rpc.status import translated
from assay.testing.hostile_verdicts import FAMILIES
from assay.testing.judges import says, system_of, user_of, verdict_id_of
from assay.testing.providers import Reply, Tokens
from assay_judge.batches.dispatcher import BatchDispatcher
from assay_judge.judges import JudgeChoice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Any]

GOOD = {"reasoning": "It is right.", "score": 4}
QUICK: dict[str, Any] = {"batch_base_urls": ("http://127.0.0.1:*",), "batch_wait_s": 0.05, "batch_poll_s": 0.02}
HALF_PRICE = 0.000975


def full(count: int, wait_s: float = 3.0) -> dict[str, Any]:
    """Return settings by which a batch leaves when it has so many requests, however busy the machine is."""
    return {**QUICK, "batch_wait_s": wait_s, "batch_requests": count}


both_protocols = pytest.mark.parametrize("protocol", ["openai", "anthropic"])


both_databases = pytest.mark.parametrize("start", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def start(request: pytest.FixtureRequest, start: Start) -> Start:
    """Start a service on a temporary file, or on PostgreSQL."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return start
    return partial(start, database_url=request.getfixturevalue("postgres_url"))


def asked(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "rubric": "quality",
            "question": "q",
            "answer": f"answer {index % 5 + 1}, no. {index}",
            "batch": True,
            **fields,
        }
        for index in range(count)
    ]


def by_answer(request: Any) -> Reply:
    """Give each answer the score that it names."""
    score = int(user_of(request).split("\nanswer ")[1][0])
    return says({"reasoning": f"It says {score}.", "score": score})(request)


async def settled(judge: Any, **fields: Any) -> pb.Verdict:
    """Ask again as long as the answer is "not yet"."""
    while True:
        verdict: pb.Verdict = (await judge.grade(batch=True, **fields)).verdict
        if verdict.reason != "batch_pending":
            return verdict


@both_databases
@both_protocols
async def test_a_stream_of_requests_is_one_batch_at_half_the_price(start: Start, protocol: str) -> None:
    """Each answer gets its own verdict, checked, paid for once at half the price; nothing is asked one by one."""
    judge = await start(by_answer, protocol=protocol, **full(40))
    judge.provider.batches.shuffles = True
    verdicts = await judge.grade_all(asked(40, run_id="r"))
    assert [dict(verdict.scores)["score"] for verdict in verdicts] == [index % 5 + 1 for index in range(40)]
    assert all(verdict.batched and not verdict.cached and verdict.call_count == 1 for verdict in verdicts)
    assert verdicts[0].usage.cost_usd == pytest.approx(HALF_PRICE, abs=1e-12)
    assert [len(batch) for batch in judge.provider.batches.submitted] == [40]
    assert judge.provider.requests == []
    spending = (await judge.grade("", run_id="r")).spending
    assert spending.spent_nano_usd / 1e9 == pytest.approx(40 * HALF_PRICE, abs=1e-12)
    assert spending.reserved_nano_usd == 0


@both_protocols
async def test_whoever_cannot_wait_asks_again(start: Start, protocol: str) -> None:
    """The first answer is "not yet" with a time to come back; the verdict is had later and is paid for once."""
    judge = await start(protocol=protocol, **QUICK)
    judge.provider.batches.is_held = True
    first = (await judge.grade(batch=True, timeout_ms=20)).verdict
    assert (first.status, first.reason) == (pb.VERDICT_STATUS_UNAVAILABLE, "batch_pending")
    assert first.retry_after_ms >= 20
    assert "retry in" in first.message
    while judge.provider.batches.looked < 2:
        verdict = (await judge.grade(batch=True, timeout_ms=20)).verdict
        assert verdict.reason == "batch_pending"
    assert "has 0 of 1 requests done" in verdict.message
    judge.provider.batches.is_held = False
    found = await settled(judge, timeout_ms=20)
    assert dict(found.scores) == {"score": 4.0}
    assert (found.batched, found.cached) == (True, False)
    assert found.usage.cost_usd == pytest.approx(HALF_PRICE, abs=1e-12)
    again = (await judge.grade(batch=True)).verdict
    assert (again.cached, again.usage.requests) == (True, 0)
    assert len(judge.provider.batches.paid) == 1


@both_databases
async def test_an_outcome_waits_for_whoever_ordered_it(start: Start) -> None:
    """What came of an order while nobody waited is told to the next who asks for that run, usage and all, once."""
    judge = await start(Reply("no", status=500), says(GOOD), **QUICK)
    judge.provider.batches.is_held = True
    assert (await judge.grade(batch=True, run_id="r", timeout_ms=10)).verdict.reason == "batch_pending"
    judge.provider.batches.is_held = False
    await until(lambda: judge.grade("", run_id="r"), lambda said: not said.spending.reserved_nano_usd / 1e9)
    verdict = await settled(judge, run_id="r")
    assert (verdict.reason, verdict.batched) == ("judge_unavailable", True)
    assert dict((await settled(judge, run_id="r")).scores) == {"score": 4.0}


@both_databases
async def test_identical_requests_share_an_order(start: Start) -> None:
    """Of two runs at the same moment, again and again: one request each; one has the usage, the others joined."""
    judge = await start(by_answer, **{**QUICK, "batch_wait_s": 2.0})  # all are there before a batch is made
    twice = [{**one, "run_id": f"r{copy}"} for one in asked(25) for copy in range(2)]
    verdicts = await judge.grade_all(twice * 2)
    assert all(verdict.status == pb.VERDICT_STATUS_VALID for verdict in verdicts)
    assert len(judge.provider.batches.paid) == 25
    assert sum(verdict.usage.requests for verdict in verdicts) == 25
    assert sum(verdict.cached for verdict in verdicts) == 75


@both_protocols
async def test_errors_of_single_requests_are_outcomes(start: Start, protocol: str) -> None:
    """One fails, one is refused, one throttled; their reasons say so, they cost nothing, the others are untouched."""
    failures = {"1": Reply("oh", status=500), "2": Reply("no", status=400), "3": Reply("slow", status=429)}
    if protocol == "anthropic":
        kinds = {"1": "api_error", "2": "invalid_request_error", "3": "rate_limit_error"}
        failures = {key: Reply(r.text, status=r.status, error={"type": kinds[key]}) for key, r in failures.items()}

    def script(request: Any) -> Reply:
        return failures.get(user_of(request).split("\nanswer ")[1][0]) or by_answer(request)

    judge = await start(script, protocol=protocol, **QUICK)
    verdicts = await judge.grade_all(asked(5, run_id="r"))
    assert [verdict.reason for verdict in verdicts] == [
        "judge_unavailable", "judge_refuses_request", "rate_limited", "", "",
    ]  # fmt: skip
    assert "in the batch: HTTP 400: no" in verdicts[1].message
    assert [verdict.usage.cost_usd for verdict in verdicts[:3]] == [0, 0, 0]
    assert dict(verdicts[4].scores) == {"score": 5.0}


async def test_parameters_that_are_refused_are_left_out_of_the_next_batch(start: Start) -> None:
    """A model that takes no temperature is asked again without it; the verdict says what was sent."""

    def script(request: Any) -> Reply:
        if "temperature" in request.body:
            return Reply("temperature is not supported", status=400, error={"param": "temperature"})
        return by_answer(request)

    judge = await start(script, **full(5))
    verdicts = await judge.grade_all(asked(5))
    assert [dict(verdict.scores)["score"] for verdict in verdicts] == [1, 2, 3, 4, 5]
    assert not verdicts[0].HasField("temperature")
    assert len(judge.provider.batches.submitted) == 2


@both_protocols
async def test_a_reply_that_is_no_verdict_gets_one_more_turn(start: Start, protocol: str) -> None:
    """In the next batch, with another verdict_id and in our words; both turns are paid for; then it is invalid."""

    def script(request: Any) -> Reply:
        first = "An earlier reply" not in system_of(request)
        if "hopeless" in user_of(request) or first:
            return says({**GOOD, "score": 9})(request)
        return says(GOOD)(request)

    judge = await start(script, protocol=protocol, **QUICK)
    good, bad = await judge.grade_all([*asked(1, run_id="r"), {**asked(1, run_id="r")[0], "answer": "hopeless"}])
    assert dict(good.scores) == {"score": 4.0}
    assert good.call_count == good.usage.requests == 2
    assert good.usage.cost_usd == pytest.approx(2 * HALF_PRICE, abs=1e-12)
    assert (bad.status, bad.reason) == (pb.VERDICT_STATUS_INVALID, "invalid_verdict")
    sent = judge.provider.batches.requests
    assert len({verdict_id_of(request) for request in sent}) == len(sent) == 4
    assert "score must be a whole number from 1 to 5" in system_of(sent[2])


async def test_no_hostile_reply_of_a_batch_becomes_a_score(start: Start) -> None:
    """Every family of malformed verdicts, first turn and repair: as strict as online."""
    rng = random.Random(0)

    def script(request: Any) -> Reply:
        family = user_of(request).split("case ", 1)[1].split("!")[0]
        reply = FAMILIES[family](rng, {"verdict_id": verdict_id_of(request), **GOOD})
        return Reply(reply.encode("utf-8", "replace").decode(), usage=Tokens(10, 10))

    judge = await start(script, **QUICK)
    verdicts = await judge.grade_all(
        [
            {**asked(1)[0], "answer": f"case {family}! {index}"}
            for family, index in itertools.product(FAMILIES, range(2))
        ]
    )
    assert {verdict.status for verdict in verdicts} == {pb.VERDICT_STATUS_INVALID}
    assert {verdict.reason for verdict in verdicts} <= {"invalid_verdict", "empty_verdict"}
    assert not any(verdict.scores for verdict in verdicts)


@both_protocols
async def test_a_batch_that_was_cancelled_keeps_what_is_done(start: Start, protocol: str) -> None:
    """Requests that the provider did not come to have that reason and cost nothing; asking again is a new order."""
    judge = await start(by_answer, protocol=protocol, **full(10))
    judge.provider.batches.end, judge.provider.batches.undone = "cancelled", 4
    verdicts = await judge.grade_all(asked(10, run_id="r"))
    assert sorted(verdict.reason for verdict in verdicts) == [""] * 6 + ["batch_cancelled"] * 4
    assert all(verdict.usage.cost_usd == 0 for verdict in verdicts if verdict.reason)
    judge.provider.batches.end, judge.provider.batches.undone = "ended", 0
    again = await judge.grade_all(asked(16, run_id="r"))  # the four, and six more, so that the batch is full
    assert all(verdict.status == pb.VERDICT_STATUS_VALID for verdict in again)
    assert len(judge.provider.batches.paid) == 16


@both_databases
@both_protocols
async def test_what_a_batch_does_not_answer_is_ordered_three_times(start: Start, protocol: str) -> None:
    """An expired request and one whose result is missing go into the next batches; then they are given up.

    What a missing result has cost is unknown: the most that it may have is on the bill, each time.
    """

    def fate(request: Any) -> str:
        said = user_of(request)
        return "missing" if "\nanswer 1" in said else "expired" if "\nanswer 2" in said else ""

    judge = await start(by_answer, protocol=protocol, **QUICK)
    judge.provider.batches.fate_of = fate
    missing, expired, good = await judge.grade_all(asked(3, run_id="r", row="0"))
    assert (missing.reason, expired.reason) == ("batch_result_missing", "batch_expired")
    assert "hold no answer to this request (ordered 3 times)" in missing.message
    assert expired.message.endswith("(ordered 3 times)")
    assert (missing.call_count, expired.call_count, expired.usage.cost_usd) == (3, 3, 0)
    assert [one.outcome for one in missing.calls] == ["batch_result_missing"] * 3
    assert dict(good.scores) == {"score": 3.0}
    assert sum(map(len, judge.provider.batches.submitted)) == 7
    spending = (await judge.grade("", run_id="r")).spending
    assert spending.spent_nano_usd / 1e9 == pytest.approx(missing.usage.cost_usd + HALF_PRICE, abs=1e-12)
    assert 3 * 0.005 < missing.usage.cost_usd < 3 * 0.01
    assert spending.reserved_nano_usd == 0


@both_protocols
async def test_what_expires_once_is_answered_by_the_next_batch(start: Start, protocol: str) -> None:
    """No caller has to ask again, and nothing is paid for what was not answered."""
    fates = ["expired", "missing"]
    judge = await start(by_answer, protocol=protocol, **QUICK)
    judge.provider.batches.fate_of = lambda _: fates.pop(0) if fates else ""
    (verdict,) = await judge.grade_all(asked(1, run_id="r"))
    assert (dict(verdict.scores), verdict.call_count) == ({"score": 1.0}, 3)


@both_databases
async def test_what_the_cap_cannot_order_again_says_so(start: Start) -> None:
    """It is the cap that stops it: with a higher one, a later round orders it again."""
    fates = ["missing"]
    judge = await start(by_answer, **QUICK)
    judge.provider.batches.fate_of = lambda _: fates.pop(0) if fates else ""
    (verdict,) = await judge.grade_all(asked(1, run_id="r", row="0", spend_cap_nano_usd=11_000_000))
    assert verdict.reason == "spend_cap_reached"
    assert verdict.message.endswith("and the run's spend cap leaves too little to order it again")
    (again,) = await judge.grade_all(asked(1, run_id="r", row="0", spend_cap_nano_usd=1_000_000_000, round=1))
    assert dict(again.scores) == {"score": 1.0}


@both_databases
async def test_an_outcome_is_kept_for_its_row(start: Start) -> None:
    """A row gets its outcome with its usage each time that it asks; another row finds it; neither orders again."""
    judge = await start(Reply("no", status=500), says(GOOD), **QUICK)
    own, other = {"run_id": "r", "row": "0"}, {"run_id": "r", "row": "1"}
    for _ in range(3):
        verdict = await settled(judge, **own)
        assert (verdict.reason, verdict.call_count) == ("judge_unavailable", 1)
    assert (await settled(judge, **other)).usage.requests == 0
    assert len(judge.provider.batches.submitted) == 1
    for _ in range(2):
        verdict = await settled(judge, **own, round=1)
        assert (dict(verdict.scores), verdict.cached, verdict.usage.requests) == ({"score": 4.0}, False, 1)
    found = await settled(judge, **other, round=7)
    assert (dict(found.scores), found.cached, found.usage.requests) == ({"score": 4.0}, True, 0)
    assert len(judge.provider.batches.submitted) == 2


async def test_a_batch_that_the_provider_refuses_says_why(start: Start) -> None:
    """Be it at once or after looking at its file: nothing was paid, and the provider's words are told."""
    judge = await start(by_answer, **QUICK)
    judge.provider.batches.end = "failed"
    failed = (await judge.grade_all(asked(1)))[0]
    assert (failed.reason, failed.usage.cost_usd) == ("batch_failed", 0)
    assert "the file is wrong" in failed.message
    judge.provider.batches.refusals = [Reply("no batches for you", status=403)]
    denied = (await judge.grade_all(asked(1)))[0]
    assert denied.reason == "judge_denied"
    assert "(403 from 127.0.0.1:" in denied.message
    assert denied.message.endswith("Set JUDGE_KEY where the judge runs. The service says: no batches for you")
    judge.provider.batches.end = "ended"
    judge.provider.batches.refusals = [Reply("slow down", status=429), Reply("oh", status=503)]
    assert dict((await judge.grade_all(asked(1)))[0].scores) == {"score": 1.0}


@both_protocols
@pytest.mark.parametrize("cut", ["body", "line"])
async def test_results_that_were_cut_are_read_again(start: Start, protocol: str, cut: str) -> None:
    """What could be read counts; the rest comes with the next reading, each verdict at its own answer."""
    judge = await start(by_answer, protocol=protocol, **full(30))
    judge.provider.batches.cut, judge.provider.batches.cut_times = cut, 2
    verdicts = await judge.grade_all(asked(30))
    assert [dict(verdict.scores)["score"] for verdict in verdicts] == [index % 5 + 1 for index in range(30)]
    assert len(judge.provider.batches.paid) == 30


async def test_results_that_stay_cut_end_as_failures(start: Start) -> None:
    """Nobody waits for ever; nobody knows what the lost ones cost, so the most that they may have is on the bill."""
    judge = await start(by_answer, **full(5, wait_s=1.0))  # what is lost waits so long, twice
    judge.provider.batches.cut = "line"
    verdicts = await judge.grade_all(asked(5))
    (lost,) = (verdict for verdict in verdicts if verdict.status != pb.VERDICT_STATUS_VALID)
    assert lost.reason == "batch_result_missing"
    assert "hold no answer" in lost.message
    assert lost.usage.cost_usd > 3 * 0.005


@both_protocols
async def test_a_submission_whose_reply_is_lost_is_not_made_again(start: Start, protocol: str) -> None:
    """The batch is looked for at the provider first, page by page, and taken up."""
    judge = await start(by_answer, protocol=protocol, **{**full(5), "batch_wait_s": 0.3})
    for answer in ("answer 1", "answer 2", "answer 3"):
        await judge.grade(answer, batch=True)
    judge.provider.batches.lost_replies = 1
    judge.provider.batches.looks = 1
    verdicts = await judge.grade_all([{**one, "sample_index": 7} for one in asked(5)])
    assert [dict(verdict.scores)["score"] for verdict in verdicts] == [1, 2, 3, 4, 5]
    assert len(judge.provider.batches.submitted) == 4


@both_protocols
async def test_a_submission_that_never_arrived_is_made_again(start: Start, protocol: str) -> None:
    """Where the provider has no such batch, looked for twice, it is submitted."""
    judge = await start(by_answer, protocol=protocol, **full(5))
    judge.provider.batches.refusals = [Reply("oh", status=502)]
    verdicts = await judge.grade_all(asked(5))
    assert [dict(verdict.scores)["score"] for verdict in verdicts] == [1, 2, 3, 4, 5]
    assert len(judge.provider.batches.submitted) == 1


@both_protocols
async def test_a_cap_is_set_aside_before_anything_is_submitted(start: Start, protocol: str) -> None:
    """Orders that do not fit yet wait for the money of others; in the end the cap is used and never passed."""
    judge = await start(by_answer, protocol=protocol, **QUICK)
    verdicts = await judge.grade_all(asked(60, run_id="r", spend_cap_nano_usd=30_000_000))
    valid = [verdict for verdict in verdicts if verdict.status == pb.VERDICT_STATUS_VALID]
    refused = [verdict for verdict in verdicts if verdict.reason == "spend_cap_reached"]
    assert len(valid) + len(refused) == 60
    assert len(valid) == len(judge.provider.batches.paid)
    assert 10 <= len(valid) <= 30
    spending = (await judge.grade("", run_id="r", spend_cap_nano_usd=30_000_000)).spending
    assert spending.spent_nano_usd / 1e9 == pytest.approx(HALF_PRICE * len(valid), abs=1e-12)
    assert spending.reserved_nano_usd == 0


async def test_a_cap_without_a_price_is_refused_in_batches_too(start: Start, tmp_path: Path) -> None:
    """Nothing is ordered that nobody could pay for knowingly."""
    (tmp_path / "none.yaml").write_text("prices: [{model: other, input: 1, output: 1}]")
    judge = await start(prices=tmp_path / "none.yaml", **QUICK)
    verdict = (await judge.grade(batch=True, run_id="r", spend_cap_nano_usd=1_000_000_000)).verdict
    assert verdict.reason == "price_unknown"
    assert judge.provider.batches.submitted == []


async def test_the_factor_of_a_batch_is_a_price(start: Start, tmp_path: Path) -> None:
    """The operator's file may say another one than half."""
    (tmp_path / "own.yaml").write_text("prices: [{model: '*', input: 1, output: 5, batch: 0.25}]")
    judge = await start(prices=tmp_path / "own.yaml", **QUICK)
    verdict = (await judge.grade(batch=True)).verdict
    assert verdict.usage.cost_usd == pytest.approx(HALF_PRICE / 2, abs=1e-12)


async def test_judges_without_a_batch_api_are_refused(start: Start, tmp_path: Path) -> None:
    """With a sentence that says what to do: another service unless it is listed, and recorded verdicts."""
    judge = await start(batch_base_urls=())
    with (
        pytest.raises(InvalidInputError, match=r"not known to have one: leave it out, or .* --batch-base-urls"),
        translated(),
    ):
        await judge.grade(batch=True)
    record = tmp_path / "verdicts.jsonl"
    record.write_text(json.dumps({"key": "0" * 64, "judge": "openai:m", "verdict": GOOD}) + "\n")
    replaying = await start(judge=JudgeChoice("replay"), replay=record)
    with pytest.raises(InvalidInputError, match="leave it out"), translated():
        await replaying.grade(batch=True)
    assert judge.provider.batches.submitted == []


async def test_batches_are_as_large_as_the_operator_says(start: Start) -> None:
    """A full batch leaves before its time; what is over goes into the next ones."""
    judge = await start(by_answer, **full(10))
    await judge.grade_all(asked(25))
    assert sorted(len(batch) for batch in judge.provider.batches.submitted) == [5, 10, 10]


async def test_without_a_cache_verdicts_are_still_fetched(start: Start) -> None:
    """An order's outcome waits on disk, whether verdicts are used again or not; then it is asked anew."""
    judge = await start(cache=False, **QUICK)
    judge.provider.batches.looks = 2
    assert dict((await settled(judge, timeout_ms=10)).scores) == {"score": 4.0}
    await settled(judge)
    assert len(judge.provider.batches.paid) == 2


class ManualClock:
    """Sleeps end when the test says so; it remembers how long they would have been."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        self.slept: list[float] = []
        self._wakes: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        wake = asyncio.Event()
        await self._wakes.put(wake)
        await wake.wait()
        self.time += seconds

    async def wake_next(self) -> None:
        (await self._wakes.get()).set()


async def test_a_batch_is_looked_at_less_and_less_often(start: Start) -> None:
    """From half a minute to five minutes, on a clock of the test's: a day of waiting costs some 300 looks."""
    clock = ManualClock()
    judge = await start(clock=clock, **{**QUICK, "batch_poll_s": 30.0})
    judge.provider.batches.looks = 9
    asking = asyncio.ensure_future(judge.grade(batch=True))
    for _ in range(10):
        await clock.wake_next()
    assert dict((await asking).verdict.scores) == {"score": 4.0}
    assert clock.slept == pytest.approx([30, 45, 67.5, 101.25, 151.875, 227.8125, 300, 300, 300, 300])


@both_databases
async def test_a_stop_tells_those_who_wait_to_ask_again(start: Start, tmp_path: Path) -> None:
    """At once, not after the batch."""
    judge = await start(state_dir=tmp_path / "state", **QUICK)
    judge.provider.batches.is_held = True
    waiting = [asyncio.ensure_future(judge.grade(batch=True, run_id="r")) for _ in range(2)]
    await until(lambda: judge.provider.batches.looked)
    judge.server.stopping.set()
    assert {(await one).verdict.reason for one in waiting} == {"batch_pending"}


async def test_a_judge_on_a_file_polls_it_only_while_verdicts_are_ordered(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other process adds orders. An order of its own wakes it, each time."""
    dispatchers: list[BatchDispatcher] = []
    started = BatchDispatcher.start

    async def start_dispatcher(dispatcher: BatchDispatcher) -> None:
        dispatchers.append(dispatcher)
        await started(dispatcher)

    monkeypatch.setattr(BatchDispatcher, "start", start_dispatcher)
    judge = await start(**QUICK)
    for answer in ("first", "second"):
        await until(lambda: dispatchers[0]._has_work._waiters)
        assert dict((await judge.grade(answer, batch=True)).verdict.scores) == {"score": 4.0}
    await until(lambda: dispatchers[0]._has_work._waiters)
