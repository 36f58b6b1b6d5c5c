"""Comparing with a threshold, and the interval of a rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.intervals import wilson
from assay.metrics.thresholds import exceeds, meets


@pytest.mark.parametrize(
    ("value", "threshold", "expected"),
    [(0.1 + 0.2, 0.3, True), (0.7499999999, 0.75, True), (0.749999, 0.75, False), (0.3, 0.1 + 0.2, True)],
)
def test_at_least_forgives_float_noise_only(value: float, threshold: float, expected: bool) -> None:
    """A value 1e-10 below the threshold meets it, one 1e-6 below does not."""
    assert meets(value, threshold) is expected


@pytest.mark.parametrize(
    ("value", "threshold", "expected"),
    [(16 / 20, 0.80, False), (0.8000001, 0.80, True), (0.1 + 0.2, 0.3, False), (0.7, 0.8, False)],
)
def test_more_than_needs_more_than_float_noise(value: float, threshold: float, expected: bool) -> None:
    """Equality up to float noise is not "more than"."""
    assert exceeds(value, threshold) is expected


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (17, 20, 0.639581, 0.947631),
        (20, 20, 0.838875, 1.0),
        (0, 20, 0.0, 0.161125),
        (5, 5, 0.565518, 1.0),
        (22, 25, 0.700442, 0.958332),
        (850, 1000, 0.826531, 0.870790),
    ],
)
def test_wilson_interval_of_known_rates(successes: int, n: int, low: float, high: float) -> None:
    """The interval has the published values."""
    assert wilson(successes, n) == pytest.approx((low, high), abs=1e-6)


def test_no_rows_have_no_interval() -> None:
    """An interval over nothing is absent, not 0 to 1."""
    assert wilson(0, 0) is None


@given(st.integers(1, 10**9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_the_rate_and_stays_in_the_unit(pair: tuple[int, int]) -> None:
    """0 <= low <= k/n <= high <= 1 for every k and n."""
    successes, n = pair
    interval = wilson(successes, n)
    assert interval is not None
    low, high = interval
    assert 0.0 <= low <= successes / n <= high <= 1.0
