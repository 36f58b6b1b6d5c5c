"""Intervals of means: the examples of the specification, scipy's quantiles, and what must always hold."""

from __future__ import annotations

import math

import pytest
import scipy  # its stats are imported when a test names them: each process of the tests collects them all
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics.intervals import MeanInterval
from assay.statistics.student import t_quantile_95


def interval(values: list[float], clusters: str = "") -> tuple[float, float] | None:
    """The interval of values, each a cluster of its own unless clusters are named."""
    found = MeanInterval()
    for index, value in enumerate(values):
        found.take(value, clusters[index] if clusters else index)
    return found.result()


def test_the_mean_of_five_ratings() -> None:
    """Mean of 4, 5, 4, 3, 5: 4.2, interval 3.161149 to 5.238851."""
    assert interval([4, 5, 4, 3, 5]) == pytest.approx((3.161149, 5.238851), abs=1e-6)


def test_clusters_widen_or_narrow_the_interval() -> None:
    """The clustered standard error, 0.136083 here, and t with one degree of freedom less than there are clusters."""
    differences = [0, 1, 1, 0, 0, 0, 1, -1, 1, 1, 0, 0]
    assert interval([float(one) for one in differences], "aaabbbcccddd") == pytest.approx(
        (-0.099743, 0.766409), abs=1e-6
    )


@pytest.mark.parametrize("values", [[], [0.5], [0.5, 0.5, 0.5]])
def test_no_interval_without_two_different_values(values: list[float]) -> None:
    """One value, or equal ones, say nothing of how far the mean may be off."""
    assert interval(values) is None


def test_one_cluster_has_no_interval() -> None:
    """Runs of one case alone say nothing of other cases."""
    assert interval([0.1, 0.2, 0.9], "aaa") is None


@given(st.integers(1, 200_000))
def test_quantiles_are_those_of_scipy(df: int) -> None:
    """To ten digits, for any number of degrees of freedom."""
    assert t_quantile_95(df) == pytest.approx(float(scipy.stats.t.ppf(0.975, df)), rel=1e-9)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50), st.floats(-1e6, 1e6))
def test_an_interval_is_around_the_mean_and_moves_with_the_values(values: list[float], shift: float) -> None:
    """It is scipy's, and adding a number to every value moves it by that number."""
    found = interval(values)
    if found is None:
        assert max(values) - min(values) <= 1e-6 * max(1.0, *map(abs, values))
        return
    error = float(scipy.stats.sem(values))
    expected = scipy.stats.t.interval(0.95, len(values) - 1, math.fsum(values) / len(values), error)
    scale = max(1.0, *map(abs, values), abs(shift))
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6 * scale)
    moved = interval([value + shift for value in values])
    assert moved is None or moved == pytest.approx([end + shift for end in found], rel=1e-6, abs=1e-5 * scale)


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([5e173, 1.7e308, -1.7e308]), max_size=9
    ),
    st.sampled_from(["", "aabbcceff"]),
)
def test_values_whose_squares_overflow_make_nothing_infinite(values: list[float], clusters: str) -> None:
    """Whatever finite values come: mean and interval are finite numbers in their order, or absent."""
    found = MeanInterval()
    for index, value in enumerate(values):
        found.take(value, clusters[index] if clusters else index)
    mean, ends = found.mean, found.result()
    assert mean is None or math.isfinite(mean)
    if ends is not None:
        assert mean is not None
        assert -math.inf < ends[0] <= mean <= ends[1] < math.inf


def test_a_large_value_beside_small_ones_has_an_interval_where_a_float_holds_it() -> None:
    """Squares of 1e150 are numbers; those of 5e173 are none, and their mean has no interval."""
    assert interval([1.0, 1e150, 3.0]) is not None
    assert interval([1.0, 5e173, 3.0]) is None


def test_no_degrees_of_freedom_is_an_error() -> None:
    """The distribution begins at one degree."""
    with pytest.raises(ValueError, match="at least one degree"):
        t_quantile_95(0)
