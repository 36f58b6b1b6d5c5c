"""The summary of a run: counts, status, gates, and bits that do not depend on order."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.metrics.core.score import Metric, Row
from assay.model.answers.agent_response import AgentStatus
from assay.model.run import GateOutcome, RowResult, RunSummary
from assay.statistics.exact_sum import ExactSum, exact_mean
from assay_orchestrator.summary.run_summary import summarise

NAMES = ("semantic_similarity", "exact_match", "coverage", "satisfaction", "latency")
Summarise = Callable[..., RunSummary]


@pytest.fixture
def summary_of(metric: Callable[..., Metric], result: Callable[..., RowResult]) -> Summarise:
    """The summary of some rows by metrics with default parameters, or by those given."""

    def build(
        rows: Sequence[Row], names: Sequence[str] = NAMES, gates: Sequence[str] = (), metrics: Sequence[Metric] = ()
    ) -> RunSummary:
        metrics = metrics or [metric(name) for name in names]
        stored = [result(row, metrics, index) for index, row in enumerate(rows)]
        return summarise(stored, metrics, gates)

    return build


def _random_rows(row: Callable[..., Row], seed: int, count: int) -> list[Row]:
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        vectors = [[chance.gauss(0, 1) for _ in range(4)] for _ in range(2)]
        rows.append(
            row(
                chance.choice(["a", "b", "", "couldn't find any events"]),
                chance.choice([["a"], ["b"], []]),
                events=chance.choice([None, 0, 2]),
                latency_ms=chance.choice([None, chance.uniform(0, 20_000), chance.uniform(0, 1e-3)]),
                failed=chance.random() < 0.2,
                vectors=vectors if chance.random() < 0.9 else [],
            )
        )
    return rows


def _bits(summary: RunSummary) -> str:
    return json.dumps(dataclasses.asdict(summary), sort_keys=True, allow_nan=False)


@given(seed=st.integers(0, 2**32), count=st.integers(0, 40), order=st.randoms())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_rows_gives_the_same_bits(
    summary_of: Summarise, row: Callable[..., Row], seed: int, count: int, order: random.Random
) -> None:
    """Re-ordered and re-sharded runs have one summary, to the last bit and without NaN."""
    rows = _random_rows(row, seed, count)
    gates = ["pass_rate >= 0.5", "latency.p95 < 4", "semantic_similarity >= 0.1"]
    expected = _bits(summary_of(rows, gates=gates))
    order.shuffle(rows)
    assert _bits(summary_of(rows, gates=gates)) == expected


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.one_of(FINITE, st.floats(-1e150, 1e150), st.sampled_from([1e308, -1e308, 5e-324])), max_size=50))
def test_a_streamed_sum_is_rounded_once(terms: list[float]) -> None:
    """The running sum and the mean are the exact rational results, rounded once."""
    total = ExactSum()
    for term in terms:
        total.add(term)
    exact = sum(map(Fraction, terms), Fraction(0))
    assert (total.exact, total.count) == (exact, len(terms))
    if abs(exact) <= Fraction(sys.float_info.max):
        assert total.total == float(exact)
    assert abs(total.total) <= sys.float_info.max
    if terms:
        assert total.mean == pytest.approx(float(exact / len(terms)), rel=1e-15, abs=5e-324)
        assert exact_mean(terms) == pytest.approx(float(exact / len(terms)), rel=1e-15, abs=5e-324)


@given(st.lists(st.tuples(FINITE, st.floats(0, 1e6)), min_size=1, max_size=20), st.randoms())
def test_a_weighted_sum_has_no_order(terms: list[tuple[float, float]], order: random.Random) -> None:
    """Terms and weights whose product overflows are summed to the same bits in any order."""
    sums = []
    for _ in range(2):
        total = ExactSum()
        for term, weight in terms:
            total.add(term, weight)
        sums.append(total.exact)
        order.shuffle(terms)
    assert sums[0] == sums[1]


def test_values_near_the_end_of_floats_are_summed_up(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """Three rows of 1e308 have a mean, by weight too, and the summary has neither NaN nor infinity."""
    huge = metric("formula", formula="answer_chars * 1e308", threshold=1)
    scores = (huge.score(row("x")),)
    stored = [
        RowResult(f"c{index}", index, 1, "a", AgentStatus.SUCCESS, True, scores, 1e300, "", weight=9.0)
        for index in range(3)
    ]
    summary = summarise(stored, [huge], ["formula >= 1e307"])
    assert (summary.metrics[0].value, summary.weighted and summary.weighted.metrics) == (1e308, {"formula": 1e308})
    assert (summary.categories[0].metrics, summary.gates[0].outcome) == ({"formula": 1e308}, GateOutcome.PASS)
    assert "Infinity" not in _bits(summary)


@given(seed=st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_null_row_changes_only_counts(summary_of: Summarise, row: Callable[..., Row], seed: int) -> None:
    """A row without inputs for a metric leaves value, verdicts and threshold unchanged."""
    names = ("semantic_similarity", "exact_match", "satisfaction", "latency")
    rows = _random_rows(row, seed, 12)
    before, after = summary_of(rows, names), summary_of([*rows, row("answer")], names)
    assert after.pass_rate == before.pass_rate
    for old, new in zip(before.metrics, after.metrics, strict=True):
        assert (new.value, new.scored_count, new.passed_count, new.failed_count) == (
            old.value,
            old.scored_count,
            old.passed_count,
            old.failed_count,
        )
        assert (new.meets_threshold, new.detail) == (old.meets_threshold, old.detail)
        assert new.skipped_count == old.skipped_count + 1


@given(seed=st.integers(0, 2**32), references=st.sampled_from([["a"], []]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_agent_error_never_helps(
    summary_of: Summarise, row: Callable[..., Row], seed: int, references: list[str]
) -> None:
    """One more failed agent raises neither the pass rate nor coverage, exact match or satisfaction."""
    rows = _random_rows(row, seed, 12)
    before = summary_of(rows)
    after = summary_of([*rows, row("a", references, failed=True, events=2, latency_ms=1.0)])
    assert before.pass_rate is None or after.pass_rate is not None
    assert (after.pass_rate or 0.0) <= (before.pass_rate or 0.0)
    for old, new in zip(before.metrics, after.metrics, strict=True):
        if old.metric in ("exact_match", "coverage", "satisfaction"):
            assert (new.value or 0.0) <= (old.value or 0.0)
        assert _share(new.passed_count, new.failed_count) <= _share(old.passed_count, old.failed_count)


def _share(passed: int, failed: int) -> float:
    return passed / (passed + failed) if passed else 0.0


def test_every_row_is_counted_once_by_every_metric(summary_of: Summarise, row: Callable[..., Row]) -> None:
    """Scored, skipped and error rows of each metric add up to all rows."""
    for metric in summary_of(_random_rows(row, 1, 60)).metrics:
        assert metric.scored_count + metric.skipped_count + metric.error_count == 60


def test_pass_rate_leaves_undecided_rows_out(summary_of: Summarise, row: Callable[..., Row]) -> None:
    """Passed by decided rows; a row without verdict is in neither part."""
    rows = [row("a", ["a"]), row("b", ["a"]), row("a", ["a"], failed=True), row("a")]
    summary = summary_of(rows, ["exact_match"])
    assert (summary.passed_count, summary.decided_count) == (1, 3)
    assert summary.pass_rate == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("answers", "status", "failed", "skipped"),
    [
        (["a", "a"], "PASS", [], ["tokens", "latency"]),
        (["a", "b"], "FAIL", ["exact_match"], ["tokens", "latency"]),
    ],
)
def test_overall_status_is_decided_by_computed_metrics(
    summary_of: Summarise,
    row: Callable[..., Row],
    answers: list[str],
    status: str,
    failed: list[str],
    skipped: list[str],
) -> None:
    """Metrics without a value and without a threshold are listed, and do not decide."""
    summary = summary_of([row(answer, ["a"]) for answer in answers], ["tokens", "exact_match", "latency"])
    assert (summary.verdict, summary.failed_criteria, summary.skipped_criteria) == (status, failed, skipped)


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_computed_is_no_data(summary_of: Summarise, row: Callable[..., Row], count: int) -> None:
    """A run without any value neither passes nor fails."""
    summary = summary_of([row("a")] * count, ["semantic_similarity", "exact_match"])
    assert summary.verdict == "NO_DATA"
    assert summary.pass_rate is None
    assert [metric.skipped_count for metric in summary.metrics] == [count, count]


def test_latency_of_the_run_is_over_measured_answers(summary_of: Summarise, row: Callable[..., Row]) -> None:
    """Failed calls, missing and impossible durations do not count."""
    rows = [row(latency_ms=1000.0), row(latency_ms=3000.0, failed=True)]
    rows += [row(latency_ms=value) for value in (None, -1.0, math.nan, math.inf)]
    latency = summary_of(rows, ["exact_match"]).latency
    assert (latency.answer_count, latency.mean_ms, latency.max_ms) == (1, 1000.0, 1000.0)


@pytest.mark.parametrize(
    ("gate", "outcome", "actual"),
    [
        ("pass_rate >= 0.5", GateOutcome.PASS, 0.5),
        ("pass_rate > 0.5", GateOutcome.FAIL, 0.5),
        ("exact_match >= 0.6", GateOutcome.FAIL, 0.5),
        ("exact_match.pass_rate >= 0.5", GateOutcome.PASS, 0.5),
        ("latency.p50 <= 2", GateOutcome.PASS, 2.0),
        ("latency.mean == 2", GateOutcome.PASS, 2.0),
        ("latency < 2", GateOutcome.FAIL, 2.0),
        ("latency.max < 4", GateOutcome.PASS, 3.0),
    ],
)
def test_gates_on_what_was_computed(
    summary_of: Summarise, row: Callable[..., Row], gate: str, outcome: GateOutcome, actual: float
) -> None:
    """Each statistic that a gate may name is compared with its bound."""
    rows = [row("a", ["a"], latency_ms=1000.0), row("b", ["a"], latency_ms=3000.0)]
    (found,) = summary_of(rows, ["exact_match", "latency"], [gate]).gates
    assert (found.expression, found.outcome, found.actual, found.message) == (gate, outcome, actual, "")


@pytest.mark.parametrize(
    ("gate", "reason"),
    [
        ("semantic_similarity >= 0", "semantic_similarity could not be computed on 1 of 2 rows"),
        ("pass_rate >= 0", "1 of 2 rows could not be decided because a metric could not be computed"),
        ("latency < 9", "latency was computed on no row"),
        ("coverage.pass_rate >= 0", "coverage gave no row a verdict"),
    ],
)
def test_a_gate_on_what_is_unknown_is_incomplete(
    summary_of: Summarise, row: Callable[..., Row], gate: str, reason: str
) -> None:
    """A gate never passes or fails on a number that failures of our own have thinned out."""
    rows = [row("a", ["a"], vectors=[(1, 0), (1, 0)]), row("a", ["a"], error="embedder_unavailable")]
    (found,) = summary_of(rows, ["semantic_similarity", "coverage", "latency"], [gate]).gates
    assert (found.outcome, found.actual) == (GateOutcome.INCOMPLETE, None)
    assert found.message.startswith(reason)


def test_a_metric_without_verdict_cannot_hold_up_the_pass_rate(summary_of: Summarise, row: Callable[..., Row]) -> None:
    """Satisfaction without a threshold may fail on a row that exact match decides."""
    rows = [row("a", ["a"], error="embedder_unavailable", latency_ms=1.0)]
    summary = summary_of(rows, ["exact_match", "satisfaction"], ["pass_rate >= 1", "satisfaction >= 0"])
    assert [gate.outcome for gate in summary.gates] == [GateOutcome.PASS, GateOutcome.INCOMPLETE]


def test_a_gate_on_nothing_decided_says_so(summary_of: Summarise, row: Callable[..., Row]) -> None:
    """A run in which no metric decides has no pass rate to gate."""
    (gate,) = summary_of([row("a", events=1)], ["coverage"], ["pass_rate >= 0.5"]).gates
    assert (gate.outcome, gate.message) == (GateOutcome.INCOMPLETE, "no metric decided any row")
