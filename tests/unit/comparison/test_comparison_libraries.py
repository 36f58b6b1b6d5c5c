"""The tests between variants agree with scipy and statsmodels on random data sets.

Both are slow to import, so each test imports what it needs: every process collects all tests.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy  # its stats are imported when a test names them: each process of the tests collects them all

from assay.statistics.adjustment import benjamini_hochberg, holm
from assay.statistics.clusters import in_clusters
from assay.statistics.independent import chi_square, cochran_q, friedman, t_test
from assay.statistics.intervals import wilson
from assay.statistics.paired import mcnemar, paired_scores
from assay.statistics.power import cases_for_scores, detectable_score_difference
from assay.statistics.sign_flips import SignFlip, sign_flip

if TYPE_CHECKING:
    from collections.abc import Iterator


DATA_SETS = int(os.environ.get("ASSAY_TEST_DATA_SETS", "150"))
"""For each comparison of a function; 1,000 take a minute."""
CLOSE = 1e-9


def generators() -> Iterator[np.random.Generator]:
    """Return a generator of random numbers for each data set."""
    return (np.random.default_rng([20, seed]) for seed in range(DATA_SETS))


def test_paired_t() -> None:
    """Statistic, p-value and interval of the paired t-test; each case a cluster of its own changes nothing."""
    for rng in generators():
        n = int(rng.integers(2, 40))
        a = rng.integers(1, 6, n).astype(float)
        b = np.clip(a + rng.integers(-1, 3, n), 1, 5)
        paired = paired_scores(a.tolist(), b.tolist(), flip=SignFlip(1.0, "exact"))
        if np.ptp(b - a) == 0:
            assert paired.t is None
            continue
        expected = scipy.stats.ttest_rel(b, a)
        assert (paired.t, paired.t_p) == pytest.approx((expected.statistic, expected.pvalue), rel=CLOSE)
        interval = expected.confidence_interval()
        assert paired.interval == pytest.approx((interval.low, interval.high), abs=CLOSE)
        assert in_clusters((b - a).tolist(), range(n)).error == pytest.approx(scipy.stats.sem(b - a), rel=CLOSE)


def test_sign_flips_are_the_permutation_test() -> None:
    """All assignments of signs to few differences, of a tenth of the data sets because scipy takes its time."""
    for rng in list(generators())[::10]:
        differences = rng.choice([-1.0, -0.5, 0.25, 0.5, 1.0, 2.0], int(rng.integers(2, 8)))
        expected = scipy.stats.permutation_test(
            (differences,), lambda one, axis: one.sum(axis), permutation_type="samples", vectorized=True
        )
        assert sign_flip(differences.tolist()).p == pytest.approx(expected.pvalue, abs=CLOSE)


def test_chi_square() -> None:
    """With Yates' correction; Fisher's test where a count is small."""
    for rng in generators():
        counts = rng.integers(0, rng.choice([6, 60]), (2, 2))
        result = chi_square(*((int(right), int(wrong)) for right, wrong in counts))
        if not counts.sum(axis=1).all():
            assert result.p is None
        elif not counts.sum(axis=0).all():
            assert result.p == 1
        else:
            expected = scipy.stats.chi2_contingency(counts)
            assert result.statistic == pytest.approx(expected.statistic, rel=CLOSE, abs=CLOSE)
            is_exact = expected.expected_freq.min() < 5
            assert (result.other_p if is_exact else result.p) == pytest.approx(expected.pvalue, rel=CLOSE)
            if is_exact:
                assert result.p == pytest.approx(scipy.stats.fisher_exact(counts).pvalue, rel=CLOSE)


@pytest.mark.filterwarnings("ignore:Precision loss")  # scipy says so where one sample is constant
def test_t_of_independent_scores() -> None:
    """Student's test with pooled variance, over samples of different sizes."""
    for rng in generators():
        a, b = (rng.integers(1, 6, int(rng.integers(2, 30))).astype(float) for _ in range(2))
        result = t_test(a.tolist(), b.tolist())
        if np.ptp(a) == 0 and np.ptp(b) == 0:
            assert result.p is None
            continue
        expected = scipy.stats.ttest_ind(a, b)
        assert (result.statistic, result.p) == pytest.approx(
            (expected.statistic, expected.pvalue), rel=CLOSE, abs=CLOSE
        )


def test_friedman() -> None:
    """Three to five variants, with many ties."""
    for rng in generators():
        rows = rng.integers(1, 6, (int(rng.integers(2, 12)), int(rng.integers(3, 6)))).astype(float)
        result = friedman(rows.tolist())
        if all(np.ptp(row) == 0 for row in rows):
            assert result.p == 1
            continue
        expected = scipy.stats.friedmanchisquare(*rows.T)
        assert (result.statistic, result.p) == pytest.approx(
            (expected.statistic, expected.pvalue), rel=CLOSE, abs=CLOSE
        )


def test_adjusted_p_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holm's and Benjamini-Hochberg's p-values, with ties and with ones."""
    from statsmodels.stats.multitest import multipletests

    # It collects garbage in each call: a third of a second in a process that has run other tests.
    monkeypatch.setattr("gc.collect", lambda: 0)
    for rng in generators():
        p_values = np.round(rng.random(int(rng.integers(1, 12))) ** 3, int(rng.integers(1, 8))).tolist()
        for ours, method in ((holm, "holm"), (benjamini_hochberg, "fdr_bh")):
            assert ours(p_values) == pytest.approx(multipletests(p_values, method=method)[1].tolist(), abs=CLOSE)


def test_exact_mcnemar_and_wilson() -> None:
    """Of the 2 x 2 table of two variants; and the interval of one rate."""
    from statsmodels.stats.contingency_tables import mcnemar as their_mcnemar
    from statsmodels.stats.proportion import proportion_confint

    for rng in generators():
        both, b, c, neither = (int(one) for one in rng.integers(0, rng.choice([4, 30, 400]), 4))
        expected = their_mcnemar([[both, b], [c, neither]], exact=True).pvalue if b + c else 1.0
        assert mcnemar(both, b, c, neither + 1).p == pytest.approx(expected, rel=1e-7)
        n = both + b + 1
        assert wilson(both, n) == pytest.approx(proportion_confint(both, n, method="wilson"), abs=1e-6)


def test_cochran_q() -> None:
    """Of two to five variants whose cases are right or wrong."""
    from statsmodels.stats.contingency_tables import cochrans_q

    for rng in generators():
        rows = rng.integers(0, 2, (int(rng.integers(2, 12)), int(rng.integers(2, 6))))
        if all(np.ptp(row) == 0 for row in rows):
            continue
        expected = cochrans_q(rows)
        result = cochran_q(rows.tolist())
        assert (result.statistic, result.p) == pytest.approx(
            (expected.statistic, expected.pvalue), rel=CLOSE, abs=CLOSE
        )


def test_clustered_errors() -> None:
    """The standard error of a mean over clusters of equal size, where CR1 and CR2 agree: that of a regression."""
    from statsmodels.regression.linear_model import OLS

    for rng in generators():
        count, size = (int(one) for one in rng.integers(2, 12, 2))
        clusters = rng.permutation(np.repeat(np.arange(count), size))
        values = rng.normal(size=count * size) + clusters
        fitted = OLS(values, np.ones(len(values))).fit(
            cov_type="cluster", cov_kwds={"groups": clusters, "df_correction": True}
        )
        clustered = in_clusters(values.tolist(), clusters.tolist())
        assert (clustered.error, clustered.degrees) == pytest.approx((fitted.bse[0], count - 1), rel=CLOSE)


def test_sample_sizes() -> None:
    """Cases for a difference with a power, and the difference that so many cases detect: of the paired t-test.

    Effects are so small that more cases are needed than those by whose signs alone a size is found.
    """
    from statsmodels.stats.power import TTestPower

    power_of = TTestPower()
    for rng in generators():
        effect, power = float(rng.uniform(0.05, 0.7)), float(rng.uniform(0.8, 0.95))
        needed = cases_for_scores(effect, 1.0, power=power)
        expected = power_of.solve_power(effect_size=effect, alpha=0.05, power=power)
        assert needed in (math.ceil(expected), math.ceil(expected + 1e-3))  # their solver stops that close to a root
        n = int(rng.integers(15, 1000))
        difference = detectable_score_difference(n, 1.0, power=power)
        assert difference is not None
        assert power_of.power(difference, n, 0.05) == pytest.approx(power, abs=1e-4)
