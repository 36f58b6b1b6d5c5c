"""Pairs in both orders, strengths from pairs, drift and noise."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics.bradley_terry import bradley_terry
from assay.statistics.drift import TOO_FEW_ITEMS, find_drift
from assay.statistics.figure import rate
from assay.statistics.paired import mcnemar_p
from assay.statistics.pairs import PairJudgement, tally_pairs

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
    tally = tally_pairs(judged)
    assert (tally.wins, tally.ties, tally.losses) == (9, 8, 3)
    assert (tally.flip_rate.value, tally.first_position_rate.value) == (0.4, 0.7)
    assert tally.p_value == pytest.approx(mcnemar_p(3, 9)[0], rel=1e-12)


def test_no_pairs_tell_nothing() -> None:
    """No rates, and no p-value below 1."""
    tally = tally_pairs([])
    assert (tally.flip_rate.value, tally.first_position_rate.value, tally.p_value) == (None, None, 1.0)


@given(st.lists(st.builds(PairJudgement, PLACES, PLACES), max_size=30))
def test_swapping_the_answers_mirrors_the_tally(judged: list[PairJudgement]) -> None:
    """Wins become losses; flips, places and the p-value stay."""
    here, there = tally_pairs(judged), tally_pairs([PairJudgement(j.backward, j.forward) for j in judged])
    assert (here.wins, here.ties, here.losses) == (there.losses, there.ties, there.wins)
    assert (here.flip_rate, here.first_position_rate, here.p_value) == (
        there.flip_rate, there.first_position_rate, there.p_value
    )  # fmt: skip


def test_repeats_of_a_case_do_not_decide_alone() -> None:
    """Eight wins are significant over eight cases, but not where four repeats of two cases give them."""
    wins = [PairJudgement("first", "second")] * 8
    assert tally_pairs(wins).p_value == pytest.approx(mcnemar_p(0, 8)[0], rel=1e-12)
    assert tally_pairs(wins, ["x", "y"] * 4).p_value == 0.5


def test_strengths_of_three_rivals() -> None:
    """All have won and lost: the maximum exists."""
    found = bradley_terry([[0, 7, 8], [3, 0, 6], [2, 4, 0]])
    assert found.values == pytest.approx((2.097130, 0.861481, 0.553514), abs=1e-3)
    assert found.ratings == pytest.approx((128.650, -25.902, -102.748), abs=1e-3)
    assert found.chance(0, 1) == pytest.approx(0.708823, abs=1e-6)
    assert not found.regularised


def test_strengths_with_ties() -> None:
    """Ties are half wins."""
    found = bradley_terry([[0, 7.5], [2.5, 0]])
    assert found.chance(0, 1) == pytest.approx(0.75, abs=1e-6)
    assert found.ratings == pytest.approx((95.424, -95.424), abs=1e-3)


def test_strengths_of_one_that_never_loses() -> None:
    """Half wins are added, and the result says so."""
    found = bradley_terry([[0, 5, 4], [0, 0, 3], [0, 2, 0]])
    assert found.regularised
    assert found.values == pytest.approx((4.701226, 0.526621, 0.403915), abs=1e-3)
    assert found.ratings == pytest.approx((268.884, -111.401, -157.484), abs=1e-3)


def test_strengths_where_no_maximum_exists_although_all_have_won_and_lost() -> None:
    """Two camps, one of which always beats the other, are told apart by half wins, not by endless rounds."""
    found = bradley_terry([[0, 2, 3, 0], [1, 0, 0, 2], [0, 0, 0, 1], [0, 0, 2, 0]])
    assert found.regularised
    assert min(found.values[:2]) > max(found.values[2:])


def test_rivals_that_never_met_are_not_compared() -> None:
    """No link, no strengths."""
    with pytest.raises(ValueError, match=r"rivals \[0, 1\] never met rivals \[2, 3\]"):
        bradley_terry([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    with pytest.raises(ValueError, match="at least two"):
        bradley_terry([])


@given(st.lists(st.integers(0, 6), min_size=6, max_size=6), st.permutations(range(3)))
def test_the_order_of_rivals_does_not_matter(counts: list[int], order: list[int]) -> None:
    """Renaming the rivals renames their strengths."""
    wins = [[0.0] * 3 for _ in range(3)]
    for (i, j), count in zip(itertools.permutations(range(3), 2), counts, strict=True):
        wins[i][j] = count
    renamed = [[wins[i][j] for j in order] for i in order]
    try:
        here = bradley_terry(wins)
    except ValueError:
        with pytest.raises(ValueError, match="never met"):
            bradley_terry(renamed)
        return
    there = bradley_terry(renamed)
    assert [here.values[i] for i in order] == pytest.approx(list(there.values), rel=1e-6)
    assert sum(here.ratings) == pytest.approx(0, abs=1e-6)


def named(scores: list[float | None]) -> dict[str, float | None]:
    """Return scores by item."""
    return {str(index): score for index, score in enumerate(scores)}


def test_the_worked_drift() -> None:
    """Eight anchors whose scores rise by 0.6 are too few: no alarm, and how many would do."""
    found = find_drift(named([4, 4, 3, 5, 4, 4, 2, 4]), named([4, 5, 4, 5, 5, 5, 3, 4]), width=4)
    assert found.mean == pytest.approx(0.625)
    assert found.interval == pytest.approx((0.192318, 1.057682), abs=1e-6)
    assert found.p_value == pytest.approx(0.0625)
    assert found.limit == pytest.approx(0.2)
    assert (found.drifted, found.n, found.changed) == (False, 8, 5)
    assert found.items_needed == round((1.96 * 0.5175492 / 0.2) ** 2) == 26
    assert found.caution == "8 anchors cannot exclude a drift of 5 %: use about 26"


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
    found = find_drift(named(old), named(new), width=4)
    assert (found.drifted, found.items_needed) == (drifted, needed)


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
    found = find_drift(named(old), named(new), width=4)
    assert (found.drifted, found.mean, found.reason) == (None, None, TOO_FEW_ITEMS)
