"""Checks that were not made are no passes; checks by embeddings have promptfoo's rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics import build_metric, complete_parameters
from assay.metrics.assertions import assertion_problem, why_unmade
from assay.metrics.checks.answer_checks import CHECKS
from assay.metrics.checks.judged_checks import JUDGED_CHECKS
from assay.metrics.checks.similar_checks import SIMILAR_CHECKS
from assay.metrics.checks.unmade_checks import NEVER_MADE, not_made
from assay.metrics.core.embedding import EmbeddingSettings
from assay.metrics.core.evidence import WantedTexts, wanted_texts
from assay.metrics.core.info import DEFAULT_MODEL
from assay.metrics.core.score import EmbeddingEvidence, Metric, Row
from assay.metrics.core.similarity import cosine
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import AgentResponse, Usage
from assay.model.case import Assertion, Case, Turn
from assay.model.run import MetricSpec, Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

VECTORS = {"same": [1.0, 0.0], "near": [0.8, 0.6], "far": [0.0, 1.0], "against": [-1.0, 0.0], "long": [2.0, 0.0]}
DEFAULT = EmbeddingSettings(DEFAULT_MODEL)
HOLDS, FAILS = Assertion("contains", "a"), Assertion("contains", "z")
OPEN = Assertion("llm-rubric", "is kind")


def row_of(checks: Sequence[Assertion], response: AgentResponse | None = None, **case: Any) -> Row:
    """A row whose answer is "a" with the vector (1, 0), and every text its own."""
    vectors = {text: np.asarray(vector, dtype=np.float32) for text, vector in VECTORS.items()}
    answer = np.asarray([1.0, 0.0], dtype=np.float32)
    cosines = {text: cosine(answer, vector) for text, vector in vectors.items()}
    evidence = EmbeddingEvidence(answer, cosines, vectors, settings=DEFAULT, revision="r")
    case_of_checks = Case("case", (Turn("q"),), assertions=tuple(checks), **case)
    return Row(case_of_checks, response or AgentResponse(text="a"), {DEFAULT: evidence})


def score_of(metric: Callable[..., Metric], *checks: Assertion, **case: Any) -> Score:
    """The score of these checks on that row."""
    return metric("assertions").score(row_of(checks, **case))


@pytest.mark.parametrize(
    ("checks", "thresholds", "value", "passed"),
    [
        ([HOLDS, OPEN], {}, 1.0, None),
        ([FAILS, OPEN], {}, 0.0, False),
        ([OPEN], {}, None, None),
        ([HOLDS, Assertion("llm-rubric", "x", weight=0.0)], {}, 1.0, True),
        ([Assertion("contains", "z", weight=0.0), OPEN], {}, None, None),
        ([Assertion("contains", "a", weight=3.0), OPEN], {"assertions": 0.75}, 1.0, None),
        ([FAILS, OPEN], {"assertions": 0.5}, 0.0, None),
        ([FAILS, OPEN], {"assertions": 0.6}, 0.0, False),
        ([FAILS, FAILS, HOLDS, OPEN], {"assertions": 0.75}, 1 / 3, False),
        ([OPEN], {"assertions": 0.0}, None, None),
    ],
)
def test_a_row_with_a_check_that_was_not_made_never_passes(
    metric: Callable[..., Metric],
    checks: list[Assertion],
    thresholds: dict[str, float],
    value: float | None,
    passed: bool | None,
) -> None:
    """Such a row fails if the checks made already decide so, and is undecided otherwise."""
    score = score_of(metric, *checks, thresholds=thresholds)
    assert (score.value, score.passed) == (value if value is None else pytest.approx(value), passed)
    assert score.detail.get("undecided", False) is (passed is None)
    if passed is None:
        assert score.reason == "not made: llm-rubric (no judge)"


def build(name: str, **parameters: Any) -> Metric:
    """A metric with its defaults."""
    return build_metric(MetricSpec(name, complete_parameters(name, parameters, where="m")))


@given(
    st.lists(st.tuples(st.sampled_from([HOLDS.value, FAILS.value]), st.integers(0, 3)), max_size=4),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.sampled_from([None, 0.0, 0.3, 0.5, 0.8, 1.0]),
)
def test_what_is_decided_holds_whatever_the_open_checks_say(
    made: list[tuple[str, int]], weights: list[int], own: float | None
) -> None:
    """A verdict beside open checks is the verdict for every possible outcome of these."""
    case: dict[str, Any] = {"thresholds": {} if own is None else {"assertions": own}}
    known = [Assertion("contains", value, weight=float(weight)) for value, weight in made]
    rubrics = [Assertion("llm-rubric", "x", weight=float(weight)) for weight in weights]
    score = build("assertions").score(row_of([*known, *rubrics], **case))
    ends = {
        build("assertions")
        .score(row_of([*known, *(Assertion("contains", text, weight=float(weight)) for weight in weights)], **case))
        .passed
        for text in ("a", "z")
    }
    assert score.passed is not True or not any(weights)
    if score.passed is not None and any(weights):
        assert ends == {score.passed}


def test_checks_that_were_not_made_are_counted_by_type_and_reason(
    metric: Callable[..., Metric], fold: Callable[..., Any]
) -> None:
    """The summary counts open checks by type and reason, in any order of rows."""
    slow, code = Assertion("latency", threshold=5.0), Assertion("javascript", "x", negate=True)
    rows = [row_of([OPEN, HOLDS]), row_of([slow, OPEN]), row_of([code, FAILS])]
    summary = fold(metric("assertions"), rows)
    unmade = {
        "latency": {"no latency was measured": 1},
        "llm-rubric": {"no judge": 2},
        "not-javascript": {"code is not run": 1},
    }
    assert (summary.detail["not_made"], summary.detail["unmade"]) == (4, unmade)
    assert json.dumps(fold(metric("assertions"), rows[::-1]).detail) == json.dumps(summary.detail)
    sentence = "4 of 6 checks are not made: llm-rubric 2 (no judge), latency 1 (no latency was measured), "
    assert not_made(unmade, 6) == f"{sentence}not-javascript 1 (code is not run)"


def test_very_many_types_are_not_all_listed() -> None:
    """The sentence stays one that a console line holds."""
    sentence = not_made({kind: {"Assay has no such check": 1} for kind in NEVER_MADE}, 100)
    assert sentence.endswith(f", and {len(NEVER_MADE) - 8} more types")
    assert not_made({}, 3) == ""


@pytest.mark.parametrize(
    ("check", "holds", "score"),
    [
        (Assertion("similar", "same"), True, 1.0),
        (Assertion("similar", "near"), True, 0.8),
        (Assertion("similar", "near", 0.9), False, 0.8),
        (Assertion("similar", "far"), False, 0.0),
        (Assertion("similar", "against", -1.0), True, 0.0),
        (Assertion("similar", ["far", "near", "against"]), True, 0.8),
        (Assertion("similar", ["far", "against"]), False, 0.0),
        (Assertion("similar", "near", negate=True), False, 0.2),
        (Assertion("similar", "far", negate=True), True, 1.0),
        (Assertion("similar", ["far", "near"], negate=True), False, 0.2),
        (Assertion("similar:cosine", "long"), True, 1.0),
        (Assertion("similar:dot", "near", 0.8), True, 0.8),
        (Assertion("similar:dot", "long"), True, 1.0),
        (Assertion("similar:euclidean", "same"), True, 1.0),
        (Assertion("similar:euclidean", "long", 1.0), True, 0.5),
        (Assertion("similar:euclidean", ["far", "long"]), False, 0.5),
        (Assertion("similar:euclidean", "far", negate=True), True, 1 - 1 / (1 + 2**0.5)),
    ],
)
def test_similar(metric: Callable[..., Metric], check: Assertion, holds: bool, score: float) -> None:
    """The nearest text counts; the score is the similarity, and what is left of it where it must not hold."""
    assert assertion_problem(check) == ""
    scored_row = score_of(metric, check)
    assert scored_row.value == pytest.approx(score)
    assert scored_row.passed is holds


def test_a_blank_answer_is_near_to_nothing(metric: Callable[..., Metric]) -> None:
    """A blank answer is decided without its vector."""
    row = row_of([Assertion("similar", "same")], AgentResponse(text=" \n"))
    assert wanted_texts([metric("assertions")], row.case, row.response) == {}
    score = metric("assertions").score(Row(row.case, row.response))
    assert (score.value, score.passed) == (0.0, False)


@pytest.mark.parametrize(
    ("evidence", "status", "reason"),
    [
        ({}, ScoreStatus.SKIPPED, "not made: similar (no embedder)"),
        ({"skipped": "no_embedder"}, ScoreStatus.SKIPPED, "not made: similar (no embedder)"),
        ({"error": "embedder_unavailable"}, ScoreStatus.ERROR, "embedder_unavailable"),
    ],
)
def test_a_check_without_vectors(
    metric: Callable[..., Metric], evidence: Mapping[str, Any], status: ScoreStatus, reason: str
) -> None:
    """No embedder leaves it open for good; an embedder that fails is an error of the row, which can be retried."""
    case = Case("case", (Turn("q"),), assertions=(Assertion("similar", "same"),))
    texts = EmbeddingEvidence(None, **evidence)
    score = metric("assertions").score(Row(case, AgentResponse(text="a"), {DEFAULT: texts} if evidence else {}))
    assert (score.status, score.value, score.passed, score.reason) == (status, None, None, reason)


def test_only_cases_with_such_checks_need_vectors(metric: Callable[..., Metric]) -> None:
    """Of a case without checks by embeddings nothing is embedded; each text is embedded once."""
    plain, similar = row_of([HOLDS]), row_of([Assertion("similar", ["x", "y"]), Assertion("similar", "x")])
    measured = row_of([Assertion("similar:dot", "x"), Assertion("similar:euclidean", ["z", "x"])])
    metrics = [metric("assertions", model="m"), metric("semantic_similarity")]
    response = AgentResponse(text="a")
    assert wanted_texts(metrics, plain.case, response) == {}
    assert wanted_texts(metrics, similar.case, response) == {EmbeddingSettings("m"): WantedTexts(compared=("x", "y"))}
    assert wanted_texts(metrics, measured.case, response) == {EmbeddingSettings("m"): WantedTexts(measured=("x", "z"))}


@pytest.mark.parametrize("value", [None, "", " ", [], ["a", " "], {"a": 1}, ["a", ["b"]], ["a"] * 101])
def test_similar_needs_texts(value: object) -> None:
    """A check that could never be made is refused when the dataset is read."""
    assert assertion_problem(Assertion("similar", value)).startswith("similar ")


def test_a_cost_that_the_run_prices(metric: Callable[..., Metric]) -> None:
    """If the agent reports tokens and no cost, the run's metric `cost` prices them."""
    check, response = (
        Assertion("cost", threshold=0.002),
        AgentResponse(text="a", usage=Usage(input_tokens=1000, output_tokens=0)),
    )
    priced = metric("cost", input_price=1.0, output_price=5.0)
    score, _ = score_row([metric("assertions"), priced], row_of([check], response))
    assert (score.value, score.passed) == (1.0, True)
    (unpriced,) = score_row([metric("assertions")], row_of([check], response))
    assert unpriced.reason == "not made: cost (no cost was reported)"
    reported = AgentResponse(text="a", usage=Usage(input_tokens=1000, output_tokens=0, cost_usd=1.0))
    assert score_row([metric("assertions"), priced], row_of([check], reported))[0].passed is False


def test_every_type_is_known_once() -> None:
    """A type is made, needs a judge, or is never made; which of these, is known before a run."""
    groups: list[set[str]] = [set(CHECKS), set(SIMILAR_CHECKS), set(JUDGED_CHECKS), set(NEVER_MADE)]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert all(why_unmade(kind, has_judge=False) == "no judge" for kind in JUDGED_CHECKS)
    assert not any(why_unmade(kind, has_judge=True) for kind in (*CHECKS, *SIMILAR_CHECKS, *JUDGED_CHECKS))
    assert all(why_unmade(kind, has_judge=True) for kind in NEVER_MADE)


def test_a_run_that_was_stored_without_a_model_is_read() -> None:
    """Its metric has the parameters of the version that stored it."""
    assert build_metric(MetricSpec("assertions", {"threshold": None})).embedding == DEFAULT
