"""How often two variants are called equivalent although one is worse by exactly the margin: counted, not drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from assay.statistics.equivalence import rate_equivalence, score_equivalence
from assay.statistics.one_sided import rate_bounds, score_bounds
from assay.statistics.paired import bonett_price

UNIT = (0.0, 1.0)


def test_worked_intervals() -> None:
    """From 50 cases on rates have Bonett and Price's interval; scores have theirs with a gain and a loss added."""
    assert rate_equivalence(3, 4, 200) == pytest.approx((-0.019471, 0.029372), abs=1e-6)
    assert rate_equivalence(0, 0, 20) == pytest.approx((-0.139108, 0.139108), abs=1e-6)  # 1 - 0.05^(1/20)
    interval = score_equivalence([0.0] * 98, UNIT)  # t of 99 degrees times sqrt(2 / 99) / 10
    assert interval == pytest.approx((-0.023600, 0.023600), abs=1e-6)
    clusters = [at // 2 for at in range(196)]
    assert score_equivalence([0.0] * 196, UNIT, clusters=clusters) == pytest.approx(interval)


def test_no_scale_and_few_cases_are_never_equivalent() -> None:
    """Equal scores without a declared range, or fewer than 50 of them, exclude no rare loss."""
    assert score_equivalence([0.0] * 100, (-math.inf, math.inf)) is None
    assert score_equivalence([0.0] * 100, (0.0, math.inf)) is None
    assert score_equivalence([0.0] * 49, UNIT) is None
    assert score_equivalence([0.0] * 100, UNIT, clusters=[at // 3 for at in range(100)]) is None


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.1, 0.2, 0.3])
def test_wrong_equivalence_of_rates(margin: float) -> None:
    """A share of the cases, as large as the margin, is lost: at most 5 % below 50 cases, 10 % above."""
    for n in (10, 20, 37, 45, 49, 50, 80, 200):
        called = (within(rate_equivalence(lost, 0, n), margin) for lost in range(n + 1))
        assert wrong(called, n, margin) <= (0.05 if n < 50 else 0.1)


@pytest.mark.parametrize(("share", "loss"), [(0.02, 1.0), (0.05, 1.0), (0.1, 0.5), (0.3, 1.0), (0.5, 0.25)])
def test_wrong_equivalence_of_scores(share: float, loss: float) -> None:
    """Some cases lose much, so that the mean loss is the margin."""
    for n in (5, 20, 49, 50, 100, 200, 400):
        differences = ([-loss] * lost + [0.0] * (n - lost) for lost in range(n + 1))
        called = (within(score_equivalence(difference, UNIT), share * loss) for difference in differences)
        assert wrong(called, n, share) <= (0 if n < 50 else 0.1)


def within(interval: tuple[float, float] | None, margin: float) -> bool:
    """Return whether an interval lies within a margin."""
    return interval is not None and -margin < interval[0] and interval[1] < margin


def wrong(called: object, n: int, share: float) -> float:
    """Return the chance of the counts of lost cases, from 0 to n, that are called equivalent."""
    assert hasattr(called, "__iter__")
    return math.fsum(
        math.comb(n, lost) * share**lost * (1 - share) ** (n - lost) for lost, is_equal in enumerate(called) if is_equal
    )


def test_an_interval_below_fifty_cases_is_the_wider_of_two() -> None:
    """Bonett and Price's, or the exact limits of what was lost and won."""
    assert rate_equivalence(3, 4, 49) != bonett_price(3, 4, 49, alpha=0.1)
    assert rate_equivalence(20, 20, 49)[0] <= bonett_price(20, 20, 49, alpha=0.1)[0]


ALPHA = 0.05


def test_equal_cases_leave_the_exact_limit_of_a_rate() -> None:
    """None of 100 lost: 1 - 0.05^(1/100); with one kind of disagreement the bound is its exact limit."""
    assert rate_bounds(0, 0, 100) == pytest.approx((-(1 - 0.05**0.01), 1 - 0.05**0.01))
    low, _ = rate_bounds(3, 0, 50)
    assert low == pytest.approx(-scipy.stats.binomtest(3, 50, alternative="less").proportion_ci(0.95).high)
    assert rate_bounds(3, 0, 3)[0] == -1.0


def test_rates_by_hand() -> None:
    """10 lost and 10 won of 100: limits 0.1637 and 0.0553, joined with the correlation -1/9."""
    up, down = 0.16374 - 0.1, 0.1 - 0.05526
    half = math.sqrt(up**2 + down**2 + 2 / 9 * up * down)
    assert rate_bounds(10, 10, 100) == pytest.approx((-half, half), abs=1e-4)


@pytest.mark.parametrize(("n", "drop"), [(30, 0.1), (60, 0.05), (100, 0.2), (150, 0.02)])
def test_bounds_of_rates_are_wrong_in_at_most_one_of_twenty(n: int, drop: float) -> None:
    """Enumerated over all tables of n cases, B is worse by exactly the drop, whatever share B wins besides."""
    excludes = np.zeros((n + 1, n + 1))
    for lost in range(n + 1):
        for won in range(n + 1 - lost):
            # A run that is seen worse by as much is not asked for its bound, which is lower.
            excludes[lost, won] = (won - lost) / n > -drop and rate_bounds(lost, won, n)[0] > -drop
    for share in (0.0, 0.01, 0.05, 0.2):
        counts = np.arange(n + 1)
        of_lost = scipy.stats.binom.pmf(counts, n, share + drop)
        wrong = sum(
            of_lost[lost] * float(scipy.stats.binom.pmf(counts, n - lost, share / (1 - share - drop)) @ excludes[lost])
            for lost in counts
        )
        assert wrong <= ALPHA


@pytest.mark.parametrize("n", [5, 20, 50, 100, 200, 500])
@pytest.mark.parametrize("drop", [0.02, 0.05, 0.1])
def test_rare_losses_of_scores_are_not_overlooked(n: int, drop: float) -> None:
    """Every loss is the whole scale, as rare as the drop needs: wrong in at most 5.6 %."""
    counts = scipy.stats.binom.pmf(np.arange(n + 1), n, drop)
    wrong = 0.0
    for lost in range(n + 1):
        bounds = score_bounds([-1.0] * lost + [0.0] * (n - lost), (0.0, 1.0))
        assert bounds is not None
        if bounds[0] <= -drop:
            break  # more lost cases exclude less
        wrong += counts[lost]
    assert wrong <= 0.056


def test_scores_without_a_scale_have_their_spread_alone() -> None:
    """Then it is the t interval of 1 - 2 alpha; equal differences, and one case, say nothing."""
    interval = score_bounds([0.1, 0.3, 0.2, 0.0], (0.0, math.inf))
    expected = scipy.stats.ttest_1samp([0.1, 0.3, 0.2, 0.0], 0).confidence_interval(0.9)
    assert interval == pytest.approx((expected.low, expected.high))
    bounds = score_bounds([-0.5, 0.5], (0.0, 1.0))
    assert bounds == (-1.0, 1.0), "no bound is beyond the scale"
    assert score_bounds([0.1, 0.1], (0.0, math.inf)) is score_bounds([0.1], (0.0, 1.0)) is None


def test_clusters_widen_the_bounds() -> None:
    """Cases that lose and win together tell less; mirrored differences have mirrored bounds."""
    differences = [0.2, 0.2, -0.1, -0.1, 0.0, 0.0, 0.3, 0.3] * 5
    clusters = [str(place // 2) for place in range(40)]
    one, other = score_bounds(differences, (0.0, 1.0)), score_bounds(differences, (0.0, 1.0), clusters=clusters)
    assert one is not None
    assert other is not None
    assert other[0] < one[0] < one[1] < other[1]
    mirrored = score_bounds([-one for one in differences], (0.0, 1.0), clusters=clusters)
    assert mirrored == pytest.approx((-other[1], -other[0]))
