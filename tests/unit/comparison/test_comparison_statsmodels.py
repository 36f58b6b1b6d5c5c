"""Adjusted p-values, McNemar's and Cochran's tests, clustered errors and sample sizes are those of statsmodels.

It is imported in the tests: each process of the tests collects them all, and it takes a second.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.comparison.random_data import CLOSE, generators

from assay.statistics.adjustment import benjamini_hochberg, holm
from assay.statistics.clusters import in_clusters
from assay.statistics.independent import cochran_q
from assay.statistics.intervals import wilson
from assay.statistics.paired import mcnemar
from assay.statistics.power import cases_for_scores, detectable_score_difference


def test_adjusted_p_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holm's, and Benjamini and Hochberg's, with ties and with ones."""
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
        found = cochran_q(rows.tolist())
        assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=CLOSE, abs=CLOSE)


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
        found = in_clusters(values.tolist(), clusters.tolist())
        assert (found.error, found.degrees) == pytest.approx((fitted.bse[0], count - 1), rel=CLOSE)


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
        found = detectable_score_difference(n, 1.0, power=power)
        assert found is not None
        assert power_of.power(found, n, 0.05) == pytest.approx(power, abs=1e-4)
