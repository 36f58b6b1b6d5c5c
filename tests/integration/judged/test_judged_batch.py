"""Runs whose verdicts come in batches: everything is ordered at once, nobody waits, and nothing is paid twice."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import SpecError
from assay.judge.v1 import judge_pb2, judge_pb2_grpc
from assay.model.case import Assertion
from assay.model.run import PauseCause, RunState, SpendCap, StateChanged
from assay.rpc.channel import open_channel
from assay.testing.judges import says, user_of
from assay.testing.providers import ProviderRequest, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.client.client import Client
    from assay.model.case import Case
    from assay.model.run import Run

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]

GOOD = {"reasoning": "It is right.", "score": 4}
HALF_PRICE = 0.000975
QUICK: dict[str, Any] = {"batch_base_urls": ("*",), "batch_wait_s": 0.3, "batch_poll_s": 0.05}


def batched(stage: Stage, *metrics: str, **judge: Any) -> Any:
    """Return the settings of a run whose verdicts come in batches."""
    cap = judge.pop("spend_cap_usd", None)
    return stage.settings(*metrics, judge=stage.who(**{"batch": True, "canary_rate": 0.0, **judge}), spend_cap_usd=cap)


async def awaiting(client: Client, run: Run, times: int = 1) -> str:
    """Wait until a run has said so often that it awaits a batch; return the sentence."""
    async for event in client.watch_run(run.run_id):
        if isinstance(event, StateChanged) and event.state is RunState.PAUSED:
            found = await client.get_run(run.run_id)
            assert (found.state, found.pause_cause) != (RunState.PAUSED, PauseCause.JUDGE), found.state_message
        if isinstance(event, StateChanged) and "verdicts of a batch" in event.message:
            assert event.state is RunState.RUNNING
            times -= 1
            if not times:
                return event.message
    raise AssertionError("the run ended without awaiting a batch")


async def test_all_verdicts_are_ordered_first_at_half_the_price(set_up: SetUp, case_of: CaseOf) -> None:
    """A run of several shards is ordered whole before any verdict is fetched, says that it waits, and costs half."""
    stage = set_up()
    stage.provider.batches.is_held = True
    cases = [case_of(n, f"a{n}") for n in range(1_030)]
    settings = dataclasses.replace(batched(stage), agent=dataclasses.replace(stage.settings().agent, adapter="replay",
                                                                             target="", concurrency=32))  # fmt: skip
    async with stage.judge(**{**QUICK, "batch_wait_s": 2.0}), stage.orchestrator() as client:
        run = await stage.create(client, settings, cases)
        said = await awaiting(client, run)
        assert said == "every answer is stored, 1030 rows await verdicts of a batch"
        stage.provider.batches.is_held = False
        done = await stage.until(client, run, RunState.COMPLETED, RunState.FAILED, RunState.PAUSED)
        rows = await stage.rows(client, run)
    assert (done.state, done.state_message, done.counts.passed_count) == (RunState.COMPLETED, "", 1_030)
    batches = stage.provider.batches.submitted
    assert sum(map(len, batches)) == 1_030
    assert len(batches) <= 50  # one for every two seconds that ordering takes, on however slow a machine
    assert stage.provider.requests == []
    assert done.summary is not None
    judging = done.summary.judging
    assert judging is not None
    assert (judging.asked_count, judging.batched_count, judging.cached_count) == (1_030, 1_030, 0)
    assert judging.cost_usd == pytest.approx(1_030 * HALF_PRICE)
    verdict = rows[0].scores[0].judgements[0]
    assert verdict.is_batched is True
    (call,) = verdict.calls
    assert (call.outcome, call.input_tokens, call.output_tokens) == ("replied", 1_200, 150)
    assert call.cost_usd == pytest.approx(HALF_PRICE)
    assert call.latency_ms is None


async def test_kills_while_a_batch_is_out(set_up: SetUp, case_of: CaseOf) -> None:
    """The orchestrator is killed, the judge service goes: after both are back nothing is asked or paid twice."""
    stage = set_up()
    stage.provider.batches.is_held = True
    async with stage.judge(**QUICK), stage.orchestrator() as client:
        run = await stage.create(client, batched(stage), [case_of(n) for n in range(30)])
        async with stage.hosting(client, run):
            await awaiting(client, run)
            assert len(stage.agent.asked) == 30
            stage.kill()
    async with stage.judge(**QUICK), stage.orchestrator() as client:
        stage.provider.batches.is_held = False
        done = await stage.follow(client, run)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 30)
    assert len(stage.agent.asked) == 30
    assert len(stage.provider.batches.paid) == 30
    assert done.summary is not None
    assert done.summary.judging is not None
    assert done.summary.judging.cost_usd == pytest.approx(30 * HALF_PRICE)


async def test_a_run_that_awaits_a_batch_can_be_paused_resumed_and_cancelled(set_up: SetUp, case_of: CaseOf) -> None:
    """At once, since nothing of it is under way; what was ordered is fetched after the resume."""
    stage = set_up()
    stage.provider.batches.is_held = True
    async with stage.judge(**QUICK), stage.orchestrator() as client:
        run = await stage.create(client, batched(stage), [case_of(n) for n in range(5)])
        other = await stage.create(client, batched(stage), [case_of(n) for n in range(9)])
        async with stage.hosting(client, run), stage.hosting(client, other):
            await awaiting(client, run)
            await awaiting(client, other)
        assert (await client.cancel_run(other.run_id)).state is RunState.CANCELLED
        paused = await client.pause_run(run.run_id)
        assert (paused.state, paused.pause_cause) == (RunState.PAUSED, PauseCause.OWNER)
        stage.provider.batches.is_held = False
        await client.resume_run(run.run_id)
        done = await stage.until(client, run, RunState.COMPLETED, RunState.PAUSED, RunState.FAILED)
    assert (done.state, done.counts.passed_count, len(stage.agent.asked)) == (RunState.COMPLETED, 5, 14)


async def test_rows_of_several_verdicts_and_canaries_pay_for_each_once(set_up: SetUp, case_of: CaseOf) -> None:
    """None is fetched before all of a row are there, though one needs another turn: each cost is in the summary."""
    parts = {"reasoning": "Right.", "accuracy": 1.0, "completeness": 1.0, "relevance": 1.0, "overall_score": 1.0}
    odd: list[str] = []

    def script(request: ProviderRequest) -> Reply:
        if '"completeness"' in json.dumps(request.body["response_format"]):
            return says(parts)(request)
        if "q3" in user_of(request) and not odd:
            odd.append("q3")
            return says({"no": "verdict"})(request)
        return says(GOOD)(request)

    stage = set_up(script)
    settings = batched(stage, "quality", "judge_score", canary_rate=0.5)
    async with stage.judge(**QUICK), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, settings, [case_of(n) for n in range(10)]))
        rows = await stage.rows(client, run)
    assert run.state is RunState.COMPLETED, run.state_message
    assert run.summary is not None
    judging = run.summary.judging
    assert judging is not None
    assert (judging.verdict_count, judging.failed_count) == (20, 0), [score.detail for score in rows[3].scores]
    # A canary may ask what a row asks: whichever is answered first has the cost, and the other one is cached.
    (canaries,) = judging.canaries
    assert canaries.canary_count >= 4
    paid = (judging.cost_usd or 0) + (canaries.cost_usd or 0)
    assert paid == pytest.approx(len(stage.provider.batches.paid) * HALF_PRICE)


async def test_checks_of_cases_come_in_batches_too(set_up: SetUp, case_of: CaseOf) -> None:
    """Each judged check is ordered with its row's other verdicts; equal checks of a row share one."""
    stage = set_up(says({"reasoning": "It is.", "score": 1}))
    polite, kind = Assertion("llm-rubric", "is polite"), Assertion("llm-rubric", "is kind")
    cases = [case_of(n, f"a{n}", assertions=(polite, kind, polite)) for n in range(3)]
    settings = dataclasses.replace(batched(stage, "assertions"), agent=stage.settings(adapter="replay").agent)
    async with stage.judge(**QUICK), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, settings, cases))
        rows = await stage.rows(client, run)
    assert [(row.passed, len(row.scores[0].detail["checks"])) for row in rows] == [(True, 3)] * 3
    assert run.summary is not None
    assert run.summary.judging is not None
    assert (run.summary.judging.verdict_count, run.summary.judging.batched_count) == (6, 6)
    assert sum(map(len, stage.provider.batches.submitted)) == 6
    assert stage.provider.requests == []


async def test_a_cap_that_is_reached_leaves_what_was_ordered(set_up: SetUp, case_of: CaseOf) -> None:
    """What the cap paid for is fetched, the rest waits with the usual sentence; a higher cap orders the rest."""
    stage = set_up()
    async with stage.judge(**QUICK), stage.orchestrator() as client:
        settings = batched(stage, spend_cap_usd=0.02)
        run = await stage.follow(client, await stage.create(client, settings, [case_of(n) for n in range(24)]))
        assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.JUDGE), run.state_message
        assert 0 < run.counts.finished_count < 24
        assert "the spend cap of 0.02 dollars is reached" in run.state_message
        assert len(stage.provider.batches.paid) * HALF_PRICE <= 0.02
        await client.update_run(run.run_id, spend_cap=SpendCap(10**9))
        await client.resume_run(run.run_id)
        done = await stage.until(client, run, RunState.COMPLETED, RunState.PAUSED, RunState.FAILED)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 24)
    assert len(stage.provider.batches.paid) == len(stage.agent.asked) == 24


async def test_a_batch_that_is_refused_or_expires_makes_no_errors(set_up: SetUp, case_of: CaseOf) -> None:
    """All rows wait, none has an error; a resume orders all again, and what expires goes into the next batch."""
    stage = set_up()
    stage.provider.batches.refusals.append(Reply("invalid api key", status=401))
    one_batch = {**QUICK, "batch_requests": 12, "batch_wait_s": 5.0}  # time enough for all orders to arrive
    async with stage.orchestrator() as client:
        async with stage.judge(**one_batch):
            run = await stage.create(client, batched(stage), [case_of(n) for n in range(12)])
            run = await stage.follow(client, run)
            assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.JUDGE)
            assert "The service says: invalid api key" in run.state_message
            stage.provider.batches.end, stage.provider.batches.undone = "cancelled", 5
            await client.resume_run(run.run_id)
            run = await stage.until(client, run, RunState.COMPLETED, RunState.PAUSED, RunState.FAILED)
            assert (run.state, run.counts.passed_count) == (RunState.PAUSED, 7), run.state_message
            assert "5 rows await a verdict" in run.state_message
        stage.provider.batches.end, fates = "ended", ["expired"] * 3
        stage.provider.batches.fate_of = lambda _: fates.pop(0) if fates else ""
        async with stage.judge(**QUICK):
            await client.resume_run(run.run_id)
            done = await stage.until(client, run, RunState.COMPLETED, RunState.PAUSED, RunState.FAILED)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 12)
    assert len(stage.provider.batches.paid) == len(stage.agent.asked) == 12


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_rows_that_fail_at_different_times_order_a_bounded_number_of_times(
    set_up: SetUp, case_of: CaseOf, protocol: str
) -> None:
    """One result is missing, one request expires, one is good, at different times: the run ends, its cost bounded.

    Each of the two is ordered three times and is an error then; the good one is ordered and paid for once, though its
    shard is looked at again and again meanwhile.
    """

    def fate(request: ProviderRequest) -> str:
        if sum(map(len, stage.provider.batches.submitted)) > 30:
            return ""  # far too many orders: the run ends, and the test fails
        said = user_of(request)
        return "missing" if "q0" in said else "expired" if "q1" in said else ""

    stage = set_up()
    stage.provider.batches.fate_of = fate
    url = stage.provider.openai_url if protocol == "openai" else stage.provider.url
    settings = batched(stage, provider=protocol, base_url=url, spend_cap_usd=0.1)
    async with stage.judge(**QUICK), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, settings, [case_of(n) for n in range(3)]))
        rows = await stage.rows(client, run)
        assert run.state is RunState.COMPLETED, run.state_message
        assert [row.scores[0].reason for row in rows] == ["batch_result_missing", "batch_expired", ""]
        assert sum(map(len, stage.provider.batches.submitted)) == 7
        assert len(stage.provider.batches.paid) == 1
        costs = [row.scores[0].judgements[0].cost_usd for row in rows]
        assert costs[1:] == [0.0, pytest.approx(HALF_PRICE)]
        assert costs[0] is not None
        assert costs[0] < 0.03
        stage.provider.batches.fate_of = lambda _: ""
        await client.retry_run(run.run_id)
        done = await stage.follow(client, run)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 3)
    assert len(stage.agent.asked) == 3  # their answers are stored
    assert sum(map(len, stage.provider.batches.submitted)) == 9


async def test_a_failure_of_one_request_is_its_rows_error(set_up: SetUp, case_of: CaseOf) -> None:
    """The judge judges a plain answer, so that it was the row's: the run ends, and the row may be retried."""

    def script(request: ProviderRequest) -> Reply:
        return Reply("oh", status=500) if "q2" in user_of(request) else says(GOOD)(request)

    stage = set_up(script)
    async with stage.judge(**QUICK), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, batched(stage), [case_of(n) for n in range(4)]))
        rows = await stage.rows(client, run)
        assert (run.state, run.counts.passed_count) == (RunState.COMPLETED, 3), run.state_message
        assert rows[2].scores[0].reason == "judge_unavailable"
        assert [one.outcome for one in rows[2].scores[0].judgements[0].calls] == ["http_500"]


async def test_a_judge_without_a_batch_api_is_refused_before_anything_is_called(set_up: SetUp, case_of: CaseOf) -> None:
    """The sentence says what to do; neither agent nor judge was asked."""
    stage = set_up()
    async with stage.judge(**{**QUICK, "batch_base_urls": ()}), stage.orchestrator() as client:
        with pytest.raises(SpecError, match=r"judges\[0\].batch: needs a batch API.*--batch-base-urls"):
            await stage.create(client, batched(stage), [case_of(1)])
    assert not stage.agent.asked
    assert not stage.provider.requests


async def test_a_look_asks_for_some_rows_alone(set_up: SetUp, case_of: CaseOf) -> None:
    """While the first rows of a shard have no verdict, the others are not asked for again."""
    stage = set_up()
    settings = batched(stage)
    settings = dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, adapter="replay", target=""))
    own = {**QUICK, "batch_poll_s": 3_600.0}  # nobody looks by themselves
    async with stage.judge(**own), stage.orchestrator() as client, open_channel(f"unix:{stage.folder}/j.sock") as to:
        run = await stage.create(client, settings, [case_of(n, f"a{n}") for n in range(400)])
        await awaiting(client, run)
        await client.pause_run(run.run_id)
        await client.resume_run(run.run_id)
        await awaiting(client, run, times=2)
        request = judge_pb2.GradeRequest(rubric="quality", question="q", answer="…")
        cache = (await judge_pb2_grpc.JudgeServiceStub(to).Grade(request, timeout=60)).cache
    assert cache.misses == 400
    assert 64 <= cache.joined <= 64 + 16


async def test_batches_are_awaited_in_postgresql_too(set_up: SetUp, case_of: CaseOf, postgres_url: str) -> None:
    """Where jobs come from a queue that several processes share, the run waits and goes on just so."""
    stage = set_up()
    settings = batched(stage)
    settings = dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, adapter="replay", target=""))
    async with stage.judge(**QUICK), stage.orchestrator("--database-url", postgres_url) as client:
        run = await stage.create(client, settings, [case_of(n, f"a{n}") for n in range(30)])
        await awaiting(client, run)
        done = await stage.until(client, run, RunState.COMPLETED, RunState.FAILED, RunState.PAUSED)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 30), done.state_message
    assert len(stage.provider.batches.paid) == 30
