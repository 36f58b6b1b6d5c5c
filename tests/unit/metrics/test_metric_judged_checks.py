"""Checks by a judge: what it is shown, and what its verdict comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.judging.rubric_file import read_rubric
from assay.metrics.assertions import assertion_problem
from assay.metrics.checks.judged_checks import JUDGED_CHECKS, check_named, check_passages, criterion_of
from assay.metrics.core.evidence import wanted_rubrics
from assay.metrics.core.score import JudgeEvidence, Row
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus
from assay.model.case import Assertion, Case, Turn
from assay.model.judgement import Judgement, JudgementStatus
from assay.model.run import ScoreStatus
from assay_orchestrator.evidence.verdict_wire import JudgedRow, check_use, grade_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.metrics.core.score import Metric
    from assay.model.run import Score

RUBRIC = Assertion("llm-rubric", "is polite")
CONTEXTS = ("The gate opens at nine.",)


def case_of(*checks: Assertion, **fields: Any) -> Case:
    """A case with these checks and a reference of its own."""
    return Case("case", (Turn("When?", references=("At nine.",)),), assertions=checks, **fields)


def said(score: Any, **fields: Any) -> JudgeEvidence:
    """A verdict with this score."""
    judgement = Judgement("j", "r", JudgementStatus.VALID, reasoning="r", **fields)
    return JudgeEvidence({"reasoning": "r", "score": score}, judgement=judgement)


def scored(metric: Callable[..., Metric], check: Assertion, evidence: JudgeEvidence, **fields: Any) -> Score:
    """The score of a row with one check and this verdict on it."""
    return metric("assertions").score(
        Row(case_of(check, **fields), AgentResponse(text="a"), verdicts={"check:0": evidence})
    )


@pytest.mark.parametrize("kind", JUDGED_CHECKS)
def test_the_rubrics_are_rubrics(kind: str) -> None:
    """Each is valid, is named as its check says, and asks for one score from 0 to 1."""
    rubric = read_rubric(JUDGED_CHECKS[kind].rubric_yaml)
    assert rubric.name == JUDGED_CHECKS[kind].rubric
    assert (rubric.minimum, rubric.maximum, [criterion.name for criterion in rubric.criteria]) == (0, 1, ["score"])


@pytest.mark.parametrize(
    ("check", "score", "holds", "value"),
    [
        (RUBRIC, 0.5, True, 0.5),
        (RUBRIC, 0.49, False, 0.49),
        (Assertion("llm-rubric", "x", 0.8), 0.7, False, 0.7),
        (Assertion("llm-rubric", "x", 0.8), 0.8, True, 0.8),
        (Assertion("llm-rubric", "x", negate=True), 1, False, 0.0),
        (Assertion("llm-rubric", "x", negate=True), 0.2, True, 0.8),
        (Assertion("model-graded-closedqa", "x"), 1, True, 1.0),
        (Assertion("g-eval", "x"), 0.6, False, 0.6),
        (Assertion("factuality", "At nine."), 1, True, 1.0),
        (Assertion("model-graded-factuality", "At nine."), 0, False, 0.0),
        (Assertion("answer-relevance"), 0.7, True, 0.7),
        (Assertion("context-faithfulness"), 0.6, False, 0.6),
    ],
)
def test_a_verdict_becomes_an_outcome(
    metric: Callable[..., Metric], check: Assertion, score: float, holds: bool, value: float
) -> None:
    """Score and threshold decide, never a word of the judge's on whether the check holds."""
    assert assertion_problem(check) == ""
    scored_row = scored(metric, check, said(score, key="k"), contexts=CONTEXTS)
    assert scored_row.passed is holds
    assert scored_row.value == pytest.approx(value)
    (judgement,) = scored_row.judgements
    assert (judgement.check_index, judgement.key, judgement.reasoning) == (0, "k", "r")


@pytest.mark.parametrize("score", [None, True, "1", 1.2, -0.1, float("nan"), 85])
def test_a_verdict_that_is_none_decides_nothing(metric: Callable[..., Metric], score: object) -> None:
    """It is an error of the row, never a 0 and never a pass."""
    scored_row = scored(metric, RUBRIC, said(score))
    assert (scored_row.status, scored_row.value, scored_row.passed, scored_row.reason) == (
        ScoreStatus.ERROR,
        None,
        None,
        "invalid_verdict",
    )


def test_why_there_is_no_verdict(metric: Callable[..., Metric]) -> None:
    """Without a judge or passages the check stays open; a failed call is an error that can be retried."""
    unasked = JudgeEvidence(None, skipped="judge_not_configured")
    assert scored(metric, RUBRIC, unasked).reason == "not made: llm-rubric (no judge)"
    failed = scored(metric, RUBRIC, JudgeEvidence(None, error="refused", message="m"))
    assert (failed.status, failed.reason, failed.detail["checks"][0]["message"]) == (ScoreStatus.ERROR, "refused", "m")
    bare = scored(metric, Assertion("context-faithfulness"), unasked)
    assert bare.reason == "not made: context-faithfulness (the case has no passages)"


def test_a_jury_decides_by_its_mean(metric: Callable[..., Metric]) -> None:
    """Each judge's score stands beside the mean; with one valid verdict there is none."""
    refused = JudgeEvidence(None, error="refused", judgement=Judgement("j", "r", JudgementStatus.UNAVAILABLE))
    jury = JudgeEvidence(None, jury=(said(1.0), said(0.2), refused))
    score = scored(metric, RUBRIC, jury)
    assert score.value == pytest.approx(0.6)
    assert score.passed is True
    assert [judgement.value for judgement in score.judgements] == [1.0, 0.2, None]
    assert (score.detail["checks"][0]["voted"], score.judgements[2].reason) == (2, "refused")
    alone = scored(metric, RUBRIC, JudgeEvidence(None, jury=(said(1.0), said(None))))
    assert (alone.status, alone.reason) == (ScoreStatus.ERROR, "too_few_judges")


def test_only_judged_checks_ask_for_verdicts(metric: Callable[..., Metric]) -> None:
    """Each check has a verdict of its own; one that lacks passages, and a failed answer, ask for none."""
    case = case_of(Assertion("contains", "a"), RUBRIC, Assertion("context-faithfulness"), RUBRIC)
    metrics = [metric("assertions"), metric("quality")]
    assert wanted_rubrics(metrics, case, AgentResponse(text="a")) == ("check:1", "check:3", "quality")
    error = AgentError(AgentErrorKind.TIMEOUT, "no answer")
    assert wanted_rubrics(metrics, case, AgentResponse(status=AgentStatus.ERROR, error=error)) == ()
    assert check_named(case, "check:1") == RUBRIC
    assert [check_named(case, name) for name in ("check:0", "check:9", "check:x", "quality", "check:")] == [None] * 5


@pytest.mark.parametrize(
    ("check", "criterion", "reference", "contexts"),
    [
        (RUBRIC, "is polite", "At nine.", CONTEXTS),
        (Assertion("llm-rubric", {"is": ["polite"]}), '{"is": ["polite"]}', "At nine.", CONTEXTS),
        (Assertion("factuality", "At eight."), "", "At eight.", CONTEXTS),
        (Assertion("answer-relevance", "not shown"), "", "", CONTEXTS),
        (Assertion("context-faithfulness"), "", "", CONTEXTS),
    ],
)
def test_what_the_judge_is_shown(check: Assertion, criterion: str, reference: str, contexts: tuple[str, ...]) -> None:
    """The text is the criterion beside the case's reference, or a reference itself; the rubric holds none of it."""
    case = case_of(check, contexts=CONTEXTS)
    use = check_use(case, "check:0")
    assert use is not None
    request = grade_request(JudgedRow(case, (), 0, 1), AgentResponse(text="a"), use)
    assert request is not None
    assert (request.rubric, request.rubric_yaml) == (use.name, JUDGED_CHECKS[check.type].rubric_yaml)
    shown = (request.question, request.answer, request.criterion, request.reference)
    assert shown == ("When?", "a", criterion, reference)
    assert tuple(request.contexts) == contexts
    assert check_use(case, "quality") is None


def test_passages_of_a_promptfoo_test() -> None:
    """Passages are in the variable `context`, as a text or as a list."""
    assert check_passages(case_of(variables={"context": "p"})) == ("p",)
    assert check_passages(case_of(variables={"context": ["p", 3, " ", "q"]})) == ("p", "q")
    assert check_passages(case_of(variables={"context": "p"}, contexts=("own",))) == ("own",)
    assert check_passages(case_of(variables={"context": {"a": 1}})) == ()


@pytest.mark.parametrize("value", [None, "", " \n", [], {}, True])
def test_a_criterion_is_needed(value: object) -> None:
    """Without a criterion the judge would grade by nothing; types without a value need none."""
    assert assertion_problem(Assertion("llm-rubric", value)) == "llm-rubric needs a text as its value"
    assert assertion_problem(Assertion("answer-relevance", value)) == ""
    assert criterion_of(Assertion("answer-relevance", "x")) == ""
