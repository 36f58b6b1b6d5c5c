"""Pairs in both orders, drift and noise."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics.drift import TOO_FEW_ITEMS, find_drift
from assay.statistics.figure import rate
from assay.statistics.pairs import PairJudgement, position_figures

PLACES = st.sampled_from(["first", "second", "tie"])


@pytest.mark.parametrize(
    ("forward", "backward", "winner", "flipped"),
    [
        ("first", "second", "a", False),
        ("second", "first", "b", False),
        ("tie", "tie", "tie", False),
        ("first", "first", "tie", True),
        ("second", "second", "tie", True),
        ("first", "tie", "tie", True),
        ("tie", "first", "tie", True),
    ],
)
def test_an_answer_wins_only_in_both_orders(forward: str, backward: str, winner: str, flipped: bool) -> None:
    """Otherwise the pair is a tie; it counts as flipped where the orders disagree."""
    judged = PairJudgement(forward, backward)
    assert (judged.winner, judged.flipped) == (winner, flipped)


def test_worked_intervals_of_position_bias() -> None:
    """3 of 40 flips, and 28 of 40 verdicts for the first place, which leaves out one half."""
    assert rate(3, 40).interval == pytest.approx((0.025836, 0.198642), abs=1e-6)
    assert rate(28, 40).interval == pytest.approx((0.545700, 0.819252), abs=1e-6)


def test_a_judge_that_prefers_a_place_shows_in_the_rates() -> None:
    """8 pairs that flip towards the first place, 12 that do not: 28 of 40 verdicts chose the first."""
    judged = [PairJudgement("first", "first")] * 8 + [PairJudgement("first", "second")] * 9
    judged += [PairJudgement("second", "first")] * 3
    assert {name: figure.value for name, figure in position_figures(judged).items()} == {
        "flip_rate": 0.4, "first_position_rate": 0.7
    }  # fmt: skip


def test_no_pairs_tell_nothing() -> None:
    """There is no rate without a pair."""
    assert [figure.value for figure in position_figures([]).values()] == [None, None]


@given(st.lists(st.builds(PairJudgement, PLACES, PLACES), max_size=30))
def test_swapping_the_answers_leaves_the_rates(judged: list[PairJudgement]) -> None:
    """Flips and places are those of the judge, whichever answer is called A."""
    assert position_figures(judged) == position_figures([PairJudgement(j.backward, j.forward) for j in judged])


def named(scores: list[float | None]) -> dict[str, float | None]:
    """Return scores by item."""
    return {str(index): score for index, score in enumerate(scores)}


def test_the_worked_drift() -> None:
    """Eight anchors whose scores rise by 0.6 are too few: no alarm, and how many would do."""
    drift = find_drift(named([4, 4, 3, 5, 4, 4, 2, 4]), named([4, 5, 4, 5, 5, 5, 3, 4]), width=4)
    assert drift.mean == pytest.approx(0.625)
    assert drift.interval == pytest.approx((0.192318, 1.057682), abs=1e-6)
    assert drift.p_value == pytest.approx(0.0625)
    assert drift.limit == pytest.approx(0.2)
    assert (drift.drifted, drift.n, drift.changed) == (False, 8, 5)
    assert drift.items_needed == round((1.96 * 0.5175492 / 0.2) ** 2) == 26
    assert drift.caution == "8 anchors cannot exclude a drift of 5 %: use about 26"


@pytest.mark.parametrize(
    ("old", "new", "drifted", "needed"),
    [
        ([3] * 8, [3] * 8, False, None),
        ([3] * 10, [4, 2, *[3] * 8], False, 21),
        ([3] * 60, [4, 2, *[3] * 58], False, None),
        ([3] * 20, [4, 4, 4, 4, *[3] * 16], False, 40),  # 16 for the noise alone, but the mean is 0.2 itself
        ([3] * 5, [3] * 5, False, 10),  # five equal scores exclude no change of few
        ([3] * 2, [4] * 2, False, 6),  # with fewer no p-value is below 0.05
        ([0.0] * 100, [0.04] * 8 + [0.0] * 92, True, None),  # little, but all one way
    ],
)
def test_alarms(old: list[float | None], new: list[float | None], drifted: bool, needed: int | None) -> None:
    """Only the test raises an alarm; without one the interval says whether the anchors are enough."""
    drift = find_drift(named(old), named(new), width=4)
    assert (drift.drifted, drift.items_needed) == (drifted, needed)


@pytest.mark.parametrize(("noise", "anchors"), [(0.4, 31), (0.7, 94)])
def test_anchors_that_a_noise_needs(noise: float, anchors: int) -> None:
    """As docs/judges.md says for the scale from 1 to 5: ±5 % takes (1.96 √2 s / 0.2)² anchors."""
    away = noise * math.sqrt(2 * 19 / 20)  # twenty differences of this size have the standard deviation √2 s
    assert find_drift(named([3.0] * 20), named([3 + away, 3 - away] * 10), width=4).items_needed == anchors


def test_a_noisy_judge_that_has_not_moved_raises_few_alarms() -> None:
    """However few the anchors: 5 % at most, within three standard errors of 400 trials."""
    generator = random.Random(7)
    for n in (8, 20):
        alarms = 0
        for _ in range(400):
            old, new = ([min(5.0, max(1.0, generator.gauss(3, 0.7))) for _ in range(n)] for _ in range(2))
            alarms += bool(find_drift(named(list(old)), named(list(new)), width=4).drifted)
        assert alarms / 400 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize(
    ("old", "new"),
    [([], []), ([3], [4]), ([3, 3, 3, 3, 3], [3, 3, None, None, None]), ([3, 3], [None, None])],
)
def test_drift_of_too_little_is_not_computed(old: list[float | None], new: list[float | None]) -> None:
    """Neither an alarm nor an all-clear."""
    drift = find_drift(named(old), named(new), width=4)
    assert (drift.drifted, drift.mean, drift.reason) == (None, None, TOO_FEW_ITEMS)
