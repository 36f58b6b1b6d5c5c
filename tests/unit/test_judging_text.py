"""What judging came to: counted over rows in any order, and the sentences about it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from tests.support.judge_specs import judge_of

from assay.client.progress.run_progress import make_progress
from assay.model.answers.agent_response import AgentStatus
from assay.model.judgement import Judgement, JudgementStatus, judgement_to_json
from assay.model.judging_summary import JudgingSummary
from assay.model.run import (
    AgentSpec,
    DatasetRef,
    MetricSpec,
    RowResult,
    Run,
    RunCounts,
    RunSpec,
    RunState,
    Score,
    ScoreStatus,
)
from assay.reports.words.judging_text import judge_lines, judge_reasons, judging_cost, judging_line
from assay.wire.judging import JUDGING
from assay_orchestrator.summary.judging import JudgingFold


def verdict(key: str = "k", **changes: Any) -> Judgement:
    """Return a judgement."""
    plain: dict[str, Any] = {"judge": "openai:m", "rubric": "quality", "status": JudgementStatus.VALID}
    return Judgement(**plain | {"key": key, "cost_usd": 0.25} | changes)


def failed(metric: str = "quality", *judgements: Judgement, **detail: Any) -> Score:
    """Return a score that fails its row."""
    return Score(metric, ScoreStatus.SCORED, 1.0, passed=False, detail=detail, judgements=judgements)


def row(*scores: Score) -> RowResult:
    """Return a row with these scores."""
    return RowResult("c", 0, 1, "", AgentStatus.SUCCESS, False, scores, None, "")


def test_reasons_are_those_of_what_failed() -> None:
    """A passed score and one without a threshold say nothing; a verdict that is not valid says why."""
    passed = Score("a", ScoreStatus.SCORED, 5.0, passed=True, judgements=(verdict(reasoning="Fine."),))
    free = Score("b", ScoreStatus.SCORED, 5.0, judgements=(verdict(reasoning="Free."),))
    invalid = Score("d", ScoreStatus.ERROR, reason="x", message="no verdict", judgements=(verdict(),))
    plain = Score("e", ScoreStatus.ERROR, reason="no_reference", message="not judged")
    bad = failed("c", verdict(reasoning="Wrong."))
    assert judge_reasons(row(passed, free, bad, invalid, plain)) == ["judge on c: Wrong.", "judge on d: no verdict"]


def test_reasons_and_cost_of_checks() -> None:
    """Checks that hold say nothing and cost as the others do; a jury on a check says its own."""
    judgements = (
        verdict("a", check_index=0, reasoning="Fine."),
        verdict("b", check_index=1, reasoning="No joke."),
        verdict("c", check_index=2, reasoning="Rude."),
        verdict("d", check_index=2, judge="anthropic:n", reasoning="Coarse."),
    )
    checks = [{"passed": True}, {"passed": False}, {"passed": False}, {"passed": None, "reason": "no judge"}]
    stored = row(failed("assertions", *judgements, checks=checks))
    assert judge_reasons(stored) == [
        "judge on assertions: No joke.", "openai:m on assertions: Rude.", "anthropic:n on assertions: Coarse.",
    ]  # fmt: skip
    assert judging_cost(stored) == 1.0


def test_an_empty_answer_is_failed_by_a_rule() -> None:
    """No judge was asked, so none is named."""
    stored = row(failed("quality", verdict(reasoning="The answer is empty.", is_by_rule=True)))
    assert judge_reasons(stored) == ["rule on quality: The answer is empty."]


def test_each_judge_of_a_jury_says_its_own() -> None:
    """One without a valid verdict says why it has none."""
    jury = (
        verdict(judge="openai:m", value=1.0, reasoning="Wrong."),
        verdict(judge="anthropic:n", reason="truncated"),
    )
    reasons = judge_reasons(row(failed("quality", *jury)))
    assert reasons == ["openai:m on quality: Wrong.", "anthropic:n on quality: truncated"]


def test_only_turns_that_fail_give_reasons() -> None:
    """The judgements of the turns stand with the score of the conversation."""
    turns = [{"turn_index": index, "status": "scored", "value": 1.0, "passed": index == 0} for index in range(2)]
    said = [verdict(turn_index=index, reasoning=f"Turn {index}.") for index in range(2)]
    assert judge_reasons(row(failed("quality", *said, turns=turns))) == ["judge on quality: Turn 1."]


@pytest.mark.parametrize(
    ("scores", "cost"),
    [
        ((), None),
        ((failed("a", verdict()),), 0.25),
        ((failed("a", verdict()), failed("b", verdict())), 0.25),
        ((failed("a", verdict("a")), failed("b", verdict("b"))), 0.5),
        ((failed("a", verdict(is_cached=True)),), None),
        ((failed("a", verdict(cost_usd=None)),), None),
        ((failed("a", verdict("a"), canary={"judgements": [judgement_to_json(verdict("b"))]}),), 0.5),
        ((failed("a", verdict("a"), verdict("b", cost_usd=1)),), 1.25),
        ((failed("a", canary=3),), None),
    ],
)
def test_the_cost_of_a_row_is_what_was_paid(scores: tuple[Score, ...], cost: float | None) -> None:
    """A verdict that several metrics rest on counts once, one from the cache not at all, a canary's as well."""
    assert judging_cost(row(*scores)) == cost


def test_a_run_says_who_judges_and_what_was_paid_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    """At its beginning, and when it ends early; a metric that needs no judge makes no line."""
    judge = judge_of("openai", "m")
    for metric, lines in (("quality", ["judge  openai:m, spend cap $2.5"]), ("latency", [])):
        settings = RunSpec(
            "test", AgentSpec("replay"), [MetricSpec(metric)], judges=(judge,), spend_cap_nano_usd=2_500_000_000
        )
        run = Run("r1", settings, DatasetRef("d", "qa", 3), RunState.RUNNING, "", RunCounts(3), "now")
        with make_progress(run, hidden=False, clock=lambda: 0.0) as progress:
            for index in range(2):
                progress.take(replace(row(failed("quality", verdict())), case_index=index))
        output = capsys.readouterr().err.splitlines()
        assert output[1:-1] == lines
        assert output[-1] == "2/3 cases  0.0% passed  judging $0.5000"


def called(key: str, **changes: Any) -> Judgement:
    """Return a judgement from a call."""
    usage = {"fingerprint": "f1", "call_count": 1, "input_tokens": 1000, "output_tokens": 100, "cost_usd": 0.1}
    return verdict(key, **usage | changes)


def cached(key: str, saved: float | None) -> Judgement:
    """Return a cached judgement."""
    nothing = {"input_tokens": None, "output_tokens": None, "cost_usd": None, "call_count": 0}
    return called(key, is_cached=True, saved_usd=saved, **nothing)


def judged_row(*judgements: Judgement) -> RowResult:
    """Return a row whose metrics rest on these judgements."""
    scores = tuple(
        Score(f"m{index}", ScoreStatus.SCORED, value=1.0, judgements=(judgement,))
        for index, judgement in enumerate(judgements)
    )
    return RowResult("c", 0, 1, "", AgentStatus.SUCCESS, True, scores, None, "")


ROWS = [
    judged_row(called("a"), called("b", fingerprint="f0", cost_usd=0.2)),
    judged_row(called("a"), called("a")),
    judged_row(cached("c", 0.3), cached("d", None)),
    judged_row(called("e", status=JudgementStatus.INVALID, call_count=2, cost_usd=0.4, flags=("addresses_judge",),
                      refused_parameters=("temperature", "schema"))),
    judged_row(called("f", is_by_rule=True, call_count=0, input_tokens=None, output_tokens=None, cost_usd=None)),
    judged_row(
        called("g", cost_usd=None, flags=("punctuation_only", "addresses_judge"), refused_parameters=("temperature",))
    ),
    judged_row(),
]  # fmt: skip
SUMMED = JudgingSummary(
    verdict_count=8,
    asked_count=5,
    cached_count=2,
    by_rule_count=1,
    failed_count=1,
    input_tokens=5000,
    output_tokens=500,
    cost_usd=0.8,
    saved_usd=0.3,
    unpriced_count=1,
    fingerprints=("f0", "f1"),
    flag_counts={"addresses_judge": 2, "punctuation_only": 1},
    refused_parameter_counts={"schema": 1, "temperature": 2},
    hit_rate=2 / 7,
)


def folded(rows: list[RowResult]) -> JudgingSummary | None:
    """Return the judging summary of rows."""
    fold = JudgingFold()
    for stored in rows:
        fold.add(stored)
    return fold.result()


def test_verdicts_are_counted_and_added_up() -> None:
    """One that several metrics of a row rest on counts once; what a cached one had cost is no cost."""
    assert folded(ROWS) == SUMMED


def test_verdicts_of_checks_are_counted() -> None:
    """Each judged check of a case rests on one of its own; those of a jury count for their judges."""
    jury = [called("c", judge="a", check_index=3), called("d", judge="b", check_index=3)]
    judgements = (called("a", check_index=0), called("b", check_index=2), *jury)
    score = Score("assertions", ScoreStatus.SCORED, value=1.0, judgements=judgements)
    summary = folded([row(score)])
    assert summary is not None
    assert summary.verdict_count == 4
    assert summary.cost_usd == pytest.approx(0.4)
    assert [(juror.judge, juror.verdict_count) for juror in summary.jurors] == [("a", 1), ("b", 1)]


def test_the_order_of_rows_does_not_matter() -> None:
    """To the last bit, as for everything in a summary."""
    rng = random.Random(1)
    rows = [judged_row(called(str(n), cost_usd=rng.random())) for n in range(200)]
    first = folded(rows)
    rng.shuffle(rows)
    assert folded(rows) == first


def test_the_summary_crosses_the_wire_as_it_is() -> None:
    """Flags with their counts too."""
    assert JUDGING.from_wire(JUDGING.to_wire(SUMMED)) == SUMMED


def test_without_verdicts_there_is_nothing() -> None:
    """None, not zeros; a verdict that was never requested is none."""
    assert folded([judged_row(), judged_row(verdict(""))]) is None


def test_a_line_for_people() -> None:
    """What was asked, what the cache gave, what it cost and saved; nothing is said of what there is none of."""
    assert judging_line(SUMMED) == (
        "verdicts  8: 5 asked, 2 from the cache (28.6%), 1 by rule, 1 not valid  5,500 tokens  $0.8000  "
        "1 without a price  the cache saved $0.3000  flagged: 2 addresses_judge, 1 punctuation_only  "
        "asked without what the model refuses: schema (1), temperature (2)"
    )
    cached_alone = "verdicts  1: 0 asked, 1 from the cache (100.0%)  0 tokens"
    assert judging_line(JudgingSummary(verdict_count=1, cached_count=1, hit_rate=1.0)) == cached_alone
    lost = JudgingSummary(verdict_count=1, asked_count=1, cost_usd=0.0056, account_usd=0.0141, unknown_usd=0.0085)
    assert judging_line(lost) == (
        "verdicts  1: 1 asked  0 tokens  $0.0056  account $0.0141, of which $0.0085 are set aside for calls whose "
        "outcome is unknown (the bill may have less)"
    )
    spec = RunSpec("r", AgentSpec("replay"), [MetricSpec("judge_score", rubric="tone")])
    capped = replace(spec, judges=(judge_of("openai", "m"),), spend_cap_nano_usd=2_500_000_000)
    assert judge_lines(capped) == ["judge  openai:m, rubric tone, spend cap $2.5"]
    assert judge_lines(replace(spec, metrics=[], judges=(judge_of("replay"),))) == ["judge  replay"]
    several = (judge_of("openai", "m"), judge_of("anthropic", "n", name="strict", batch=True))
    assert judge_lines(replace(capped, judges=several)) == [
        "judge  judge  openai:m, rubric tone", "judge  strict  anthropic:n, in batches", "spend cap  $2.5"
    ]  # fmt: skip
