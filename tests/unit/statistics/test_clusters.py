"""Cases in clusters: worked rows, the matrices behind the closed forms, the inverted test, and what always holds."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics.clustered_mean import clustered_wilson
from assay.statistics.clusters import (
    can_decide,
    effective_number,
    in_clusters,
    least_units,
)
from assay.statistics.intervals import wilson
from assay.statistics.paired import paired_scores
from assay.statistics.sign_flips import sign_flip, sign_flip_interval

if TYPE_CHECKING:
    import random

CLOSE = 1e-6
CASES = st.lists(
    st.tuples(st.sampled_from([-1.0, -0.5, 0.0, 0.1, 0.5, 1.0]), st.integers(0, 9)), min_size=1, max_size=40
)


@pytest.mark.parametrize(
    ("differences", "clusters", "error", "degrees", "p", "interval", "method"),
    [
        # error² = (2 · 1.5² / (3/4) + 2 · 1² / (5/6)) / 12²; two sums are not 0, and 3 + 2 is reached by no other signs
        ([1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 0, 0], "aaabbbccddee", 0.241523, 3.813559, 0.25, (-0.183704, 1.183704), "cr2"),
        # equal clusters: 3 degrees, and the error of section 17.3
        ([0, 1, 1, 0, 0, 0, 1, -1, 1, 1, 0, 0], "aaabbbcccddd", 0.136083, 3.0, 0.25, (-0.099743, 0.766409), "cr2"),
        # sums 4, 1, 1, 1, 1, 0, -1: 12 of 64 assignments reach 7
        ([1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0, -1], "aaaabbccdefg", 0.231513, 4.278642, 0.1875, (0.0, 1.0), "sign_flip"),
    ],
)
def test_worked_comparisons(
    differences: list[float],
    clusters: str,
    error: float,
    degrees: float,
    p: float,
    interval: tuple[float, float],
    method: str,
) -> None:
    """CR2 error with Satterthwaite's degrees, p of the clusters' sums, and the interval with the way it was found."""
    paired = paired_scores([0.0] * len(differences), differences, clusters=clusters)
    assert (paired.standard_error, paired.flip.p) == pytest.approx((error, p), abs=CLOSE)
    assert in_clusters(differences, clusters).degrees == pytest.approx(degrees, abs=CLOSE)
    assert paired.interval == pytest.approx(interval, abs=CLOSE)
    assert paired.interval_method == method


def test_errors_are_those_of_the_matrices() -> None:
    """The closed forms against adjustment matrices (I - H)^(-1/2) and traces, as the papers define them."""
    rng = np.random.default_rng(4)
    for sizes in ([9, 1, 1, 1], [1, 2, 3, 4, 5], [4, 4, 4], [20, 3], [1] * 6):
        keys = np.repeat(np.arange(len(sizes)), sizes)
        values, n = rng.normal(size=len(keys)), len(keys)
        hat = np.full((n, n), 1 / n)
        square, columns = 0.0, []
        for key in range(len(sizes)):
            own = keys == key
            roots, vectors = np.linalg.eigh(np.eye(own.sum()) - hat[np.ix_(own, own)])
            adjusted = vectors @ np.diag(roots**-0.5) @ vectors.T @ np.ones(own.sum()) / n
            square += float(adjusted @ (values - values.mean())[own]) ** 2
            columns.append((np.eye(n) - hat)[:, own] @ adjusted)
        product = np.array(columns) @ np.array(columns).T
        degrees = np.trace(product) ** 2 / np.trace(product @ product)
        clustered = in_clusters(values.tolist(), keys.tolist())
        assert (clustered.error, clustered.degrees) == pytest.approx((square**0.5, degrees))


def test_one_cluster_tells_nothing_of_others() -> None:
    """One cluster has no error, no interval and no verdict."""
    paired = paired_scores([0.0, 0.0], [1.0, 0.5], clusters="aa")
    assert (paired.standard_error, paired.interval, paired.interval_method) == (None, None, "")
    assert (paired.flip.p, paired.flip.least_p) == (1.0, 1.0)


def test_how_many_units_can_decide() -> None:
    """Six at 5 %, eight at 1 %; at a power of two the p-value must be below it."""
    assert [least_units(alpha) for alpha in (0.05, 0.01, 0.1, 1 / 32)] == [6, 8, 5, 7]
    assert (can_decide(6, 0.05), can_decide(5, 0.05), can_decide(0, 0.9)) == (True, False, False)


def test_the_size_of_clusters() -> None:
    """One cluster of 200 and nine of 5 are worth 1.5."""
    clustered = in_clusters([1.0] * 245, [0] * 200 + [at // 5 for at in range(5, 50)])
    assert clustered.effective_count == pytest.approx(245**2 / (200**2 + 9 * 25)) == effective_number([200] + [5] * 9)
    assert clustered.largest_share == pytest.approx(200 / 245)


def test_copies_count_once() -> None:
    """Twenty copies of one right answer are one case; ten pairs of copies are ten."""
    assert clustered_wilson([1.0] * 20, [0] * 20) == pytest.approx((0.206549, 1.0), abs=CLOSE)
    pairs = [at // 2 for at in range(20)]
    assert clustered_wilson([1.0] * 20, pairs) == pytest.approx(wilson(10, 10))
    answers = [float(at // 2 % 2) for at in range(20)]
    assert clustered_wilson(answers, pairs, alpha=0.1) == pytest.approx(wilson(5, 10, z=NormalDist().inv_cdf(0.95)))
    assert clustered_wilson([0.0, 1.0] * 10, pairs) == pytest.approx(
        wilson(5, 10)
    )  # no spread between clusters proves nothing
    assert clustered_wilson(answers, range(20)) == pytest.approx(wilson(10, 20))
    assert clustered_wilson([], []) is None


@given(CASES, st.randoms())
def test_neither_order_nor_direction_moves_a_bit(cases: list[tuple[float, int]], random: random.Random) -> None:
    """Of p-value, interval and error; swapping A and B mirrors the interval exactly."""
    comparison = compared(cases)
    random.shuffle(cases)
    assert compared(cases) == comparison
    flip, error, interval = compared([(-one, cluster) for one, cluster in cases])
    assert (flip, error) == comparison[:2]
    assert (interval and (-interval[1], -interval[0])) == comparison[2]


def compared(cases: list[tuple[float, int]]) -> tuple[object, float | None, tuple[float, float] | None]:
    """Return p-value, error and interval of clustered differences."""
    values, clusters = zip(*cases, strict=True)
    paired = paired_scores([0.0] * len(values), values, clusters=clusters)
    return paired.flip, paired.standard_error, paired.interval


@pytest.mark.parametrize("count", [6, 9, 20, 21, 40])
def test_the_interval_is_the_test_inverted(count: int) -> None:
    """Means at its ends are just not rejected, means beyond them are, by the test of the shifted sums."""
    rng = np.random.default_rng(count)
    sizes = rng.integers(1, 12, count)
    sums = rng.normal(0.3, 1, count) * sizes
    interval = sign_flip_interval(sums.tolist(), sizes.tolist())
    assert interval is not None
    low, high = interval
    assert low < sums.sum() / sizes.sum() < high
    width = high - low
    slack = 0 if count <= 20 else 0.006  # shifted sums have another order, so other signs are drawn for them
    for end, outward in ((low, -1), (high, 1)):
        inside, outside = (p_of_mean(sums, sizes, end + outward * step * width) for step in (-1e-6, 1e-6))
        assert inside >= 0.05 - slack
        assert outside < 0.05 + slack
    assert p_of_mean(sums, sizes, high + width) < p_of_mean(sums, sizes, high) + 0.01


def p_of_mean(sums: np.ndarray[tuple[int], np.dtype[np.float64]], sizes: np.ndarray[Any, Any], mean: float) -> float:
    """Return the p-value of a mean."""
    return sign_flip((sums - mean * sizes).tolist()).p


def test_too_few_clusters_reject_no_mean() -> None:
    """Five clusters at 5 % reject no mean."""
    assert sign_flip_interval([1.0, 2.0, 1.5, 1.0, 3.0], [1, 1, 2, 1, 1]) is None
    assert sign_flip_interval([1.0, 2.0, 1.5, 1.0, 3.0], [1, 1, 2, 1, 1], alpha=0.1) is not None
