"""The verdict of a run: from gates, thresholds and errors to one word and an exit status."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.gates.run_verdict import criteria_of, with_verdict
from assay.judging.canaries import with_rates
from assay.metrics import METRICS, build_metric, complete_parameters
from assay.metrics.core.row_verdict import row_message, row_verdict
from assay.metrics.core.score import JudgeEvidence, Metric, Row, made_advisory
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Source,
    ToolCall,
    Usage,
)
from assay.model.canary_summary import CanaryKind, CanarySummary, CanaryTally
from assay.model.case import Assertion, Case, ExpectedTool, Turn
from assay.model.judging_summary import JudgingSummary
from assay.model.run import AgentSpec, MetricSpec, RowResult, RunSpec, RunSummary, RunVerdict
from assay.wire.summary import SUMMARY
from assay_orchestrator.summary.run_summary import SummaryRules, summarise

RIGHT, WRONG, FAILED, SLOW = "right", "wrong", "failed", "slow"
"""How a row fares: the agent raises, or its time is up."""
GOOD = {"reasoning": "r", "accuracy": 1.0, "completeness": 1.0, "relevance": 1.0}
NO_JUDGE = JudgeEvidence(None, skipped="judge_not_configured", message="no judge")


def metrics(*names: str, **named: dict[str, Any]) -> list[Metric]:
    """Metrics by name, with parameters where some are given."""
    wanted = {**{name: {} for name in names}, **named}
    return [
        build_metric(MetricSpec(name, complete_parameters(name, parameters, where="m")))
        for name, parameters in wanted.items()
    ]


def row(fate: str, chosen: Sequence[Metric], index: int, verdict: JudgeEvidence = NO_JUDGE) -> RowResult:
    """The stored row of a case that fared so."""
    error = {
        FAILED: AgentError(AgentErrorKind.RAISED, "401 invalid key"),
        SLOW: AgentError(AgentErrorKind.TIMEOUT, "no answer within 30 s"),
    }.get(fate)
    response = AgentResponse(
        status=AgentStatus.ERROR if error else AgentStatus.SUCCESS,
        text="" if error else fate,
        error=error,
        latency_ms=5.0 if error else 1000.0,
    )
    turn = Turn("q", references=("right",))
    verdicts = {"structured": verdict, "quality": verdict}
    scores = tuple(score_row(chosen, Row(Case(f"c{index}", (turn,)), response, verdicts=verdicts)))
    passed, reason = row_verdict(response.status, scores), row_message(response, scores)
    return RowResult(
        f"c{index}", index, 1, "", response.status, passed, scores, response.latency_ms, reason, response=response
    )


def summary_of(fates: Sequence[str], chosen: list[Metric], gates: Sequence[str] = (), **bounds: Any) -> RunSummary:
    """The summary of rows that fared so, as it comes back from the store."""
    rows = [row(fate, chosen, index) for index, fate in enumerate(fates)]
    return SUMMARY.from_json(dataclasses.asdict(summarise(rows, chosen, gates, rules=SummaryRules(**bounds))))


def verdict_of(fates: Sequence[str], chosen: list[Metric], gates: Sequence[str] = (), **bounds: Any) -> RunSummary:
    """The summary with the verdict on them."""
    summary = summary_of(fates, chosen, gates, **bounds)
    return with_verdict(summary)


HALF = [RIGHT, WRONG] * 10
MOST_FAIL = [RIGHT] * 5 + [FAILED] * 15
ALL_FAIL = [FAILED] * 20

TABLE = {
    "all calls fail, gate on latency": (
        ALL_FAIL, ["latency"], ["latency.p95 < 4"], {}, "INCOMPLETE", 3, "the agent failed on 20 of 20 rows",
    ),
    "all calls fail, gate on the pass rate": (
        ALL_FAIL, ["exact_match"], ["pass_rate >= 0.85"], {}, "FAIL", 1, "the agent failed on 20 of 20 rows",
    ),
    "15 of 20 fail, survivors perfect": (
        MOST_FAIL, ["rouge"], ["rouge >= 0.9"], {}, "INCOMPLETE", 3, "the agent failed on 15 of 20 rows",
    ),
    "the same with a bound of 80%": (
        MOST_FAIL, ["rouge"], ["rouge >= 0.9"], {"max_agent_errors": 0.8}, "PASS", 0, "mean over 5 of 20 rows",
    ),
    "a missed threshold without gates": (
        HALF, ["exact_match"], [], {}, "FAIL", 1, "exact_match >= 0.85 does not hold: 0.5",
    ),
    "a missed threshold beside a gate that holds": (
        HALF, ["exact_match"], ["pass_rate >= 0.4"], {}, "PASS", 0,
        "threshold missed, but no gate asks for it: exact_match 0.5 < 0.85",
    ),
    "only judged metrics, no judge": (
        [RIGHT] * 4, ["judge_score", "quality"], [], {}, "NO_DATA", 3, "no metric was computed on any row",
    ),
    "only latency without a threshold": (
        [RIGHT] * 4, ["latency"], [], {}, "NO_CRITERIA", 0, "no gate and no threshold decides",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_the_table_of_verdicts(case: str) -> None:
    """Each case has its word, its exit status, and a sentence on the console that says why."""
    fates, names, gates, bounds, status, exit_status, sentence = TABLE[case]
    verdict = verdict_of(fates, metrics(*names), gates, **bounds)
    assert (verdict.verdict, verdict.exit_status) == (status, exit_status)
    assert any(sentence in text for text in (*verdict.reasons, *verdict.notes))


ONLY_LATENCY = ["latency.p95 < 4"]
UNMEASURED = {
    "a judged threshold without a judge": (
        metrics("exact_match", "judge_score"), [], {},
        "INCOMPLETE", "1 of 2 thresholds could not be computed: judge_score (no judge)", "",
    ),
    "the same, optional": (
        metrics("exact_match", "judge_score"), [], {"optional": {"judge_score"}},
        "PASS", "the threshold holds", "judge_score not computed: no judge",
    ),
    "two causes": (
        metrics("exact_match", "judge_score", "quality", "mrr"), [], {},
        "INCOMPLETE",
        "3 of 4 thresholds could not be computed: judge_score, quality (no judge), mrr (no expected sources)", "",
    ),
    "the only threshold": (
        metrics("judge_score", "latency"), [], {},
        "INCOMPLETE", "the only threshold could not be computed: judge_score (no judge)", "",
    ),
    "the only threshold, optional": (
        metrics("judge_score", "latency"), [], {"optional": {"judge_score"}},
        "NO_CRITERIA", "no gate and no threshold decides", "judge_score not computed: no judge",
    ),
    "nothing computed, optional": (
        metrics("judge_score"), [], {"optional": {"judge_score"}},
        "NO_DATA", "no metric was computed on any row: judge_score (no judge)", "",
    ),
    "no row decided, another gate holds": (
        metrics("hit_rate", "latency"), ONLY_LATENCY, {"deciding": {"hit_rate"}},
        "INCOMPLETE", "no row was decided: hit_rate (no expected sources)", "",
    ),
    "no row decided by an optional metric": (
        metrics("hit_rate", "latency"), ONLY_LATENCY, {"deciding": {"hit_rate"}, "optional": {"hit_rate"}},
        "PASS", "the gate holds", "hit_rate not computed: no expected sources",
    ),
    "no metric decides rows": (metrics("mrr", "latency"), ONLY_LATENCY, {}, "PASS", "the gate holds", ""),
    "a gate on an optional metric": (
        metrics("exact_match", "judge_score"), ["judge_score > 0.75"], {"optional": {"judge_score"}},
        "INCOMPLETE", "judge_score > 0.75 could not be computed: judge_score was computed on no row (no judge)", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNMEASURED)
def test_what_was_asked_for_and_never_measured(case: str) -> None:
    """It is no evidence, and the sentence names the cause; optional metrics are left out with a line."""
    chosen, gates, rules, status, reason, note = UNMEASURED[case]
    verdict = verdict_of([RIGHT] * 4, chosen, gates, **{name: frozenset(names) for name, names in rules.items()})
    assert (verdict.verdict, verdict.reasons[0][: len(reason)]) == (status, reason)
    assert note in ("", *verdict.notes)


def test_which_metrics_decide_rows() -> None:
    """What a metric says of itself is what it does on an answer that it can score, with a threshold and without."""
    settings = [
        MetricSpec(f"{kind}_{threshold}", complete_parameters(kind, parameters, where="m"), kind)
        for kind in ("exact_match", "contains", "latency", "tokens", "rouge", "mrr", "hit_rate", "coverage", "sources")
        for threshold in (None, 0.5)
        if (parameters := {**METRICS[kind].info.example, "threshold": threshold})
    ]
    case = Case("c", (Turn("q", references=("right",), expected_sources=("a",)),))
    usage = Usage(input_tokens=1, output_tokens=1)
    response = AgentResponse(text="right", latency_ms=1.0, usage=usage, sources=(Source(title="a"),))
    scores = score_row([build_metric(setting) for setting in settings], Row(case, response))
    deciding = SummaryRules.of(RunSpec("r", AgentSpec("replay"), settings)).deciding
    assert {score.metric for score in scores if score.passed is not None} == deciding


@pytest.mark.parametrize(("invalid", "status"), [(1, "PASS"), (50, "PASS"), (51, "INCOMPLETE"), (1000, "INCOMPLETE")])
@pytest.mark.parametrize("gates", [[], ["judge_score > 0.75"], ["pass_rate >= 0.9"]])
def test_a_few_invalid_replies_of_a_judge_decide_nothing(invalid: int, status: str, gates: list[str]) -> None:
    """Up to 5 % of the rows are decided by the rest, counted and shown; with more nothing is decided."""
    chosen = metrics("judge_score")
    good, bad = JudgeEvidence(GOOD), JudgeEvidence(None, text="sorry", error="invalid_verdict")
    rows = [row(RIGHT, chosen, index, bad if index < invalid else good) for index in range(1000)]
    summary = summarise(rows, chosen, gates)
    assert summary.verdict == status
    assert summary.metrics[0].own_error_count == invalid
    shown = " ".join((*summary.reasons, *summary.notes))
    assert f"{1000 - invalid:,} of 1,000 rows" in shown or f"{invalid:,} of 1,000 rows" in shown


@pytest.mark.parametrize("gates", [[], ["exact_match >= 0.9"], ["judge_score > 0.75"]])
@pytest.mark.parametrize("optional", [False, True])
def test_a_metric_that_fails_on_too_many_rows(gates: list[str], optional: bool) -> None:
    """It makes the run incomplete, gated or not, unless it is optional and no gate of the spec is on it."""
    chosen = metrics("exact_match", "judge_score")
    rules = SummaryRules(optional=frozenset({"judge_score"} if optional else ()))
    bad = JudgeEvidence(None, text="sorry", error="invalid_verdict")
    rows = [row(RIGHT, chosen, index, bad) for index in range(20)]
    if optional:
        rows = [left_to_others(each, rules.optional) for each in rows]
    verdict = summarise(rows, chosen, gates, rules=rules)
    sentence = "judge_score could not be computed on 20 of 20 rows, more than max_metric_errors (5%)"
    holds = optional and gates != ["judge_score > 0.75"]
    assert verdict.verdict == ("PASS" if holds else "INCOMPLETE")
    if not holds:
        assert sum(sentence in reason for reason in verdict.reasons) == 1


@pytest.mark.parametrize("gates", [[], ["exact_match >= 0.9"], ["exact_match >= 0.9", "judge_score > 0.75"]])
def test_a_run_that_fails_names_its_gaps_too(gates: list[str]) -> None:
    """A missed gate does not hide a metric that failed everywhere; it is said once."""
    chosen = metrics("exact_match", "judge_score")
    bad = JudgeEvidence(None, text="sorry", error="invalid_verdict")
    verdict = summarise([row("wrong", chosen, index, bad) for index in range(20)], chosen, gates)
    sentence = "judge_score could not be computed on 20 of 20 rows, more than max_metric_errors (5%)"
    assert verdict.verdict == "FAIL"
    assert sum(sentence in note for note in (*verdict.reasons, *verdict.notes)) == 1


def test_the_verdict_says_nothing_twice() -> None:
    """Failed calls that are a reason are no note as well; all missed thresholds share a note."""
    chosen = metrics("exact_match", "rouge", rouge={"threshold": 0.9})
    rows = [row(FAILED if index < 2 else "wrong", chosen, index) for index in range(20)]
    verdict = summarise(rows, chosen, ["pass_rate >= 0"])
    assert verdict.reasons == ("the agent failed on 2 of 20 rows, more than max_agent_errors (5%)",)
    assert verdict.notes == ("thresholds missed, but no gate asks for them: exact_match 0 < 0.85, rouge 0 < 0.9",)


def test_a_threshold_beside_gates_says_that_it_was_not_computed() -> None:
    """It decides nothing, and a reader of the verdict must know that it was never measured."""
    chosen = metrics("exact_match", "judge_score")
    verdict = summarise([row(RIGHT, chosen, 0)], chosen, ["exact_match >= 0.5"])
    assert (verdict.verdict, verdict.notes) == ("PASS", ("judge_score not computed: no judge",))
    gated = summarise([row(RIGHT, chosen, 0)], chosen, ["judge_score > 0.75"])
    assert (gated.verdict, gated.notes) == ("INCOMPLETE", ())


def left_to_others(result: RowResult, optional: frozenset[str]) -> RowResult:
    """The row as a run with these optional metrics stores it."""
    scores = made_advisory(result.scores, optional)
    return dataclasses.replace(result, scores=scores, passed=row_verdict(result.status, scores), message="")


@pytest.mark.parametrize(
    ("sides", "limit", "accepts", "status"),
    [
        ([(CanaryKind.KNOWN_BAD, 19, 1)], 0.1, False, "PASS"),
        ([(CanaryKind.KNOWN_BAD, 2, 2)], 0.1, False, "INCOMPLETE"),
        ([(CanaryKind.KNOWN_BAD, 2, 2)], 0.1, True, "PASS"),
        ([(CanaryKind.KNOWN_BAD, 1, 1), (CanaryKind.KNOWN_GOOD, 1, 1)], 0.1, False, "PASS"),
        ([(CanaryKind.KNOWN_BAD, 2, 1), (CanaryKind.INJECTION, 2, 1)], 0.1, False, "INCOMPLETE"),
        ([(CanaryKind.KNOWN_GOOD, 20, 4)], 0.1, False, "PASS"),
        ([(CanaryKind.KNOWN_GOOD, 20, 6)], 0.1, False, "INCOMPLETE"),
        ([(CanaryKind.KNOWN_GOOD, 20, 6)], 0.3, False, "PASS"),
        ([(CanaryKind.KNOWN_GOOD, 200, 30)], 0.1, False, "INCOMPLETE"),
        ([(CanaryKind.KNOWN_GOOD, 200, 25)], 0.1, False, "PASS"),
    ],
)
def test_failed_canaries_make_a_run_incomplete(
    sides: list[tuple[CanaryKind, int, int]], limit: float, accepts: bool, status: str
) -> None:
    """Per side: two wrong of fewer than 20, else Wilson's lower bound above the limit; one wrong is a note."""
    tallies = tuple(CanaryTally(*side) for side in sides)
    canaries = with_rates(CanarySummary(tallies, limit=limit, is_accepted=accepts))
    summary = dataclasses.replace(
        summary_of([RIGHT] * 4, metrics("exact_match")), judging=JudgingSummary(verdict_count=4, canaries=(canaries,))
    )
    verdict = with_verdict(SUMMARY.from_json(dataclasses.asdict(summary)))
    assert verdict.verdict == status
    assert canaries.message in (verdict.reasons if status == "INCOMPLETE" else verdict.notes)
    missed = summary_of([WRONG] * 4, metrics("exact_match"))
    assert with_verdict(dataclasses.replace(missed, judging=summary.judging)).verdict is RunVerdict.FAIL


@pytest.mark.parametrize(
    ("failed", "bounds", "status"),
    [
        (1, {}, "PASS"),
        (2, {}, "INCOMPLETE"),
        (1, {"max_agent_errors": 0.0}, "INCOMPLETE"),
        (0, {"max_agent_errors": 0.0}, "PASS"),
        (10, {"max_agent_errors": 0.5}, "PASS"),
        (11, {"max_agent_errors": 0.5}, "INCOMPLETE"),
        (20, {"max_agent_errors": 1.0}, "INCOMPLETE"),
    ],
)
@pytest.mark.parametrize("gate", ["agent_errors <= 1", "pass_rate >= 0", "exact_match >= 0"])
def test_the_bound_on_agent_errors(failed: int, bounds: dict[str, float], status: str, gate: str) -> None:
    """As many as the bound allows, no more, whatever is gated; a run in which every call failed never passes."""
    fates = [FAILED] * failed + [RIGHT] * (20 - failed)
    assert verdict_of(fates, metrics("exact_match", "latency"), [gate], **bounds).verdict == status


def test_a_threshold_on_survivors_is_incomplete_too() -> None:
    """Without gates, a mean over the answers that came is no evidence after too many agent errors."""
    verdict = verdict_of(MOST_FAIL, metrics(rouge={"threshold": 0.9}))
    assert verdict.verdict is RunVerdict.INCOMPLETE
    (criterion,) = criteria_of(summary_of(MOST_FAIL, metrics(rouge={"threshold": 0.9})))
    assert criterion.message == "rouge was computed on 5 of 20 rows only: the agent failed on too many"


def test_time_outs_are_noted_on_a_gate_on_latency() -> None:
    """Calls that timed out are in no figure of latency and beside each of them."""
    summary = summary_of([SLOW] + [RIGHT] * 19, metrics("latency"), ["latency.p95 < 4"])
    assert (summary.latency.answer_count, summary.latency.max_ms, summary.latency.timeout_count) == (19, 1000.0, 1)
    assert summary.gates[0].note == "p95 over 19 of 20 rows; 1 timed out"
    assert summary.verdict == "PASS"


def test_a_gate_decides_alone() -> None:
    """A gate that fails is FAIL whatever the thresholds say, and before what is incomplete."""
    assert verdict_of(HALF, metrics("exact_match"), ["pass_rate >= 0.6"]).verdict is RunVerdict.FAIL
    assert verdict_of([RIGHT], metrics("exact_match"), ["pass_rate > 1"]).verdict is RunVerdict.FAIL
    verdict = verdict_of(HALF, metrics("exact_match", "mrr"), ["mrr >= 0", "pass_rate >= 0.6"])
    assert verdict.verdict is RunVerdict.FAIL
    verdict = verdict_of(HALF, metrics("exact_match", "mrr"), ["mrr >= 0", "pass_rate >= 0.4"])
    assert (verdict.verdict, verdict.reasons[0]) == (
        RunVerdict.INCOMPLETE,
        "mrr >= 0 could not be computed: mrr was computed on no row (no expected sources)",
    )


def test_a_target_never_decides() -> None:
    """A missed goal is reported, and the run passes."""
    assert verdict_of(HALF, metrics("exact_match"), ["pass_rate >= 0.5, goal >= 0.9"]).verdict == "PASS"


def test_records_that_were_left_out_make_a_run_incomplete() -> None:
    """A dataset of which a part could not be read gives no pass; a failure is a failure all the same."""
    verdict = verdict_of([RIGHT], metrics("exact_match"), left_out=2)
    assert (verdict.verdict, verdict.reasons) == (RunVerdict.INCOMPLETE, ("2 bad records of the dataset left out",))
    assert verdict_of([WRONG], metrics("exact_match"), left_out=2).verdict is RunVerdict.FAIL


def test_checks_that_could_not_be_made_make_a_run_incomplete() -> None:
    """A case whose checks are not all made is no evidence of a pass; a gate that fails fails all the same."""
    chosen = metrics("assertions")
    checks = (Assertion("contains", "right"), Assertion("llm-rubric", "is kind"))
    rows = [checked("right", checks, chosen, 0), *(checked("right", checks[:1], chosen, n) for n in range(1, 30))]
    summary = summarise(rows, chosen, ["pass_rate >= 1", "assertions >= 1"])
    assert (summary.pass_rate, summary.decided_count, summary.row_count) == (1.0, 29, 30)
    assert [gate.outcome for gate in summary.gates] == ["pass", "pass"]
    verdict = summary
    assert (verdict.verdict, verdict.exit_status) == ("INCOMPLETE", 3)
    assert verdict.reasons == ("1 of 31 checks are not made: llm-rubric 1 (no judge)",)
    failed = summarise([*rows, checked("wrong", checks, chosen, 30)], chosen, ["pass_rate >= 1"])
    assert failed.verdict is RunVerdict.FAIL
    assert failed.reasons[1] == "2 of 33 checks are not made: llm-rubric 2 (no judge)"


def checked(text: str, checks: tuple[Assertion, ...], chosen: list[Metric], index: int) -> RowResult:
    """The stored row of an answer with checks of the case."""
    case, response = Case(f"c{index}", (Turn("q"),), assertions=checks), AgentResponse(text=text)
    scores = tuple(score_row(chosen, Row(case, response)))
    passed, reason = row_verdict(response.status, scores), row_message(response, scores)
    return RowResult(case.case_id, index, 1, "", response.status, passed, scores, 1.0, reason)


def test_unreported_tool_calls_make_a_run_incomplete() -> None:
    """A gate that holds on the answers that report their calls does not pass the run for those that do not."""
    chosen = metrics("tool_calls")
    case = Case("c", (Turn("q", expected_tools=(ExpectedTool("search"),)),))

    def called(calls: tuple[ToolCall, ...] | None, index: int) -> RowResult:
        scores = tuple(score_row(chosen, Row(case, AgentResponse(tool_calls=calls))))
        verdict = row_verdict(AgentStatus.SUCCESS, scores)
        return RowResult(f"c{index}", index, 1, "", AgentStatus.SUCCESS, verdict, scores, 1.0, "")

    rows = [called(None, 0), *(called((ToolCall("search"),), number) for number in range(1, 30))]
    verdict = summarise(rows, chosen, ["pass_rate >= 1", "tool_calls >= 1"])
    assert (verdict.verdict, verdict.exit_status) == ("INCOMPLETE", 3)
    (reason,) = verdict.reasons
    assert reason.startswith("the answers of 1 row do not report their tool calls")
    known = [called((), 0), *rows[1:]]
    assert summarise(known, chosen, ["tool_calls >= 1"]).verdict is RunVerdict.FAIL


def test_a_partial_summary_has_no_verdict() -> None:
    """While rows are missing a run neither passes nor fails."""
    for fates in ([RIGHT], [WRONG]):
        summary = with_verdict(dataclasses.replace(summary_of(fates, metrics("exact_match")), partial=True))
        assert summary.verdict == "INCOMPLETE"


@given(st.lists(st.sampled_from([RIGHT, WRONG, FAILED, SLOW]), max_size=25), st.floats(0, 1), st.booleans())
def test_no_run_passes_without_evidence(fates: list[str], bound: float, gated: bool) -> None:
    """PASS means that a criterion was computed, that none failed, and that no more calls failed than are allowed."""
    chosen = metrics("exact_match", "latency", rouge={"threshold": 0.1})
    gates = ["latency < 4", f"exact_match >= {bound!r}"] if gated else []
    summary = summary_of(fates, chosen, gates)
    outcomes = {criterion.outcome.value for criterion in criteria_of(summary)}
    if summary.verdict == "PASS":
        assert outcomes == {"pass"}
        assert (summary.agent_error_count or 0) <= 0.05 * len(fates)
    if "fail" in outcomes:
        assert summary.verdict == "FAIL"
    if fates and set(fates) <= {FAILED, SLOW}:
        assert summary.verdict in ("FAIL", "INCOMPLETE")
