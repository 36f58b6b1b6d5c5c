"""Errors that are not random: they choose the cases that are left, so what is left decides nothing by itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.unit.comparison.comparing import facts

from assay.comparison.cases import CaseScores
from assay.comparison.compare import ComparedRun, compare_runs
from assay.comparison.decision import DecisionRules, decide
from assay.comparison.facts import MetricFacts
from assay.comparison.model import ComparisonSettings, ComparisonVerdict, ErrorComparison, FailOn, Side
from assay.model.answers.agent_response import AgentStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.comparison.model import Comparison, MetricComparison

TONE = MetricFacts("tone", "tone", scale=(0.0, 1.0))
LATENCY = MetricFacts("latency", "latency", "s", higher_is_better=False)
TRIALS = 30
FAILED = "failed"
SKIPPED = "skipped"


def run_of(
    run_id: str, rows: Sequence[Sequence[float | str]], metric: MetricFacts = TONE, *, is_agent: bool = True
) -> ComparedRun:
    """Return a run of one metric.

    Args:
        run_id: Its id.
        rows: Of each case, the value of each repeat; FAILED for an error and SKIPPED for a row that is skipped.
        metric: The metric.
        is_agent: Whether an error is one of the agent.
    """
    cases = CaseScores((metric.name,))
    for place, repeats in enumerate(rows):
        for repeat, value in enumerate(repeats):
            is_error = value == FAILED
            cases.take(
                f"c{place}",
                {metric.name: None if isinstance(value, str) else value},
                passed=None,
                status=AgentStatus.ERROR if is_error and is_agent else AgentStatus.SUCCESS,
                errors=[metric.name] if is_error else [],
                repeat=repeat,
            )
    return ComparedRun(facts(run_id, {metric.name: metric}, total=len(rows), finished=len(rows)), cases)


def compared(
    a: Sequence[Sequence[float | str]],
    b: Sequence[Sequence[float | str]],
    metric: MetricFacts = TONE,
    *,
    margin: float | None = None,
    is_agent: bool = True,
) -> tuple[MetricComparison, Comparison]:
    """Return the comparison of the metric of two runs, and of the runs."""
    runs = [run_of(name, rows, metric, is_agent=is_agent) for name, rows in (("a", a), ("b", b))]
    comparison = compare_runs(runs, ComparisonSettings(margin=margin, primary=metric.name))
    return comparison.pairs[0].metric(metric.name), comparison


HARD: Mapping[str, Sequence[Sequence[float | str]]] = {
    "a": [[0.5]] * 30,
    "b": [[FAILED]] * 12 + [[0.6]] * 18,
}


def test_a_run_that_fails_on_its_hard_cases_is_not_better() -> None:
    """B is better on 18 cases and fails on the other 12: with 0 for those, A would be better."""
    metric, comparison = compared(HARD["a"], HARD["b"])
    assert metric.difference == pytest.approx(0.1)
    assert metric.p == metric.p_adjusted == 2.0**-17
    assert (metric.verdict, metric.reason, metric.pair_count, metric.dropped_case_count) == (
        ComparisonVerdict.WITHHELD,
        "agent_errors",
        18,
        12,
    )
    assert metric.message.startswith("because of errors b has no value on 12 of 30 cases, a on 0")
    assert (
        metric.errors
        == comparison.pairs[0].errors
        == ErrorComparison(0, 12, 0, 12, 0, 12, 2.0**-11, Side.B, differ=True)
    )
    worst = metric.worst_case
    assert worst is not None
    assert (worst.pair_count, worst.replaced_case_count, worst.holds) == (30, 12, False)
    assert worst.difference == pytest.approx((18 * 0.1 - 12 * 0.5) / 30)


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        (DecisionRules(), 1),
        (DecisionRules(strict=True), 1),
        (DecisionRules(FailOn.NEVER), 0),
        (DecisionRules(FailOn.NEVER, strict=True), 4),
        (DecisionRules(FailOn.INCONCLUSIVE), 0),
    ],
)
def test_significantly_more_errors_are_a_regression(rules: DecisionRules, status: int) -> None:
    """Errors have a test of their own, which only the default of --fail-on uses."""
    _, comparison = compared(HARD["a"], HARD["b"])
    decision = decide(comparison, rules)
    assert decision.exit_status == status
    sentence = "b fails significantly more often than a: agent errors on 12 of 30 cases against 0"
    assert (sentence in decision.reasons) is (status == 1)
    _, turned = compared(HARD["b"], HARD["a"])
    assert decide(turned, DecisionRules()).exit_status == 0


def test_a_verdict_that_the_worst_values_do_not_move_holds() -> None:
    """B is so much better on 28 cases that two failures counted as 0 do not change the verdict."""
    metric, _ = compared([[0.1]] * 30, [[FAILED]] * 2 + [[0.9]] * 28)
    assert metric.errors is not None
    assert (metric.errors.differ, metric.errors.worse) == (True, Side.NEITHER)  # 2 of 30 rows are more than 5 %
    assert metric.worst_case is not None
    assert metric.worst_case.difference == pytest.approx((28 * 0.8 - 2 * 0.1) / 30)
    assert (metric.worst_case.holds, metric.verdict, metric.reason) == (True, ComparisonVerdict.B_BETTER, "")


def test_the_worst_value_is_that_for_the_verdict_claimed() -> None:
    """A seems better while B fails: the greatest value in B's place is the worst for that claim."""
    metric, _ = compared([[0.6]] * 30, [[FAILED]] * 12 + [[0.5]] * 18)
    assert metric.worst_case is not None
    assert metric.worst_case.difference == pytest.approx((-18 * 0.1 + 12 * 0.4) / 30)
    assert metric.verdict is ComparisonVerdict.WITHHELD


@pytest.mark.parametrize(("count", "differ"), [(2, False), (5, True)])
def test_errors_differ_from_the_bound_of_the_run_on(count: int, differ: bool) -> None:
    """Of 100 rows 5 are `max_agent_errors`, though 5 against 0 are not significant (0.0625)."""
    metric, _ = compared([[0.5]] * 100, [[FAILED]] * count + [[0.5]] * (100 - count))
    assert metric.errors is not None
    assert (metric.errors.worse, metric.errors.differ) == (Side.NEITHER, differ)


def test_few_errors_that_do_not_differ_change_nothing() -> None:
    """One failure in 30 cases is neither significant nor above 5 %: the complete cases decide."""
    metric, comparison = compared(HARD["a"], [[FAILED]] + [[0.6]] * 29)
    assert metric.errors is not None
    assert (metric.errors.p, metric.errors.differ, metric.worst_case) == (1.0, False, None)
    assert metric.verdict is ComparisonVerdict.B_BETTER
    assert decide(comparison, DecisionRules()).exit_status == 0


@pytest.mark.parametrize(
    ("cases", "a_errors", "b_errors", "differ"),
    [
        (100, 0, 2, False),
        (100, 0, 3, True),
        (100, 3, 5, True),
        (100, 3, 4, False),
        (400, 8, 13, False),
        (400, 8, 14, True),
    ],
)
def test_errors_differ_before_a_test_finds_it(cases: int, a_errors: int, b_errors: int, *, differ: bool) -> None:
    """A surplus above √n / 4 cases, or 5 % of a run's rows; the errors are on different cases, and p is above 5 %."""
    rows: list[list[float | str]] = [[0.5]] * cases
    a = [[FAILED]] * a_errors + rows[a_errors:]
    b = rows[: cases - b_errors] + [[FAILED]] * b_errors
    metric, _ = compared(a, b)
    assert metric.errors is not None
    assert metric.errors.p > 0.05
    assert metric.errors.differ is differ


def test_a_case_with_an_error_in_a_repeat_is_dropped_whole() -> None:
    """A case with an error in one repeat is dropped; skipped repeats are left out alone."""
    a: list[list[float | str]] = [[0.5, 0.5, 0.5]] * 30
    b: list[Sequence[float | str]] = [[0.9, FAILED, 0.9]] * 10
    b += [[0.5, 0.5, SKIPPED]] * 20
    metric, _ = compared(a, b)
    assert (metric.pair_count, metric.dropped_case_count, metric.difference) == (20, 10, 0.0)
    assert metric.errors is not None
    assert (metric.errors.b_row_count, metric.errors.b_case_count) == (10, 10)


def test_ratings_that_are_all_0_or_1_have_worst_values_of_their_own_scale() -> None:
    """The worst rating is 5, which is no rate: such values are no 0 and 1, though all that there are might be."""
    rating = MetricFacts("tone", "quality", scale=(0.0, 5.0))
    comparison, _ = compared([[1.0]] * 20, [[FAILED]] * 6 + [[0.0]] * 14, rating)
    assert comparison.worst_case is not None
    assert comparison.worst_case.difference == pytest.approx((6 * 4 - 14) / 20)


def test_without_a_scale_there_is_no_worst_value() -> None:
    """Seconds have no greatest value: the verdict is withheld, and the message says why."""
    metric, _ = compared([[2.0]] * 30, [[FAILED]] * 12 + [[1.0]] * 18, LATENCY)
    assert (metric.verdict, metric.reason, metric.worst_case) == (ComparisonVerdict.WITHHELD, "agent_errors", None)
    assert "no worst value" in metric.message


def test_errors_of_a_judge_count_alike_and_are_no_regression() -> None:
    """Where a judge failed, the metric's verdict is withheld, and the agent did not fail."""
    metric, comparison = compared(HARD["a"], HARD["b"], is_agent=False)
    assert (metric.verdict, metric.reason, comparison.pairs[0].errors) == (
        ComparisonVerdict.WITHHELD,
        "agent_errors",
        None,
    )
    assert decide(comparison, DecisionRules()).exit_status == 0
    assert decide(comparison, DecisionRules(strict=True)).exit_status == 4


def test_equivalence_must_survive_both_worst_values() -> None:
    """Of 200 equal cases six failures could hide losses of 0.5: beyond a margin of 0.02, within one of 0.2."""
    a: list[list[float | str]] = [[0.5]] * 200
    b = [[FAILED]] * 6 + a[6:]
    for margin, verdict in (
        (0.01, ComparisonVerdict.INCONCLUSIVE),
        (0.02, ComparisonVerdict.WITHHELD),
        (0.2, ComparisonVerdict.EQUIVALENT),
    ):
        assert compared(a, b, margin=margin)[0].verdict is verdict


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.4])
def test_failures_of_bad_runs_make_no_run_better(repeats: int, share: float) -> None:
    """B is equal to A and fails where its value would have been bad: not more than 5 % and three errors are better."""
    better = 0
    for seed in range(TRIALS):
        rng = random.Random(seed)
        a, b = ([[min(1.0, max(0.0, rng.gauss(0.6, 0.2))) for _ in range(repeats)] for _ in range(60)] for _ in "ab")
        values = sorted(value for case in b for value in case)
        bad = values[int(share * len(values))]
        failing = [[FAILED if value < bad else value for value in case] for case in b]
        better += compared(a, failing)[0].verdict is ComparisonVerdict.B_BETTER
    assert better <= TRIALS * 0.05 + 3 * (TRIALS * 0.05 * 0.95) ** 0.5
