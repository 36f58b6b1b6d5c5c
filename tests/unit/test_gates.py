"""Gates: the grammar, every refusal with its sentence, and how numbers and bounds compare."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import SpecError
from assay.gates.gates import Gate, actual_text, decide, meets_goal, parse_gate, read_gate
from assay.metrics import METRICS, build_metric, complete_parameters
from assay.model.run import GateOutcome, MetricSpec
from assay_orchestrator.summary.gates import Tally, judge_gates
from assay_orchestrator.summary.run_summary import summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN = {
    "semantic_similarity": "semantic_similarity",
    "hit_rate": "hit_rate",
    "rouge": "rouge",
    "speed": "latency",
    "mine": "formula",
    "mine_2": "formula",
}
"""Names and kinds of a run's metrics."""


def parsed(text: str, metrics: Mapping[str, str] = RUN, repeats: int | None = None) -> tuple[str, str, str, str]:
    """What a gate compares: group, label, name, statistic."""
    gate = parse_gate(text, metrics=metrics, repeats=repeats)
    return gate.group, gate.label, gate.name, gate.stat


@pytest.mark.parametrize(
    ("subject", "compared"),
    [
        ("pass_rate", ("", "", "pass_rate", "value")),
        ("agent_errors", ("", "", "agent_errors", "value")),
        ("hit_rate", ("", "", "hit_rate", "value")),
        ("mine_2", ("", "", "mine_2", "value")),
        ("hit_rate.value", ("", "", "hit_rate", "value")),
        ("hit_rate.pass_rate", ("", "", "hit_rate", "pass_rate")),
        ("hit_rate.hits", ("", "", "hit_rate", "hits")),
        ("speed.p95", ("", "", "speed", "p95")),
        ("rouge.precision.rouge1", ("", "", "rouge", "precision.rouge1")),
        ("category.count.pass_rate", ("category", "count", "pass_rate", "value")),
        ("category.count.hit_rate", ("category", "count", "hit_rate", "value")),
        ("category.out-of-scope.mine", ("category", "out-of-scope", "mine", "value")),
        ("category.42.pass_rate", ("category", "42", "pass_rate", "value")),
        ("category.مناقصات.pass_rate", ("category", "مناقصات", "pass_rate", "value")),
        ("tag.smoke.pass_rate", ("tag", "smoke", "pass_rate", "value")),
        ("tag.pass_rate.pass_rate", ("tag", "pass_rate", "pass_rate", "value")),
        ('category."two words".pass_rate', ("category", "two words", "pass_rate", "value")),
        ('category."a.b >= 1, goal".hit_rate', ("category", "a.b >= 1, goal", "hit_rate", "value")),
        (r'tag."say \"hi\" \\ bye".pass_rate', ("tag", r'say "hi" \ bye', "pass_rate", "value")),
        ('tag."count".pass_rate', ("tag", "count", "pass_rate", "value")),
        ("pass_at_k.1", ("", "", "pass_at_k", "1")),
        ("pass_at_k.3", ("", "", "pass_at_k", "3")),
        ("pass_hat_k.5", ("", "", "pass_hat_k", "5")),
    ],
)
def test_every_form_of_subject(subject: str, compared: tuple[str, str, str, str]) -> None:
    """Numbers of the run, metrics with statistics, categories and tags with any label, and repeats."""
    assert parsed(f"{subject} >= 0.5", repeats=5) == compared


@pytest.mark.parametrize("op", [">=", ">", "<=", "<", "=="])
@pytest.mark.parametrize(
    ("number", "value"),
    [("0.85", 0.85), ("1", 1.0), ("-.5", -0.5), ("+2.", 2.0), ("1e-3", 0.001), ("2E+2", 200.0), ("000", 0.0)],
)
def test_every_operator_and_number(op: str, number: str, value: float) -> None:
    """Operators and numbers in all of their spellings, with space or without."""
    for text in (f"mine {op} {number}", f"mine{op}{number}", f"\t mine  {op}\n{number} "):
        gate = parse_gate(text, metrics=RUN)
        assert gate == Gate(text.strip(), "mine", "value", op, value)


@pytest.mark.parametrize(
    ("text", "bound", "goal_op", "goal"),
    [
        ("hit_rate > 0.80, goal > 0.90", 0.80, ">", 0.90),
        ("hit_rate >= 0.80,goal>0.80", 0.80, ">", 0.80),
        ("speed.p95 < 4, goal <= 2.5", 4.0, "<=", 2.5),
        ('tag."a, goal > 1".pass_rate >= 0, goal >= 1', 0.0, ">=", 1.0),
    ],
)
def test_goals(text: str, bound: float, goal_op: str, goal: float) -> None:
    """A goal goes the gate's way and may only ask for as much or more."""
    gate = parse_gate(text, metrics=RUN)
    assert (gate.bound, gate.goal_op, gate.goal) == (bound, goal_op, goal)
    assert (gate.expression, gate.op) == (text, text.split(",")[-2].split()[-2])  # of the gate itself


def test_a_metric_may_be_named_like_a_part_of_the_grammar() -> None:
    """A run's own metrics come first where that is what the text can mean."""
    run = {"category": "contains", "tag": "contains", "pass_at_k": "contains", "goal": "contains"}
    assert parsed("category >= 1", run) == ("", "", "category", "value")
    assert parsed("tag.pass_rate >= 1", run) == ("", "", "tag", "pass_rate")
    assert parsed("category.tag.pass_rate >= 1", run) == ("category", "tag", "pass_rate", "value")
    assert parsed("category.x.category >= 1", run) == ("category", "x", "category", "value")
    assert parsed("pass_at_k.pass_rate >= 1", run) == ("", "", "pass_at_k", "pass_rate")
    assert parsed("goal > 0.1, goal > 0.2", run) == ("", "", "goal", "value")


@pytest.mark.parametrize("kind", sorted(METRICS))
def test_every_statistic_that_a_metric_lists_can_be_gated(kind: str) -> None:
    """What a metric lists is in its summary, and means nothing was computed where there are no rows."""
    metric = build_metric(MetricSpec(kind, complete_parameters(kind, METRICS[kind].info.example, where="m")))
    names = ("value", "pass_rate", *metric.info.stats)
    gates = [f"{kind}.{name} >= 0" for name in names]
    summary = summarise([], [metric], gates)
    for name in metric.info.stats:
        *way, last = name.split(".")
        found = summary.metrics[0].detail
        for part in way:
            found = found[part]
        assert last in found or f"{last}_s" in found
    assert [gate.expression for gate in summary.gates] == gates
    assert all(gate.outcome is GateOutcome.INCOMPLETE for gate in summary.gates if gate.actual is None)
    assert all(gate.message for gate in summary.gates if gate.actual is None)


REFUSED = [
    ("", "'' is not a gate: write NAME >= NUMBER, e.g. 'pass_rate >= 0.85'"),
    ("pass_rate", "is not a gate"),
    ("pass_rate >=", "is not a gate"),
    (">= 0.5", "is not a gate"),
    ("pass_rate => 0.5", "is not a gate"),
    ("pass_rate = 0.5", "is not a gate"),
    ("pass_rate != 0.5", "is not a gate"),
    ("pass_rate >= 85%%", "is not a gate"),
    ("pass_rate >= %", "is not a gate"),
    ("pass_rate >= 85", "pass_rate is a share from 0 to 1: write 0.85 or 85%"),
    ("pass_rate >= 100", "pass_rate is a share from 0 to 1: write 1 or 100%"),
    ("pass_rate == 1.5", "pass_rate is a share from 0 to 1: write 0.015 or 1.5%"),
    ("pass_rate >= 100.5", "pass_rate is a share from 0 to 1: write 0.85 or 85%"),
    ("pass_rate >= -0.5", "pass_rate is a share from 0 to 1: write 0.85 or 85%"),
    ("pass_rate >= 850%", "pass_rate is a share from 0 to 1"),
    ("pass_rate >= 0.8, goal >= 90", "pass_rate is a share from 0 to 1: write 0.9 or 90%"),
    ("agent_errors <= 1", "agent_errors is a share from 0 to 1, and 1 is every row: write 0.01 or 1%"),
    ("agent_errors < 5", "agent_errors is a share from 0 to 1: write 0.05 or 5%"),
    ("hit_rate > 80", "hit_rate is a share from 0 to 1: write 0.8 or 80%"),
    ("rouge.pass_rate >= 85", "a share from 0 to 1: write 0.85 or 85%"),
    ("category.count.pass_rate >= 85", "a share from 0 to 1: write 0.85 or 85%"),
    ("pass_at_k.2 >= 85", "a share from 0 to 1: write 0.85 or 85%"),
    ("speed < 5%", "speed is not a share from 0 to 1: leave % out"),
    ("mine > 5%", "mine is not a share from 0 to 1: leave % out"),
    ("speed.p95 < 5%", "speed is not a share from 0 to 1: leave % out"),
    ("pass_rate >= nan", "is not a gate"),
    ("pass_rate >= inf", "is not a gate"),
    ("pass_rate >= ٠", "is not a gate"),
    ("pass_rate >= hit_rate", "is not a gate"),
    ("pass_rate >= 0.5 and hit_rate > 0.5", "is not a gate"),
    ("0.5 <= pass_rate", "is not a gate"),
    ("pass rate >= 0.5", "is not a gate"),
    ("hit_rate..hits >= 1", "is not a gate"),
    ('category."open.pass_rate >= 1', "is not a gate"),
    ('category."two\\" words.pass_rate >= 1', "is not a gate"),
    ("category.two words.pass_rate >= 1", "is not a gate"),
    ("pass_rate >= 0.5, goal", "is not a gate"),
    ("pass_rate >= 0.5 goal > 0.6", "is not a gate"),
    ("pass_rate >= 0.5, target > 0.6", "is not a gate"),
    ("pass_rate >= 0." + "5" * 400, "is not a gate"),
    ("pass_rat >= 0.5", "unknown name in a gate 'pass_rat'; did you mean 'pass_rate'?"),
    ("hitrate >= 0.5", "did you mean 'hit_rate'?"),
    ("coverage >= 0.5", "unknown name in a gate 'coverage'; known: pass_rate, agent_errors, semantic_similarity"),
    ("speed.p59 < 1", "unknown statistic of speed 'p59'; did you mean 'p95'?"),
    ("hit_rate.zzz < 1", "unknown statistic of hit_rate 'zzz'; known: value, pass_rate, hits, total"),
    ("mine.p95 < 1", "unknown statistic of mine 'p95'; known: value, pass_rate"),
    ("rouge.rouge1.precision > 0", "unknown statistic of rouge"),
    ("pass_rate.mean > 0", "pass_rate is a number itself: leave .mean out"),
    ("agent_errors.value < 1", "agent_errors is a number itself: leave .value out"),
    ("category >= 1", "say which category and what of it: category.NAME.pass_rate or category.NAME.METRIC"),
    ("tag.smoke >= 1", "say which tag and what of it: tag.NAME.pass_rate or tag.NAME.METRIC"),
    ("tag.smoke.hit_rate.hits >= 1", "say which tag and what of it"),
    ('tag."".pass_rate >= 1', "say which tag and what of it"),
    ("category.count.hit_rat > 1", "unknown name of a category's number 'hit_rat'; did you mean 'hit_rate'?"),
    ("tag.count.agent_errors > 1", "unknown name of a tag's number 'agent_errors'"),
    ("pass_at_k >= 1", "say of how many runs: pass_at_k.3, for example"),
    ("pass_hat_k.0 >= 1", "say of how many runs: pass_hat_k.3, for example"),
    ("pass_at_k.03 >= 1", "say of how many runs"),
    ("pass_at_k.1000 >= 1", "say of how many runs"),
    ("pass_at_k.two >= 1", "say of how many runs"),
    ("pass_at_k.2.3 >= 1", "say of how many runs"),
    ("pass_at_k.3 >= 1", "pass_at_k.3 needs 3 runs of each case and this run has 2: raise repeats"),
    ("pass_rate >= 1e999", "1e999 is too large a number for a gate"),
    ("pass_rate >= 0, goal > 1e999", "1e999 is too large a number for a gate"),
    ("pass_rate > 0.5, goal < 0.6", "a goal goes the same way as its gate, with > or < in both"),
    ("pass_rate == 0.5, goal == 0.6", "a goal goes the same way as its gate"),
    ("pass_rate == 0.5, goal > 0.6", "a goal goes the same way as its gate"),
    ("pass_rate >= 0.5, goal == 0.6", "a goal goes the same way as its gate"),
    ("hit_rate > 0.9, goal > 0.8", "the goal 0.8 asks for less than the gate's 0.9: exchange them"),
    ("speed < 2, goal < 4", "the goal 4 asks for less than the gate's 2: exchange them"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_no_gate_is_refused(text: str, message: str) -> None:
    """Every refusal says what is wrong and what to write, in one sentence of bounded length."""
    with pytest.raises(SpecError) as caught:
        parse_gate(text, metrics=RUN, repeats=2)
    assert message in caught.value.message
    assert len(caught.value.message) < 400


def test_a_gate_on_a_metric_that_nobody_knows_is_left_to_whoever_refuses_the_metric() -> None:
    """All problems of a spec are told together: what a gate may say of it is not known yet."""
    assert parse_gate("mine >= 85", metrics={"mine": "exact_mach"}, repeats=1).bound == 85


@pytest.mark.parametrize(
    ("text", "bound", "goal"),
    [
        ("pass_rate >= 85%", 0.85, None),
        ("pass_rate>=85 %", 0.85, None),
        ("pass_rate >= 85%, goal >= 0.9", 0.85, 0.9),
        ("agent_errors <= 1%, goal <= 0.5 %", 0.01, 0.005),
        ("agent_errors <= 100%", 1.0, None),
        ("hit_rate > 80%", 0.8, None),
        ("rouge >= 75%", 0.75, None),
        ("pass_rate >= 1", 1.0, None),
        ("hit_rate.hits >= 20", 20.0, None),
    ],
)
def test_percentages_are_shares(text: str, bound: float, goal: float | None) -> None:
    """85% is 0.85, in gates and goals; a rate of 1 and a count stay what they are."""
    gate = parse_gate(text, metrics=RUN)
    assert gate.bound == pytest.approx(bound)
    assert gate.goal == (None if goal is None else pytest.approx(goal))


def test_a_stored_gate_that_no_new_run_may_have_is_still_read() -> None:
    """A stored gate that a new spec may not have is still read in its summary."""
    assert read_gate("pass_rate >= 85", metrics={}).bound == 85
    (gate,) = judge_gates(["agent_errors <= 1"], summarise([], [], []), kinds={}, tally=Tally(4, 1, 0))
    assert (gate.outcome, gate.actual) == (GateOutcome.PASS, 0.25)


@pytest.mark.parametrize(
    ("k", "repeats", "refused"), [(1, 1, True), (1, 2, False), (2, 2, False), (3, 2, True), (9, None, False)]
)
def test_repeats_that_a_run_does_not_have(k: int, repeats: int | None, refused: bool) -> None:
    """A gate on k runs needs k of each case, and two for there to be anything; unknown numbers are let through."""
    expected = pytest.raises(SpecError, match="runs of each case") if refused else contextlib.nullcontext()
    with expected:
        parse_gate(f"pass_at_k.{k} >= 0.5", metrics={}, repeats=repeats)


def test_a_metric_named_like_a_number_of_the_run_is_ambiguous() -> None:
    """An ambiguous name is refused."""
    with pytest.raises(SpecError, match="give the metric another name"):
        parse_gate("pass_rate >= 0.5", metrics={"pass_rate": "contains"})


PIECES = st.sampled_from(
    ["pass_rate", "hit_rate", "category", "tag", "pass_at_k", "agent_errors", "goal", ".", '"', "\\", ">=", "<", "==",
     ",", " ", "0.5", "3", "1e999", "-", "\n", "\x00", "é", "\ud800", "x" * 500]
)  # fmt: skip


@given(st.one_of(st.text(max_size=500), st.lists(PIECES, max_size=12).map("".join)), st.sampled_from([None, 1, 3]))
def test_no_text_breaks_the_parser(text: str, repeats: int | None) -> None:
    """Whatever is written where a gate should stand, only SpecError comes out, and a finite bound."""
    try:
        gate = parse_gate(text, metrics=RUN, repeats=repeats)
    except SpecError:
        return
    assert math.isfinite(gate.bound)
    assert gate.expression == text.strip()


@given(st.text(min_size=1, max_size=60))
def test_any_label_can_be_quoted(label: str) -> None:
    """Whatever a dataset calls its categories, a gate can name it; line breaks are written as they are."""
    quoted = label.replace("\\", "\\\\").replace('"', '\\"')
    assert parsed(f'category."{quoted}".pass_rate >= 0') == ("category", label, "pass_rate", "value")


@pytest.mark.parametrize(
    ("gate", "actual", "outcome"),
    [
        (">= 0.3", 0.1 + 0.2, GateOutcome.PASS),
        (">= 0.75", 0.7499999999, GateOutcome.PASS),
        (">= 0.75", 0.749999, GateOutcome.FAIL),
        ("> 0.80", 16 / 20, GateOutcome.FAIL),
        ("> 0.80", 0.8000001, GateOutcome.PASS),
        ("<= 0.3", 0.1 + 0.2, GateOutcome.PASS),
        ("<= 0.3", 0.3001, GateOutcome.FAIL),
        ("> 0.3", 0.1 + 0.2, GateOutcome.FAIL),
        ("< 0.3", 0.1 + 0.2, GateOutcome.FAIL),
        ("< 0.3", 0.3 - 1e-12, GateOutcome.FAIL),
        ("< 0.3", 0.2999, GateOutcome.PASS),
        ("== 0.3", 0.1 + 0.2, GateOutcome.PASS),
        ("== 0.3", 0.3001, GateOutcome.FAIL),
        (">= -1e9", None, GateOutcome.INCOMPLETE),
    ],
)
def test_numbers_and_bounds_compare_with_a_tolerance(gate: str, actual: float | None, outcome: GateOutcome) -> None:
    """1e-9 absorbs the noise of floating point and nothing else; what is unknown is incomplete, never passed."""
    assert decide(parse_gate(f"mine {gate}", metrics=RUN), actual) is outcome


@pytest.mark.parametrize(
    ("gate", "actual", "reached"),
    [
        ("> 0.8, goal > 0.9", 0.9, False),
        ("> 0.8, goal >= 0.9", 0.9, True),
        ("> 0.8, goal > 0.9", 0.7, False),
        ("< 4, goal < 2", 1.0, True),
        ("> 0.8, goal > 0.9", None, None),
        ("> 0.8", 0.95, None),
    ],
)
def test_a_target_is_reached_missed_or_unknown(gate: str, actual: float | None, reached: bool | None) -> None:
    """A goal compares like a bound; without a goal or a number there is no result."""
    assert meets_goal(parse_gate(f"mine {gate}", metrics=RUN), actual) is reached


@pytest.mark.parametrize(
    ("gate", "actual", "shown"),
    [
        ("pass_rate >= 0.85", 0.77777778, "0.7778"),
        ("pass_rate >= 0.85", 0.849967, "0.849967"),
        ("pass_rate >= 85%, goal >= 90%", 0.849967, "0.849967"),
        ("hit_rate > 0.8, goal > 0.9", 0.90003, "0.90003"),
        ("pass_rate == 1", 1.0, "1"),
        ("similarity >= 0.3", 0.1 + 0.2, "0.3"),
        ("latency.p95 < 4", 4.00000013, "4.00000013"),
        ("tokens <= 12000", 12345.6, "12346"),
        ("tokens <= 12000", 12000.4, "12000.4"),
        ("huge <= 1", 2.5e200, "2.5e+200"),
        ("edited by hand >= 1e999", 0.5, "0.5"),
        ("edited >= 1e999", 0.5, "0.5"),
        ("never >= 1", None, "-"),
    ],
)
def test_what_is_compared_is_shown_apart_from_its_bound(gate: str, actual: float | None, shown: str) -> None:
    """A value that misses its bound is not rounded to it, and thousands have all their digits."""
    assert actual_text(gate, actual) == shown


def test_gates_of_a_run_without_rows_are_incomplete() -> None:
    """A run without rows passes no gate."""
    summary = summarise([], [], [])
    gates = ["pass_rate >= 0", "agent_errors <= 1", "category.a.pass_rate >= 0", "pass_at_k.2 >= 0"]
    outcomes = judge_gates(gates, summary, kinds={}, tally=Tally(0, 0, 0))
    assert [(gate.outcome, gate.message) for gate in outcomes] == [
        (GateOutcome.INCOMPLETE, "no metric decided any row"),
        (GateOutcome.INCOMPLETE, "the run has no rows"),
        (GateOutcome.INCOMPLETE, "no row has a category"),
        (GateOutcome.INCOMPLETE, "no case has 2 decided runs"),
    ]
