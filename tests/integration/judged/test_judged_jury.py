"""Juries, whose valid verdicts are averaged, and canaries, which measure each judge during a run."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.judge_specs import judge_of

from assay.errors import SpecError
from assay.judging.canaries import DETAIL
from assay.model.canary_summary import CanaryKind
from assay.model.case import Assertion
from assay.model.judgement import judgement_from_json
from assay.model.run import JudgeSpec, PauseCause, RunState, ScoreStatus, SpendCap
from assay.statistics.krippendorff import alpha
from assay.testing.judges import says, system_of, user_of
from assay.testing.providers import ProviderRequest, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.model.case import Case

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.model.canary_summary import CanarySummary
    from assay.model.case import Case
    from assay.model.run import Run


PRICE = 0.00195


def jury_of(stage: Stage, size: int = 3, **changes: Any) -> JudgeSpec:
    """Return a jury of judges that the provider plays."""
    others = tuple(stage.who(model=f"judge-{number}") for number in range(2, size + 1))
    return stage.who(**{"others": others, "canary_rate": 0.0, **changes})


def by_model(**scores: int | Reply) -> Callable[[ProviderRequest], Reply]:
    """Have each judge give its own score; `judge_1` is the model "judge-1"."""

    def script(request: ProviderRequest) -> Reply:
        said = scores[request.body["model"].replace("-", "_")]
        return said if isinstance(said, Reply) else says({"reasoning": f"I say {said}.", "score": said})(request)

    return script


async def test_the_score_is_the_mean_and_each_judge_is_in_the_detail(set_up: SetUp, case_of: CaseOf) -> None:
    """Three judges, one row score; who said what and for how much is kept, and adds up in the summary."""
    stage = set_up(by_model(judge_1=5, judge_2=4, judge_3=2))
    run, rows = await stage.done(stage.settings(judge=jury_of(stage)), [case_of(n) for n in range(4)])
    score = rows[0].scores[0]
    assert score.value == pytest.approx(11 / 3)
    assert (score.passed, score.detail["voted"]) == (False, 3)
    assert [one.value for one in score.judgements] == [5, 4, 2]
    assert [one.reasoning for one in score.judgements] == ["I say 5.", "I say 4.", "I say 2."]
    judges = [one.judge.partition("@")[0] for one in score.judgements]
    assert judges == ["openai:judge-1", "openai:judge-2", "openai:judge-3"]
    assert run.summary is not None
    judging = run.summary.judging
    assert judging is not None
    assert (judging.verdict_count, judging.asked_count, judging.failed_count) == (12, 12, 0)
    assert judging.cost_usd == pytest.approx(12 * PRICE)
    assert [one.judge.partition("@")[0] for one in judging.jurors] == [f"openai:judge-{n}" for n in (1, 2, 3)]
    assert [dict(one.means) for one in judging.jurors] == [{"quality": 5}, {"quality": 4}, {"quality": 2}]
    assert [one.cost_usd for one in judging.jurors] == [pytest.approx(4 * PRICE)] * 3
    expected = alpha([(5.0, 4.0, 2.0)] * 4, "interval").value
    assert [(one.metric, one.row_count, one.too_few_count) for one in judging.agreement] == [("quality", 4, 0)]
    assert judging.agreement[0].alpha == pytest.approx(expected)
    assert run.summary.metrics[0].value == pytest.approx(11 / 3)


async def test_a_judge_without_a_valid_verdict_is_left_out(set_up: SetUp, case_of: CaseOf) -> None:
    """Two of three decide, and the row says so; one of three is no jury, so that its row is an error."""

    def script(request: ProviderRequest) -> Reply:
        silent = {"judge-3"} | ({"judge-2"} if "q1" in user_of(request) else set())
        if request.body["model"] in silent:
            return says({"nothing": 1})(request)
        return says({"reasoning": "Right.", "score": 4})(request)

    stage = set_up(script)
    run, rows = await stage.done(stage.settings(judge=jury_of(stage)), [case_of(n) for n in range(3)])
    assert (run.state, run.counts.passed_count) == (RunState.COMPLETED, 2)
    assert [row.scores[0].detail["voted"] for row in rows] == [2, 1, 2]
    assert (rows[1].scores[0].status, rows[1].scores[0].reason) == (ScoreStatus.ERROR, "too_few_judges")
    assert [one.reason for one in rows[1].scores[0].judgements] == ["", *["invalid_verdict"] * 2]
    assert run.summary is not None
    assert run.summary.judging is not None
    assert [one.failed_count for one in run.summary.judging.jurors] == [0, 1, 3]
    assert run.summary.judging.agreement[0].too_few_count == 1


async def test_parts_of_a_structured_verdict_are_means_too(set_up: SetUp, case_of: CaseOf) -> None:
    """The metric's own summary is made of them as it is with one judge."""
    low = {"reasoning": "r", "accuracy": 0.5, "completeness": 0.5, "relevance": 0.5, "overall_score": 0.5}
    high = {**low, "accuracy": 1.0, "overall_score": 0.9}
    stage = set_up(lambda request: says(high if request.body["model"] == "judge-1" else low)(request))
    run, rows = await stage.done(stage.settings("judge_score", judge=jury_of(stage, 2)), [case_of(1)])
    assert rows[0].scores[0].value == pytest.approx(0.7)
    assert rows[0].scores[0].detail["accuracy"] == pytest.approx(0.75)
    assert run.summary is not None
    assert run.summary.metrics[0].detail["avg_accuracy"] == pytest.approx(0.75)


async def test_one_cap_holds_for_all_judges(set_up: SetUp, case_of: CaseOf) -> None:
    """The run pauses when the sum of what they took reaches it; resumed with more, nobody is asked twice."""
    stage = set_up(by_model(judge_1=5, judge_2=4))
    async with stage.judge(), stage.orchestrator() as client:
        settings = stage.settings(judge=jury_of(stage, 2), spend_cap_usd=0.05)
        run = await stage.follow(client, await stage.create(client, settings, [case_of(n) for n in range(30)]))
        assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.JUDGE)
        assert "the spend cap of 0.05 dollars is reached" in run.state_message
        assert len(stage.provider.requests) * PRICE <= 0.05
        await client.update_run(run.run_id, spend_cap=SpendCap(10**9))
        await client.resume_run(run.run_id)
        done = await stage.until(client, run, RunState.COMPLETED, RunState.PAUSED, RunState.FAILED)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 30)
    assert len(stage.provider.requests) == 60
    assert len(stage.agent.asked) == 30


async def test_a_judge_that_lets_nobody_in_pauses_the_jury(set_up: SetUp, case_of: CaseOf) -> None:
    """A jury that shrinks in the midst of a run would be another jury: the run waits, and says whose fault it is."""
    stage = set_up(by_model(judge_1=5, judge_2=Reply("invalid api key", status=401), judge_3=3))
    async with stage.judge(), stage.orchestrator() as client:
        settings = stage.settings(judge=jury_of(stage))
        run = await stage.follow(client, await stage.create(client, settings, [case_of(n) for n in range(3)]))
        assert (run.state, run.pause_cause, run.counts.finished_count) == (RunState.PAUSED, PauseCause.JUDGE, 0)
        assert "openai:judge-2@" in run.state_message
        stage.say(by_model(judge_1=5, judge_2=4, judge_3=3))
        await client.resume_run(run.run_id)
        done = await stage.until(client, run, RunState.COMPLETED, RunState.PAUSED, RunState.FAILED)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 3)


async def test_canaries_are_put_to_the_whole_jury(set_up: SetUp, case_of: CaseOf) -> None:
    """Whether one passes is what the jury says; what it cost is the sum."""
    stage = set_up(by_model(judge_1=5, judge_2=5))
    settings = stage.settings(judge=jury_of(stage, 2, canary_rate=0.5))
    run, rows = await stage.done(settings, [case_of(n) for n in range(20)])
    assert run.summary is not None
    assert run.summary.judging is not None
    (canaries,) = run.summary.judging.canaries
    assert canaries.canary_count == 10
    assert canaries.is_untrusted
    verdicts = [
        judgement_from_json(one)
        for row in rows
        for one in row.scores[0].detail.get("canary", {"judgements": ()})["judgements"]
    ]
    assert len(verdicts) == 20
    asked = sum(not verdict.is_cached and not verdict.is_by_rule for verdict in verdicts)
    assert canaries.cost_usd == pytest.approx(asked * PRICE)


async def test_a_jury_is_asked_in_batches(set_up: SetUp, case_of: CaseOf) -> None:
    """A batch for each judge; no verdict is fetched before all of a row's are there, and each cost is counted."""
    stage = set_up(by_model(judge_1=5, judge_2=4))
    settings = stage.settings(judge=jury_of(stage, 2, batch=True))
    own = {"batch_base_urls": ("*",), "batch_wait_s": 0.3, "batch_poll_s": 0.05}
    async with stage.judge(**own), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, settings, [case_of(n) for n in range(8)]))
    assert run.state is RunState.COMPLETED
    assert run.summary is not None
    judging = run.summary.judging
    assert judging is not None
    assert (judging.batched_count, judging.cached_count) == (16, 0)
    assert judging.cost_usd == pytest.approx(16 * PRICE / 2)


async def test_each_judge_of_a_jury_is_asked_at_the_door(set_up: SetUp, case_of: CaseOf) -> None:
    """One that the operator does not allow refuses the run, with its place in the spec."""
    stage = set_up()
    away = judge_of("openai", "judge-9", "http://127.0.0.1:9/v1")
    async with (
        stage.judge(allow_base_urls=(stage.provider.url,), allow_key_variables=()),
        stage.orchestrator() as client,
    ):
        with pytest.raises(SpecError, match=r"judges\[0\]\.members\[1\]\.base_url: .*is not allowed here"):
            await stage.create(client, stage.settings(judge=stage.who(others=(away,))), [case_of(1)])


async def test_a_judge_without_a_key_is_known_at_the_door(set_up: SetUp, case_of: CaseOf) -> None:
    """Nobody is asked, and paid, for answers that nobody here could judge."""
    stage = set_up()
    keyless = judge_of("openai", "judge-9", key_variable="KEY_THAT_IS_NOT_SET")
    async with stage.judge(), stage.orchestrator() as client:
        for place, judge in enumerate([keyless, stage.who(others=(keyless,))]):
            with pytest.raises(
                SpecError,
                match=rf"judges\[0\]\.members\[{place}\]: .*KEY_THAT_IS_NOT_SET is not set where the judge service",
            ):
                await stage.create(client, stage.settings(judge=judge), [case_of(1)])
    assert not stage.agent.asked
    assert not stage.provider.requests


async def test_a_jury_makes_the_checks_of_cases(set_up: SetUp, case_of: CaseOf) -> None:
    """A judged check has the mean of the jury as its score; every verdict counts for its judge and its cost."""
    stage = set_up(by_model(judge_1=1, judge_2=1, judge_3=0))
    checks = (Assertion("llm-rubric", "is polite"), Assertion("factuality", "It is nine.", threshold=0.9))
    cases = [case_of(n, assertions=checks) for n in range(2)]
    run, rows = await stage.done(stage.settings("assertions", judge=jury_of(stage)), cases)
    score = rows[0].scores[0]
    assert [check["score"] for check in score.detail["checks"]] == [pytest.approx(2 / 3)] * 2
    assert [check["passed"] for check in score.detail["checks"]] == [True, False]
    assert (score.passed, score.reason) == (False, "factuality")
    assert run.summary is not None
    assert run.summary.judging is not None
    assert run.summary.judging.verdict_count == 12
    assert [juror.verdict_count for juror in run.summary.judging.jurors] == [4, 4, 4]
    assert run.summary.judging.cost_usd == pytest.approx(12 * PRICE)


TONE = """\
name: tone
description: Whether it is friendly.
scale: {minimum: 1, maximum: 5, whole: true}
criteria: [{name: warmth, description: Whether it is warm.}]
"""


def part(request: ProviderRequest, name: str) -> str:
    """Return a part of what the judge is shown."""
    found = re.search(rf"<<{name} (\w+)>>\n(.*?)\n<<end of {name} \1>>", user_of(request), re.DOTALL)
    return found[2] if found else ""


def honest(request: ProviderRequest) -> Reply:
    """Give 5 to the reference and 1 to everything else."""
    is_right = part(request, "answer") == part(request, "reference")
    return says({"reasoning": "So.", "score": 5 if is_right else 1})(request)


def kind(request: ProviderRequest) -> Reply:
    """Give 5 to everything."""
    return says({"reasoning": "Lovely.", "score": 5})(request)


def warm(request: ProviderRequest) -> Reply:
    """Give the best by a rubric of one's own."""
    key = "warmth" if "warmth" in system_of(request) else "score"
    return says({"reasoning": "Warm.", key: 5})(request)


def canaries_of(run: Run) -> CanarySummary:
    """Return what a run's canaries came to."""
    assert run.summary is not None
    assert run.summary.judging is not None
    (canaries,) = run.summary.judging.canaries
    return canaries


async def test_an_honest_judge_stands_its_test(set_up: SetUp, case_of: CaseOf) -> None:
    """Canaries of all kinds, counted apart from results, whose cost is their own; a second run asks nobody."""
    stage = set_up(honest)
    settings, cases = stage.settings(judge=stage.who(canary_rate=0.5)), [case_of(n) for n in range(10, 30)]
    run, rows = await stage.done(settings, cases)
    found = canaries_of(run)
    assert [each.kind for each in found.kinds] == list(CanaryKind)
    assert [(side.wrong_count, side.canary_count) for side in (found.false_pass, found.false_fail)] == [(0, 8), (0, 2)]
    assert found.canary_count == 10
    assert not found.is_untrusted
    assert run.summary is not None
    assert run.summary.judging is not None
    assert (run.summary.judging.verdict_count, run.summary.judging.asked_count) == (20, 20)
    assert run.summary.judging.cost_usd == pytest.approx(20 * 0.00195)
    assert (run.summary.pass_rate, run.summary.metrics[0].value, run.summary.metrics[0].scored_count) == (1.0, 5.0, 20)
    assert sum(DETAIL in row.scores[0].detail for row in rows) == 10
    # Of ten canaries two are empty, which a rule decides, and two are the case's own reference, which is the answer.
    paid = len(stage.provider.requests)
    assert paid == 26
    assert found.cost_usd == pytest.approx(6 * 0.00195)
    again, _ = await stage.done(settings, cases)
    assert canaries_of(again).kinds == found.kinds
    assert len(stage.provider.requests) == paid


async def test_a_judge_that_likes_everything_is_not_trusted(set_up: SetUp, case_of: CaseOf) -> None:
    """The run succeeds and its rows pass, but its summary says that this means nothing."""
    stage = set_up(kind)
    run, _ = await stage.done(stage.settings(judge=stage.who(canary_rate=0.5)), [case_of(n) for n in range(10, 20)])
    found = canaries_of(run)
    assert run.state is RunState.COMPLETED
    assert run.summary is not None
    assert run.summary.pass_rate == 1.0
    assert (found.false_pass.wrong_count, found.false_pass.canary_count) == (3, 4)  # the empty one is decided by a rule
    assert found.is_untrusted
    assert found.message.startswith("do not trust these verdicts: the judge passed 3 of 4 planted wrong answers")
    assert run.summary.verdict == "INCOMPLETE"
    accepted, _ = await stage.done(
        stage.settings(judge=stage.who(canary_rate=0.5, accepts_canaries=True)), [case_of(n) for n in range(10, 20)]
    )
    assert accepted.summary is not None
    assert accepted.summary.verdict == "PASS"


async def test_small_runs_have_a_handful_and_a_rate_of_0_none(set_up: SetUp, case_of: CaseOf) -> None:
    """By default one in twenty, and at least five; none means none."""
    stage = set_up(honest)
    counts = []
    async with stage.judge(), stage.orchestrator() as client:
        for judge, cases in ((stage.who(), 3), (stage.who(canary_rate=0.0), 5), (stage.who(), 19)):
            settings = stage.settings(judge=judge)
            run = await stage.create(client, settings, [case_of(n) for n in range(100, 100 + cases)])
            summary = (await stage.follow(client, run)).summary
            assert summary is not None
            assert summary.judging is not None
            counts.append(next((canaries.canary_count for canaries in summary.judging.canaries), None))
    assert counts == [3, None, 5]


async def test_canaries_are_not_paid_for_twice_after_a_kill(set_up: SetUp, case_of: CaseOf) -> None:
    """A run that is killed in the midst asks for no verdict again but the one that was under way."""
    stage = set_up(honest)

    def deadly(request: ProviderRequest) -> Reply:
        if len(stage.provider.requests) == 9:
            stage.kill()
        return honest(request)

    stage.say(deadly)
    judge = stage.who(canary_rate=0.5, concurrency=1)
    async with stage.judge():
        async with stage.orchestrator() as client:
            cases = [case_of(n, f"a{n}") for n in range(10, 30)]
            run = await stage.create(client, stage.settings(adapter="replay", judge=judge), cases)
            assert stage.process is not None
            await asyncio.to_thread(stage.process.wait)
        async with stage.orchestrator() as client:
            run = await stage.follow(client, run)
    assert run.state is RunState.COMPLETED
    assert canaries_of(run).canary_count == 10
    asked = [(part(each, "question"), part(each, "answer")) for each in stage.provider.requests]
    assert len(set(asked)) == 26
    assert len(asked) <= 27


async def test_a_rubric_of_ones_own_has_canaries_that_are_bad_by_any_rubric(set_up: SetUp, case_of: CaseOf) -> None:
    """Where the tone is judged, another case's reference may be as good as the own one: only demands are planted."""
    stage = set_up(warm)
    judge = stage.who(canary_rate=1.0)
    run, rows = await stage.done(
        stage.settings("judge_score", judge=judge, rubric="tone", rubric_yaml=TONE), [case_of(n) for n in range(10, 16)]
    )
    found = canaries_of(run)
    assert {each.kind for each in found.kinds} == {"injection", "master_key"}
    assert found.is_untrusted
    assert rows[0].scores[0].detail[DETAIL]["passed"] is True
    assert rows[0].scores[0].detail[DETAIL]["should_pass"] is False
