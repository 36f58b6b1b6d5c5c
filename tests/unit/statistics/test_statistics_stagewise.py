"""The difference after planned looks: what can be worked out by hand, and how often the interval holds the truth."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics.sequential import LOOK_BOUNDS
from assay.statistics.stagewise import StagewiseEstimate, stagewise_estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIFTHS = (20, 40, 60, 80, 100)


def test_a_stop_at_the_first_look_is_an_ordinary_result() -> None:
    """Nothing was looked at before: the estimate is z times its error, the interval that of the normal distribution."""
    estimate = stagewise_estimate(5.0, 0.02, [20])
    assert estimate.difference == pytest.approx(0.1, abs=1e-9)
    assert estimate.interval == pytest.approx((0.1 - 1.959964 * 0.02, 0.1 + 1.959964 * 0.02), abs=1e-8)
    assert stagewise_estimate(5.0, 0.02, [0, 0, 0, 9]) == estimate, "looks without a value saw nothing"


def test_two_looks_by_hand() -> None:
    """At the second of two looks, above z are a stop before it and, without one, a larger z: one plain integral."""
    z, drift = 3.3, stagewise_estimate(3.3, 1.0, [20, 40]).interval[0]
    first = LOOK_BOUNDS[0]
    grid = np.linspace(-first, first, 40_001)
    at_first = np.exp(-((grid - drift * math.sqrt(0.5)) ** 2) / 2) / math.sqrt(2 * math.pi)
    # Given the first z, the second one is normal with mean √½·(z₁ + √½·drift) and variance ½.
    rest = (z - math.sqrt(0.5) * (grid + math.sqrt(0.5) * drift)) / math.sqrt(0.5)
    beyond = np.array([math.erfc(one / math.sqrt(2)) / 2 for one in rest])
    stopped = math.erfc((first - drift * math.sqrt(0.5)) / math.sqrt(2)) / 2
    assert stopped + np.trapezoid(at_first * beyond, grid) == pytest.approx(0.025, abs=1e-7)


@pytest.mark.parametrize(("look", "bound"), list(enumerate(LOOK_BOUNDS, start=1)))
def test_a_bound_is_where_zero_leaves_the_interval(look: int, bound: float) -> None:
    """Where z reaches its bound the interval lies above 0, as far as the bounds are exact; at the end below it, not."""
    low, high = stagewise_estimate(bound, 1.0, FIFTHS[:look]).interval
    assert high > low > -1e-4
    if look == len(LOOK_BOUNDS):
        assert stagewise_estimate(bound - 0.001, 1.0, FIFTHS).interval[0] < 0


def test_the_estimate_is_nearer_to_zero_than_the_plain_difference() -> None:
    """It is what is left of z·error after the looks: the later the stop, the more is taken off."""
    estimates = [stagewise_estimate(bound + 0.1, 1.0, FIFTHS[:look]) for look, bound in enumerate(LOOK_BOUNDS, start=1)]
    shrunk = [one.difference / (bound + 0.1) for one, bound in zip(estimates, LOOK_BOUNDS, strict=True)]
    assert shrunk[0] == pytest.approx(1)
    assert shrunk == sorted(shrunk, reverse=True)
    assert 0.95 < shrunk[-1] < 0.98


@given(st.floats(-8, 8), st.lists(st.integers(0, 500), min_size=1, max_size=5).map(sorted), st.floats(0.001, 0.2))
def test_stagewise_always(z: float, looks: list[int], alpha: float) -> None:
    """Swapping the runs mirrors everything; the estimate lies in the interval, which grows with its level."""
    if not looks[-1]:
        with pytest.raises(ValueError, match="of growing information"):
            stagewise_estimate(z, 1.0, looks)
        return
    found, other = stagewise_estimate(z, 0.5, looks, alpha=alpha), stagewise_estimate(-z, 0.5, looks, alpha=alpha)
    assert (-other.difference, -other.interval[1], -other.interval[0]) == pytest.approx(
        (found.difference, *found.interval), abs=1e-7
    )
    wide = stagewise_estimate(z, 0.5, looks, alpha=alpha / 2)
    assert wide.interval[0] < found.interval[0] < found.difference < found.interval[1] < wide.interval[1]


@pytest.mark.parametrize("looks", [[], [0.0], [3, 2], [1, 2, 3, 4, 5, 6]])
def test_looks_that_are_none(looks: list[float]) -> None:
    """No look, no information, information that is lost, and more looks than there are bounds."""
    with pytest.raises(ValueError, match="one to 5 looks of growing information"):
        stagewise_estimate(1.0, 1.0, looks)


@pytest.mark.parametrize("drift", [0.0, 1.5, 3.0, -4.0])
def test_how_often_the_interval_holds_the_truth(drift: float) -> None:
    """95 % over all comparisons, and the truth is as often above the estimate as below it: 10,000 draws, seeded."""
    estimates = [_estimate(z) for z in _drawn(10_000, drift)]
    low = np.mean([one.interval[0] > drift for one in estimates])
    high = np.mean([one.interval[1] < drift for one in estimates])
    error = math.sqrt(0.025 * 0.975 / len(estimates))
    assert [low, high] == pytest.approx([0.025, 0.025], abs=4 * error + 0.001)  # and the grid of estimates
    above = np.mean([one.difference > drift for one in estimates])
    assert above == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / len(estimates)) + 0.01)


def _drawn(count: int, drift: float) -> list[tuple[int, float]]:
    """Draw the look and the z with which comparisons end, z rounded to 0.02, so that few are worked out."""
    rng = np.random.default_rng(28)
    sums = (rng.normal(drift / 5, math.sqrt(0.2), (count, 5))).cumsum(axis=1)
    z: NDArray[np.float64] = sums / np.sqrt(np.arange(1, 6) / 5)
    crosses = np.abs(z) >= LOOK_BOUNDS
    crosses[:, -1] = True
    looks = crosses.argmax(axis=1)
    return [(int(look), round(float(z[at, look]) / 0.02) * 0.02) for at, look in enumerate(looks)]


@cache
def _estimate(seen: tuple[int, float]) -> StagewiseEstimate:
    look, z = seen
    # In units of the drift, which is the expected z of the fifth look.
    return stagewise_estimate(z, math.sqrt(5 / (look + 1)), FIFTHS[: look + 1])
