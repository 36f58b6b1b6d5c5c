"""The outcomes of gates: which number of a run each is compared with, and when there is none."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.embedding import EmbeddingSettings
from assay.metrics.core.row_verdict import row_message, row_verdict
from assay.metrics.core.score import EmbeddingEvidence, Metric, Row
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import GateOutcome, GateResult, MetricSpec, RowResult, RunSummary, RunVerdict
from assay.wire.summary import SUMMARY
from assay_orchestrator.summary.groups import MAX_GROUPS
from assay_orchestrator.summary.run_summary import SummaryRules, summarise

RIGHT, WRONG, FAILED, UNKNOWN = "right", "wrong", "failed", "unknown"
"""How a row fares: `unknown` cannot be decided, because similarity could not be computed."""


def metrics(**named: dict[str, Any]) -> list[Metric]:
    """Metrics by the names of a run."""
    built = []
    for name, settings in named.items():
        kind = settings.get("kind", name)
        parameters = {key: value for key, value in settings.items() if key != "kind"}
        complete = complete_parameters(kind, parameters, where="m")
        built.append(build_metric(MetricSpec(name, complete, "" if kind == name else kind)))
    return built


PLAIN = metrics(exact_match={}, latency={}, long_answers={"kind": "formula", "formula": "answer_words"})
WITH_VECTORS = metrics(semantic_similarity={}, exact_match={"threshold": None})


def row(fate: str, chosen: list[Metric], index: int = 0, repeat: int = 0, **about: Any) -> RowResult:
    """The stored row of a case that fared so."""
    case = Case(f"c{index}", (Turn("q", references=("right",)),))
    error = AgentError(AgentErrorKind.TIMEOUT, "slow") if fate == FAILED else None
    response = AgentResponse(
        status=AgentStatus.ERROR if error else AgentStatus.SUCCESS,
        text="" if error else "right" if fate == UNKNOWN else fate,
        error=error,
        latency_ms=1000.0 * (index + 1),
    )
    evidence = EmbeddingEvidence(None, error="embedder_unavailable")
    scores = tuple(score_row(chosen, Row(case, response, {EmbeddingSettings("all-MiniLM-L6-v2"): evidence})))
    if fate != UNKNOWN:
        scores = tuple(
            dataclasses.replace(score, reason="", detail={}, value=float(fate == RIGHT), status=score.status.SCORED)
            if score.metric == "semantic_similarity" and not error
            else score
            for score in scores
        )
    return RowResult(
        case_id=case.case_id,
        case_index=index,
        repeat=repeat,
        category=about.get("category", ""),
        tags=about.get("tags", ()),
        status=response.status,
        passed=row_verdict(response.status, scores),
        scores=scores,
        latency_ms=response.latency_ms,
        message=row_message(response, scores),
    )


def outcome(gate: str, rows: list[RowResult], chosen: list[Metric] = PLAIN) -> GateResult:
    """The outcome of one gate over some rows, as it is stored; any number of agent errors is allowed."""
    summary = SUMMARY.from_json(
        dataclasses.asdict(summarise(rows, chosen, [gate], rules=SummaryRules(max_agent_errors=1.0)))
    )
    (found,) = summary.gates
    return found


FATES = [RIGHT, RIGHT, RIGHT, WRONG, FAILED]


@pytest.mark.parametrize(
    ("gate", "expected", "actual"),
    [
        ("pass_rate >= 0.6", GateOutcome.PASS, 0.6),
        ("pass_rate > 0.6", GateOutcome.FAIL, 0.6),
        ("agent_errors <= 0.2", GateOutcome.PASS, 0.2),
        ("agent_errors < 0.2", GateOutcome.FAIL, 0.2),
        ("exact_match >= 0.6", GateOutcome.PASS, 0.6),
        ("exact_match.pass_rate >= 0.7", GateOutcome.FAIL, 0.6),
        ("exact_match.correct == 3", GateOutcome.PASS, 3.0),
        ("exact_match.total == 5", GateOutcome.PASS, 5.0),
        ("latency <= 3", GateOutcome.PASS, 2.5),
        ("latency.mean < 2.5", GateOutcome.FAIL, 2.5),
        ("latency.p50 == 2.5", GateOutcome.PASS, 2.5),
        ("latency.p95 < 3.9", GateOutcome.PASS, 3.85),
        ("latency.max <= 4", GateOutcome.PASS, 4.0),
        ("long_answers == 1", GateOutcome.PASS, 1.0),
        ("category.easy.pass_rate >= 1", GateOutcome.PASS, 1.0),
        ('category."hard ones".pass_rate >= 0.5', GateOutcome.FAIL, 1 / 3),
        ('category."hard ones".exact_match >= 0.3', GateOutcome.PASS, 1 / 3),
        ("category.easy.latency <= 1.5", GateOutcome.PASS, 1.5),
        ("tag.odd.pass_rate > 0.4", GateOutcome.PASS, 0.5),
        ("tag.all.exact_match == 0.6", GateOutcome.PASS, 0.6),
    ],
)
def test_what_is_known_passes_or_fails(gate: str, expected: GateOutcome, actual: float) -> None:
    """Every subject is compared with its number: of the run, of a metric, of a category, of a tag."""
    rows = [
        row(fate, PLAIN, index, category="easy" if index < 2 else "hard ones", tags=("all", "odd")[: 1 + index % 2])
        for index, fate in enumerate(FATES)
    ]
    result = outcome(gate, rows)
    assert (result.expression, result.outcome, result.message) == (gate, expected, "")
    assert result.actual == pytest.approx(actual)


@pytest.mark.parametrize(
    ("gate", "expected", "actual", "reached"),
    [
        ("pass_rate >= 0.5, goal >= 0.6", GateOutcome.PASS, 0.6, True),
        ("pass_rate >= 0.5, goal > 0.6", GateOutcome.PASS, 0.6, False),
        ("pass_rate >= 0.7, goal >= 0.9", GateOutcome.FAIL, 0.6, False),
        ("latency.max < 9, goal < 6", GateOutcome.PASS, 4.0, True),
        ("category.none.pass_rate >= 0.5, goal >= 0.6", GateOutcome.INCOMPLETE, None, None),
        ("pass_rate >= 0.5", GateOutcome.PASS, 0.6, None),
    ],
)
def test_a_target_is_reported_and_never_decides(
    gate: str, expected: GateOutcome, actual: float | None, reached: bool | None
) -> None:
    """A missed goal leaves the outcome alone; without a number there is nothing to reach."""
    result = outcome(gate, [row(fate, PLAIN, index) for index, fate in enumerate(FATES)])
    assert (result.outcome, result.actual, result.meets_goal) == (expected, actual, reached)


@pytest.mark.parametrize(
    ("gate", "reason"),
    [
        ("pass_rate >= 0", "1 of 2 rows could not be decided because a metric could not be computed, more than max_"),
        ("semantic_similarity >= 0", "semantic_similarity could not be computed on 1 of 2 rows, more than max_metric"),
        ("semantic_similarity.pass_rate >= 0", "semantic_similarity could not be computed on 1 of 2 rows"),
        ("category.a.pass_rate >= 0", "category 'a': 1 of 1 rows could not be decided because"),
        ("category.a.semantic_similarity >= 0", "category 'a': semantic_similarity could not be computed on 1 of 1"),
        ("tag.t.pass_rate >= 0", "tag 't': 1 of 1 rows could not be decided because"),
        ("category.c.pass_rate >= 0", "no row has the category 'c'; there are a, b"),
        ("tag.c.pass_rate >= 0", "no row has the tag 'c'; there are t, u"),
    ],
)
def test_what_could_not_be_computed_is_incomplete(gate: str, reason: str) -> None:
    """Failures of ours make a gate incomplete with a reason, even if the bound is below every number."""
    rows = [
        row(RIGHT, WITH_VECTORS, 0, category="b", tags=("u",)),
        row(UNKNOWN, WITH_VECTORS, 1, category="a", tags=("t",)),
    ]
    result = outcome(gate, rows, WITH_VECTORS)
    assert (result.outcome, result.actual) == (GateOutcome.INCOMPLETE, None)
    assert result.message.startswith(reason)


@pytest.mark.parametrize(
    "gate", ["category.b.pass_rate >= 1", "category.b.semantic_similarity >= 1", "tag.u.pass_rate >= 1"]
)
def test_a_failure_elsewhere_leaves_a_group_alone(gate: str) -> None:
    """A group is incomplete only by rows of its own, and rows of no metric's concern do not count."""
    rows = [
        row(RIGHT, WITH_VECTORS, 0, category="b", tags=("u",)),
        row(UNKNOWN, WITH_VECTORS, 1, category="a", tags=("t",)),
    ]
    assert outcome(gate, rows, WITH_VECTORS).outcome is GateOutcome.PASS
    undecided = dataclasses.replace(rows[0], passed=None, message="", case_index=2)
    assert outcome(gate, [*rows, undecided], WITH_VECTORS).outcome is GateOutcome.PASS


def test_a_metric_without_a_value_is_incomplete() -> None:
    """A metric that no row had anything for is named; so is one that decides no row."""
    chosen = metrics(hit_rate={}, mine={"kind": "formula", "formula": "answer_words"})
    rows = [row(RIGHT, chosen, category="a")]
    assert outcome("hit_rate >= 0", rows, chosen).message == "hit_rate was computed on no row (no expected sources)"
    assert outcome("hit_rate.pass_rate >= 0", rows, chosen).message == "hit_rate gave no row a verdict"
    assert outcome("mine.pass_rate >= 0", rows, chosen).message == "mine gave no row a verdict"
    assert outcome("category.a.hit_rate >= 0", rows, chosen).message == "category 'a': hit_rate was computed on no row"
    assert outcome("category.a.pass_rate >= 0", rows, chosen).message == "category 'a': no metric decided any row"
    assert outcome("pass_rate >= 0", rows, chosen).message == "no metric decided any row"
    assert outcome("tag.a.pass_rate >= 0", rows, chosen).message == "no row has a tag"


def test_a_label_too_many_is_not_called_absent() -> None:
    """Of more categories than are summed up, one that is left out is incomplete and said to be left out."""
    rows = [row(RIGHT, PLAIN, index, category=f"k{index}") for index in range(MAX_GROUPS + 1)]
    assert outcome("category.k0.pass_rate >= 1", rows).outcome is GateOutcome.PASS
    left_out = outcome(f"category.k{MAX_GROUPS}.pass_rate >= 1", rows)
    assert left_out.outcome is GateOutcome.INCOMPLETE
    assert left_out.message == "the category 'k1000' is not among the first 1,000 that are summarised"


@pytest.mark.parametrize(
    ("gate", "expected", "actual"),
    [
        ("pass_at_k.1 >= 0.5", GateOutcome.PASS, 0.55),
        ("pass_at_k.2 >= 0.7", GateOutcome.PASS, 0.7),
        ("pass_at_k.4 > 0.8", GateOutcome.FAIL, 0.8),
        ("pass_hat_k.2 >= 0.4", GateOutcome.PASS, 0.4),
        ("pass_hat_k.4 >= 0.3", GateOutcome.FAIL, 0.2),
        ("pass_hat_k.3 >= 0.2, goal >= 0.4", GateOutcome.PASS, 0.3),
        ("pass_at_k.5 >= 0", GateOutcome.INCOMPLETE, None),
    ],
)
def test_gates_on_repeats(gate: str, expected: GateOutcome, actual: float | None) -> None:
    """Five cases of four runs: at least one of k passes, all of k do; more runs than there are is incomplete."""
    fates = ("1110", "1111", "0010", "1011", "0000")
    rows = [
        row(RIGHT if mark == "1" else WRONG, PLAIN, index, repeat)
        for index, runs in enumerate(fates)
        for repeat, mark in enumerate(runs)
    ]
    result = outcome(gate, rows)
    assert (result.outcome, result.actual) == (expected, actual if actual is None else pytest.approx(actual))
    assert bool(result.message) is (actual is None)


def test_repeats_with_undecided_runs_are_incomplete() -> None:
    """A run that could not be decided on our side is not left out of k quietly."""
    rows = [row(fate, WITH_VECTORS, 0, repeat) for repeat, fate in enumerate((RIGHT, RIGHT, UNKNOWN))]
    result = outcome("pass_hat_k.2 >= 0", rows, WITH_VECTORS)
    assert (result.outcome, result.message.startswith("1 of 3 rows could not be decided")) == (
        GateOutcome.INCOMPLETE,
        True,
    )


@given(st.lists(st.sampled_from([RIGHT, WRONG, FAILED]), max_size=30), st.floats(0, 1))
def test_one_more_agent_error_opens_no_gate(fates: list[str], bound: float) -> None:
    """One more agent error turns no failed gate into a pass."""
    rows = [row(fate, PLAIN, index) for index, fate in enumerate(fates)]
    gates = [f"pass_rate >= {bound!r}", f"agent_errors <= {bound!r}", f"exact_match >= {bound!r}"]
    before = summarise(rows, PLAIN, gates)
    after = summarise([*rows, row(FAILED, PLAIN, len(rows))], PLAIN, gates)
    assert not any(_opened(old, new) for old, new in zip(before.gates, after.gates, strict=True))


def _opened(before: GateResult, after: GateResult) -> bool:
    return before.outcome is GateOutcome.FAIL and after.outcome is GateOutcome.PASS


def test_gates_do_not_change_the_rest_of_a_summary() -> None:
    """A summary with gates is the summary without them, and the gates stand in the order of the spec."""
    rows = [row(fate, PLAIN, index, category="a") for index, fate in enumerate(FATES)]
    gates = ["latency < 9", "category.a.pass_rate > 0", "pass_rate >= 0.5"]
    with_gates: RunSummary = summarise(rows, PLAIN, gates)
    assert [gate.expression for gate in with_gates.gates] == gates
    without = summarise(rows, PLAIN, [])
    decision: dict[str, Any] = {"gates": (), "verdict": RunVerdict.PASS, "exit_status": 0, "reasons": (), "notes": ()}
    assert dataclasses.replace(with_gates, **decision) == dataclasses.replace(without, **decision)


def test_a_metric_named_like_a_number_of_repeats_is_itself() -> None:
    """A run's own metric called pass_at_k is what its gate compares, not the run's repeats."""
    chosen = metrics(pass_at_k={"kind": "exact_match"})
    result = outcome("pass_at_k >= 0.6", [row(fate, chosen, index) for index, fate in enumerate(FATES)], chosen)
    assert result.outcome is GateOutcome.PASS
    assert result.actual == pytest.approx(0.6)
