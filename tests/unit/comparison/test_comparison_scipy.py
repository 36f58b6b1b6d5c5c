"""The tests between variants are those of scipy, on random data sets, where both compute the same thing."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # its stats are imported when a test names them: each process of the tests collects them all
from tests.unit.comparison.random_data import CLOSE, generators

from assay.statistics.clusters import in_clusters
from assay.statistics.independent import chi_square, cochran_q, friedman, t_test
from assay.statistics.intervals import wilson
from assay.statistics.paired import mcnemar, paired_scores
from assay.statistics.sign_flips import SignFlip, sign_flip


def test_mcnemar_is_the_binomial_test() -> None:
    """The exact p-value is that of wins against losses; the intervals of both rates are Wilson's."""
    for rng in generators():
        both, b, c, neither = (int(one) for one in rng.integers(0, rng.choice([4, 30, 400]), 4))
        if not b + c:
            continue
        test = scipy.stats.binomtest(b, b + c, 0.5)
        assert mcnemar(both, b, c, neither).p == pytest.approx(test.pvalue, rel=1e-7)
        interval = test.proportion_ci(method="wilson")
        assert wilson(b, b + c) == pytest.approx((interval.low, interval.high), abs=CLOSE)


def test_paired_t() -> None:
    """Statistic, p-value and interval of the paired t-test; each case a cluster of its own changes nothing."""
    for rng in generators():
        n = int(rng.integers(2, 40))
        a = rng.integers(1, 6, n).astype(float)
        b = np.clip(a + rng.integers(-1, 3, n), 1, 5)
        found = paired_scores(a.tolist(), b.tolist(), flip=SignFlip(1.0, "exact"))
        if np.ptp(b - a) == 0:
            assert found.t is None
            continue
        expected = scipy.stats.ttest_rel(b, a)
        assert (found.t, found.t_p) == pytest.approx((expected.statistic, expected.pvalue), rel=CLOSE)
        interval = expected.confidence_interval()
        assert found.interval == pytest.approx((interval.low, interval.high), abs=CLOSE)
        assert in_clusters((b - a).tolist(), range(n)).error == pytest.approx(scipy.stats.sem(b - a), rel=CLOSE)


def test_sign_flips_are_the_permutation_test() -> None:
    """All assignments of signs to few differences, of a tenth of the data sets because scipy takes its time."""
    for rng in list(generators())[::10]:
        differences = rng.choice([-1.0, -0.5, 0.25, 0.5, 1.0, 2.0], int(rng.integers(2, 8)))
        expected = scipy.stats.permutation_test(
            (differences,), lambda one, axis: one.sum(axis), permutation_type="samples", vectorized=True
        )
        assert sign_flip(differences.tolist()).p == pytest.approx(expected.pvalue, abs=CLOSE)


def test_chi_square_of_two_and_of_three() -> None:
    """With Yates' correction for two variants; Fisher's test where a count is small."""
    for rng in generators():
        counts = rng.integers(0, rng.choice([6, 60]), (int(rng.integers(2, 4)), 2))
        found = chi_square([(int(right), int(wrong)) for right, wrong in counts])
        if not counts.sum(axis=1).all():
            assert found.p is None
        elif not counts.sum(axis=0).all():
            assert found.p == 1
        else:
            expected = scipy.stats.chi2_contingency(counts)
            assert found.statistic == pytest.approx(expected.statistic, rel=CLOSE, abs=CLOSE)
            is_exact = len(counts) == 2 and expected.expected_freq.min() < 5
            assert (found.other_p if is_exact else found.p) == pytest.approx(expected.pvalue, rel=CLOSE)
            if is_exact:
                assert found.p == pytest.approx(scipy.stats.fisher_exact(counts).pvalue, rel=CLOSE)


@pytest.mark.filterwarnings("ignore:Precision loss")  # scipy says so where one sample is constant
def test_t_of_independent_scores() -> None:
    """Student's test with pooled variance, over samples of different sizes."""
    for rng in generators():
        a, b = (rng.integers(1, 6, int(rng.integers(2, 30))).astype(float) for _ in range(2))
        found = t_test(a.tolist(), b.tolist())
        if np.ptp(a) == 0 and np.ptp(b) == 0:
            assert found.p is None
            continue
        expected = scipy.stats.ttest_ind(a, b)
        assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=CLOSE, abs=CLOSE)


def test_friedman() -> None:
    """Three to five variants, with many ties."""
    for rng in generators():
        rows = rng.integers(1, 6, (int(rng.integers(2, 12)), int(rng.integers(3, 6)))).astype(float)
        found = friedman(rows.tolist())
        if all(np.ptp(row) == 0 for row in rows):
            assert found.p == 1
            continue
        expected = scipy.stats.friedmanchisquare(*rows.T)
        assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=CLOSE, abs=CLOSE)


def test_cochran_q_is_friedman_of_zeros_and_ones() -> None:
    """The two statistics are equal on 0 and 1, so scipy's Friedman test checks Cochran's Q as well."""
    for rng in generators():
        rows = rng.integers(0, 2, (int(rng.integers(2, 12)), int(rng.integers(3, 6))))
        found = cochran_q(rows.tolist())
        if all(np.ptp(row) == 0 for row in rows):
            assert (found.statistic, found.p) == (0, 1)
            continue
        expected = scipy.stats.friedmanchisquare(*rows.T)
        assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=CLOSE, abs=CLOSE)
