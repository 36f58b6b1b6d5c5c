"""How often two variants are called equivalent although one is worse by exactly the margin: counted, not drawn."""

from __future__ import annotations

import math

import pytest

from assay.statistics.equivalence import rate_equivalence, score_equivalence
from assay.statistics.paired import bonett_price

UNIT = (0.0, 1.0)


def test_worked_intervals() -> None:
    """From 50 cases on rates have Bonett and Price's interval; scores have theirs with a gain and a loss added."""
    assert rate_equivalence(3, 4, 200) == pytest.approx((-0.019471, 0.029372), abs=1e-6)
    assert rate_equivalence(0, 0, 20) == pytest.approx((-0.139108, 0.139108), abs=1e-6)  # 1 - 0.05^(1/20)
    found = score_equivalence([0.0] * 98, UNIT)  # t of 99 degrees times sqrt(2 / 99) / 10
    assert found == pytest.approx((-0.023600, 0.023600), abs=1e-6)
    clusters = [at // 2 for at in range(196)]
    assert score_equivalence([0.0] * 196, UNIT, clusters=clusters) == pytest.approx(found)


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
        called = (within(score_equivalence(each, UNIT), share * loss) for each in differences)
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
