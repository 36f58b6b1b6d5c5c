"""Intervals of means: the examples of the specification, scipy's quantiles, and what must always hold."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import scipy  # its stats are imported when a test names them: each process of the tests collects them all
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics.clustered_mean import ClusteredMean
from assay.statistics.student import t_quantile_95


def interval(values: list[float], clusters: str = "") -> tuple[float, float] | None:
    """The interval of values, each a cluster of its own unless clusters are named."""
    return mean_of(values, clusters).interval()


def mean_of(values: list[float], clusters: str = "") -> ClusteredMean:
    """The mean of values, each a cluster of its own unless clusters are named."""
    mean = ClusteredMean()
    for index, value in enumerate(values):
        mean.take(value, ord(clusters[index]) if clusters else None)
    return mean


def test_the_mean_of_five_ratings() -> None:
    """Mean of 4, 5, 4, 3, 5: 4.2, interval 3.161149 to 5.238851."""
    assert interval([4, 5, 4, 3, 5]) == pytest.approx((3.161149, 5.238851), abs=1e-6)


def test_clusters_widen_or_narrow_the_interval() -> None:
    """The clustered standard error, 0.136083 here, and t with one degree of freedom less than there are clusters."""
    differences = [0, 1, 1, 0, 0, 0, 1, -1, 1, 1, 0, 0]
    assert interval([float(difference) for difference in differences], "aaabbbcccddd") == pytest.approx(
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
    """It is scipy's, and adding a number to every value moves it by that number. A rate's is another."""
    if {0.0, 1.0}.issuperset(values):
        return
    limits = interval(values)
    if limits is None:
        assert max(values) - min(values) <= 1e-6 * max(1.0, *map(abs, values))
        return
    error = float(scipy.stats.sem(values))
    expected = scipy.stats.t.interval(0.95, len(values) - 1, math.fsum(values) / len(values), error)
    scale = max(1.0, *map(abs, values), abs(shift))
    assert limits == pytest.approx(expected, rel=1e-6, abs=1e-6 * scale)
    shifted = [value + shift for value in values]
    moved = None if {0.0, 1.0}.issuperset(shifted) else interval(shifted)
    assert moved is None or moved == pytest.approx([end + shift for end in limits], rel=1e-6, abs=1e-5 * scale)


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([5e173, 1.7e308, -1.7e308]), max_size=9
    ),
    st.sampled_from(["", "aabbcceff"]),
)
def test_values_whose_squares_overflow_make_nothing_infinite(values: list[float], clusters: str) -> None:
    """Whatever finite values come: mean and interval are finite numbers in their order, or absent."""
    found = mean_of(values, clusters)
    mean, ends = found.mean, found.interval()
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


def brute(values: list[float], clusters: list[int]) -> tuple[float, float]:
    """CR2's error by its matrices, and the degrees of freedom, of a mean over clusters."""
    n, names = len(values), sorted(set(clusters))
    mean = math.fsum(values) / n
    hat = np.full((n, n), 1 / n)
    rest, error, columns = np.eye(n) - hat, 0.0, []
    for name in names:
        places = [index for index, cluster in enumerate(clusters) if cluster == name]
        own = np.eye(len(places)) - hat[np.ix_(places, places)]
        found, vectors = np.linalg.eigh(own)
        half = vectors @ np.diag(found**-0.5) @ vectors.T
        error += float(half.sum(0) @ (np.array(values)[places] - mean)) ** 2 / n**2
        columns.append(rest[:, places] @ half @ np.ones(len(places)) / n)
    inner = np.array(columns) @ np.array(columns).T
    return math.sqrt(error), float(np.trace(inner) ** 2 / (inner**2).sum())


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 6)), min_size=3, max_size=30))
def test_means_have_cr2_and_the_degrees_of_satterthwaite(rows: list[tuple[float, int]]) -> None:
    """The closed form is that of the matrices, for clusters of any size."""
    values, clusters = [value for value, _ in rows], [cluster for _, cluster in rows]
    found = ClusteredMean()
    for value, cluster in rows:
        found.take(value, cluster)
    ends = found.interval()
    if found.is_rate or ends is None:
        return
    error, degrees = brute(values, clusters)
    mean, half = math.fsum(values) / len(values), scipy.stats.t.ppf(0.975, max(1, degrees)) * error
    assert ends == pytest.approx((mean - half, mean + half), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "clusters", "worth"),
    [
        ([1.0] * 20, "abcdefghijklmnopqrst", 20),
        ([1.0] * 20, "aaaaaaaaaabbbbbbbbbb", 2),  # no spread: (Σ n)² / Σ n²
        ([1.0] * 6, "aaaabb", 36 / 20),
        ([0.0, 0.0, 1.0, 1.0, 1.0, 1.0], "aabbcc", 3),  # repeats that agree: Wilson over the cases
        ([0.0, 1.0] * 3, "aabbcc", 3),  # clusters that do not differ
    ],
)
def test_how_many_independent_cases_a_rate_rests_on(values: list[float], clusters: str, worth: float) -> None:
    """One without clusters, as many as there are clusters where their values agree."""
    assert mean_of(values, clusters).effective_count() == pytest.approx(worth)


def test_rows_of_clusters_that_differ_little_are_worth_nearly_all() -> None:
    """Never more than there are rows, nor less than one."""
    chance = random.Random(4)
    mean = mean_of([float(chance.random() < 0.5) for _ in range(400)], "".join(map(chr, range(65, 105))) * 10)
    assert 150 < (mean.effective_count() or 0) <= 400
    assert mean_of([1.0, 0.0, 0.0], "abb").effective_count() == pytest.approx(9 / 5)


SETTINGS = [
    ([3] * 20, 0.9, 0.0), ([3] * 50, 0.97, 0.25), ([5] * 20, 0.97, 0.25),  # repeats
    ([2] * 20, 0.9, 1.0), ([5] * 20, 0.9, 1.0),  # copies
    ([5] * 20, 0.9, 0.3), ([5] * 20, 0.9, 0.6), ([10] * 10, 0.9, 0.3), ([200] + [5] * 9, 0.8, 0.3),  # documents
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "rate", "likeness"), SETTINGS)
def test_intervals_of_clustered_rates_cover(sizes: list[int], rate: float, likeness: float) -> None:
    """At least 90 % of 200: 93 % less more than a standard error. Decision 111 has more settings."""
    chance, covered, alike = random.Random(1), 0, (1 - likeness) / likeness if likeness else 0
    for _ in range(200):
        mean = ClusteredMean()
        for number, size in enumerate(sizes):
            own = chance.betavariate(rate * alike, (1 - rate) * alike) if 0 < likeness < 1 else rate
            own = float(chance.random() < rate) if likeness == 1 else own
            for _ in range(size):
                mean.take(float(chance.random() < own), number)
        low, high = mean.interval() or (1.0, 0.0)
        covered += low - 1e-9 <= rate <= high + 1e-9
    assert covered >= 180
