"""Intervals: Wilson's, as its worked examples and its bounds say, and those of a run's metrics."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics import build_metric, complete_parameters
from assay.model.run import Score, ScoreStatus
from assay.model.run_spec import MetricSpec
from assay.statistics.intervals import wilson
from assay_orchestrator.summary.intervals import MetricIntervals


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (17, 20, 0.639581, 0.947631),
        (20, 20, 0.838875, 1.0),
        (0, 20, 0.0, 0.161125),
        (5, 5, 0.565518, 1.0),
        (22, 25, 0.700442, 0.958332),
        (850, 1000, 0.826531, 0.870790),
        (3, 40, 0.025836, 0.198642),
        (28, 40, 0.545700, 0.819252),
    ],
)
def test_known_intervals(successes: int, n: int, low: float, high: float) -> None:
    """Rates have the intervals that are published for them; both ends are exact where nothing or all succeeded."""
    interval = wilson(successes, n)
    assert interval == pytest.approx((low, high), abs=1e-6)
    assert interval is not None
    if successes == n:
        assert interval[1] == 1.0
    if successes == 0:
        assert interval[0] == 0.0


def test_no_trials_have_no_interval() -> None:
    """Without a trial there is nothing to say."""
    assert wilson(0, 0) is None


@given(st.integers(1, 10**9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_rate_and_lies_in_the_unit_range(counts: tuple[int, int]) -> None:
    """0 <= low <= k/n <= high <= 1, and failures mirror successes."""
    successes, n = counts
    interval = wilson(successes, n)
    assert interval is not None
    assert 0.0 <= interval[0] <= successes / n <= interval[1] <= 1.0
    mirrored = wilson(n - successes, n)
    assert mirrored == pytest.approx((1 - interval[1], 1 - interval[0]), abs=1e-12)


@pytest.mark.parametrize("kind", ["latency", "tokens", "cost"])
def test_no_interval_of_a_metric_that_is_never_negative_begins_below_0(kind: str) -> None:
    """One value far above nineteen others makes the interval of their mean wide."""
    intervals = MetricIntervals(build_metric(MetricSpec(kind, complete_parameters(kind, {}, where=kind))))
    values = [0.1] * 19 + [30.0]
    for value in values:
        intervals.add(Score(kind, ScoreStatus.SCORED, value), None)
    low, high = intervals.of_value(math.fsum(values) / len(values)) or (-1.0, -1.0)
    assert (low, high > 4) == (0.0, True)
    assert intervals.of_value(30.0) is None  # a percentile, say
