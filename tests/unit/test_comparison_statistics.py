"""Tests between variants: the specification's examples, what must always hold, and agreement with scipy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy  # its stats are imported when a test names them: each process of the tests collects them all
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics import paired
from assay.statistics.adjustment import benjamini_hochberg, holm
from assay.statistics.independent import chi_square, cochran_q, friedman, t_test
from assay.statistics.paired import bonett_price, mcnemar, mcnemar_p, paired_scores
from assay.statistics.sign_flips import sign_flip, sign_flips

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

CLOSE = 1e-6
COUNTS = st.integers(0, 40)
SCORES = st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0]), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("counts", "statistic", "p", "note"),
    [
        ([(22, 3), (15, 10)], 3.742204, 0.053054, ""),
        ([(45, 5), (40, 10)], 1.254902, 0.262618, ""),
        ([(90, 10), (60, 40)], 22.426667, 2.1832e-6, ""),
        ([(5, 0), (1, 4)], 3.75, 0.047619, "expected_count_below_5"),
        ([(17, 3), (15, 5)], 0.15625, 0.694765, "expected_count_below_5"),
        ([(25, 0), (25, 0)], 0.0, 1.0, "no_variation"),
    ],
)
def test_chi_square(counts: list[tuple[int, int]], statistic: float, p: float, note: str) -> None:
    """Yates' correction, Fisher's p where counts are small, none without variation."""
    result = chi_square(*counts)
    assert (result.statistic, result.p) == pytest.approx((statistic, p), abs=CLOSE)
    assert result.note == note


def test_chi_square_without_data() -> None:
    """A variant without cases has no p-value, and is never significant."""
    result = chi_square((0, 0), (3, 4))
    assert (result.p, result.note, result.is_significant(1.0)) == (None, "no_data", False)
    assert chi_square((5, 0), (1, 4)).other_p == pytest.approx(0.052808, abs=CLOSE)


@pytest.mark.parametrize(
    ("a", "b", "t", "p"),
    [
        ([4, 5, 4, 3, 5], [3, 4, 4, 2, 4], 1.460593, 0.182257),
        ([4, 4, 4, 5, 4, 3, 4, 4], [5, 5, 4, 5, 5, 4, 5, 5], -3.0, 0.009552),
        ([3, 3, 4], [4, 5, 5], -2.828427, 0.047421),
        ([4, 5, 3], [4, 5, 3], 0.0, 1.0),
        ([4, 4, 4], [4, 4, 4], None, None),
        ([4, 4, 4], [5, 5, 5], None, None),
        ([4], [5, 5, 4], None, None),
    ],
)
def test_t(a: list[float], b: list[float], t: float | None, p: float | None) -> None:
    """Pooled variance; without variance, or with one score, there is no p-value rather than NaN or 0."""
    result = t_test(a, b)
    if t is None:
        assert (result.statistic, result.p) == (None, None)
    else:
        assert (result.statistic, result.p) == pytest.approx((t, p), abs=CLOSE)


@pytest.mark.parametrize(
    ("b", "c", "n", "p", "mid_p", "difference", "low", "high"),
    [
        (2, 10, 50, 0.038574, 0.022461, 0.16, 0.019159, 0.288534),
        (1, 8, 25, 0.0390625, 0.021484, 0.28, 0.039256, 0.479262),
        (8, 20, 200, 0.035698, 0.024120, 0.06, 0.006897, 0.111915),
        (4, 7, 100, 0.548828, 0.387695, 0.03, -0.039635, 0.098458),
        (5, 5, 100, 1.0, 1.0, 0.0, -0.066564, 0.066564),
        (0, 0, 20, 1.0, 1.0, 0.0, -0.125991, 0.125991),
    ],
)
def test_mcnemar(b: int, c: int, n: int, p: float, mid_p: float, difference: float, low: float, high: float) -> None:
    """Exact and mid p-value, difference and Bonett-Price interval."""
    result = mcnemar(n - b - c, b, c, 0)
    shown = (result.p, result.mid_p, result.difference, *result.interval)
    assert shown == pytest.approx((p, mid_p, difference, low, high), abs=CLOSE)


def test_few_disagreeing_cases_cannot_be_significant() -> None:
    """Five give 0.0625 at best, six 0.03125; the smallest p-value is reported."""
    assert (mcnemar(9, 0, 5, 0).p, mcnemar(9, 0, 5, 0).mid_p) == (0.0625, 0.03125)
    assert (mcnemar(9, 0, 6, 0).p, mcnemar(9, 0, 6, 0).mid_p) == (0.03125, 0.015625)
    assert (mcnemar(9, 0, 5, 0).min_attainable_p, mcnemar(9, 0, 0, 0).min_attainable_p) == (0.0625, 1.0)
    assert mcnemar(0, 0, 5000, 0).p == 0.0


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_mcnemar_always(both: int, b: int, c: int, neither: int) -> None:
    """It is scipy's binomial test; mid p is not larger; swapping the variants mirrors what has a sign."""
    if both + b + c + neither == 0:
        with pytest.raises(ValueError, match="at least one case"):
            mcnemar(both, b, c, neither)
        return
    found, mirrored = mcnemar(both, b, c, neither), mcnemar(both, c, b, neither)
    expected = scipy.stats.binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert found.p == pytest.approx(expected, abs=1e-12)
    assert found.mid_p <= found.p <= 1
    assert found.p >= found.min_attainable_p * (1 - 1e-12)
    assert mirrored.p == found.p
    assert mirrored.difference == -found.difference
    assert mirrored.interval == pytest.approx((-found.interval[1], -found.interval[0]), abs=1e-12)
    assert -1 <= found.interval[0] <= found.interval[1] <= 1


def test_equivalence_uses_an_interval_of_ninety_percent() -> None:
    """The examples with a margin."""
    assert bonett_price(3, 4, 200, alpha=0.1) == pytest.approx((-0.019471, 0.029372), abs=CLOSE)
    assert bonett_price(2, 10, 50, alpha=0.1) == pytest.approx((0.040813, 0.266879), abs=CLOSE)
    assert bonett_price(10, 12, 1000, alpha=0.1) == pytest.approx((-0.006045, 0.010037), abs=CLOSE)


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        ([4, 5, 4, 3, 5], [3, 4, 4, 2, 4], (-0.8, 0.125, -4.0, 0.016130, -1.355289, -0.244711, -1.788854, -0.48)),
        (
            [4, 4, 4, 5, 4, 3, 4, 4],
            [5, 5, 4, 5, 5, 4, 5, 5],
            (0.75, 0.03125, 4.582576, 0.002536, 0.362998, 1.137002, 1.620185, 0.65625),
        ),
    ],
)
def test_paired_scores(a: list[float], b: list[float], shown: tuple[float, ...]) -> None:
    """Mean difference, sign-flip p, paired t with its interval, d_z and Cliff's delta."""
    scores = paired_scores(a, b)
    assert scores.interval is not None
    values = (
        scores.mean_difference,
        scores.flip.p,
        scores.t,
        scores.t_p,
        *scores.interval,
        scores.d_z,
        scores.cliffs_delta,
    )
    assert values == pytest.approx(shown, abs=CLOSE)


@pytest.mark.parametrize(
    ("differences", "p"),
    [([1.0] * 5, 0.0625), ([1.0] * 6, 0.03125), ([0.2, -0.1, 0.3, 0.05], 0.375), ([0.0, 0.0], 1.0), ([], 1.0)],
)
def test_sign_flips(differences: list[float], p: float) -> None:
    """Few differences are tested by every assignment of signs."""
    assert sign_flip(differences).p == p


def test_many_sign_flips_are_drawn_by_a_seed() -> None:
    """With more than 20 differences the p-value is near the exact one, and the same for the same seed."""
    rng = np.random.default_rng(3)
    differences = [float(one) for one in rng.normal(0.3, 1, 60)]
    first = sign_flip(differences, seed=1)
    assert first == sign_flip(differences, seed=1)
    assert first.p == pytest.approx(float(scipy.stats.ttest_1samp(differences, 0).pvalue), abs=0.01)
    least = sign_flip([math.sqrt(one) for one in range(1, 60)])
    assert (least.method, least.p, least.least_p) == ("random", 1 / 20_001, 1 / 20_001)


def test_more_signs_are_drawn_where_the_level_is_near() -> None:
    """Within five standard errors of alpha 200,000 assignments decide, so that the seed hardly does."""
    rng = np.random.default_rng(3)
    differences = [float(one) for one in rng.normal(0.3, 1, 60)]
    first = sign_flip(differences, alpha=1e-6)
    assert first.error == pytest.approx(math.sqrt(first.p * (1 - first.p) / 20_000))
    near = sign_flip(differences, alpha=first.p)
    assert near.error == pytest.approx(math.sqrt(near.p * (1 - near.p) / 200_000))
    assert first.error is not None
    assert near.p == pytest.approx(first.p, abs=4 * first.error)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_sums_of_equal_steps_are_enumerated(steps: int) -> None:
    """Ratings, and shares of repeats, give an exact p-value with more than 20 differences; McNemar's for 0 and 1."""
    rng = np.random.default_rng(steps)
    differences = rng.integers(-steps, steps + 2, 60) / steps
    flip = sign_flip(differences.tolist())
    assert (flip.method, flip.error) == ("exact", None)
    drawn = np.abs(rng.choice([-1.0, 1.0], (100_000, 60)) @ differences)
    assert flip.p == pytest.approx((drawn > abs(differences.sum()) - 1e-9).mean(), abs=0.007)
    assert sign_flip([1.0] * 30 + [-1.0] * 12).p == pytest.approx(mcnemar_p(30, 12)[0], rel=1e-12)


def test_twenty_differences_are_tried_in_full() -> None:
    """All 2^20 assignments, counted one by one in another way."""
    differences = np.random.default_rng(1).normal(0.4, 1, 20)
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    flip = sign_flip(differences.tolist())
    assert (flip.p, flip.least_p) == (np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-12), 2.0**-19)


@given(st.lists(st.lists(st.floats(-2, 2), max_size=60), min_size=1, max_size=4), st.randoms())
def test_a_sign_flip_is_the_same_beside_others(comparisons: list[list[float]], random: random.Random) -> None:
    """Neither what else is compared, nor the order of the cases, nor the direction moves a p-value."""
    together = sign_flips(comparisons)
    for comparison, found in zip(comparisons, together, strict=True):
        other = [-one for one in comparison]
        random.shuffle(other)
        assert sign_flip(other) == found


def test_very_many_differences_take_the_normal_limit() -> None:
    """With more than 10,000 differences, none of which dominates, it answers, near what draws would say."""
    rng = np.random.default_rng(5)
    differences = [float(one) for one in rng.normal(0.02, 1, 12_000)]
    flip = sign_flip(differences)
    assert flip.method == "normal_limit"
    assert flip.p == pytest.approx(float(scipy.stats.ttest_1samp(differences, 0).pvalue), abs=1e-3)


def test_dominating_differences_keep_the_sum_from_being_normal() -> None:
    """Five large ones on one side, and 10,002 tiny ones that add up to 0 and half of the time to less."""
    tiny = 1e-3 * np.random.default_rng(5).normal(0, 1, 5_001)
    flip = sign_flip([50.0] * 5 + tiny.tolist() + (-tiny).tolist())
    assert flip.method == "random"
    assert flip.p == pytest.approx(0.0625 / 2, abs=0.005)


@pytest.mark.parametrize("scale", [1.0, 1e-8])
def test_noise_around_zero_is_no_difference(scale: float) -> None:
    """Values within 1e-9 are equal."""
    noise = [scale * 1e-12 * (at + 1) for at in range(10)]
    assert paired_scores([0.0] * 10, noise).flip.p == 1
    assert paired.differences(np.zeros(10), np.array(noise)).tolist() == [0.0] * 10
    assert paired_scores([0.0] * 10, [1e-6] * 10).flip.p == 2.0**-9


@given(SCORES, st.data())
def test_paired_scores_always(a: list[float], data: st.DataObject) -> None:
    """Swapping A and B mirrors differences and keeps p-values; t is scipy's."""
    b = data.draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0]), min_size=len(a), max_size=len(a)))
    found, mirrored = paired_scores(a, b, seed=5), paired_scores(b, a, seed=5)
    assert (mirrored.mean_difference, mirrored.cliffs_delta) == (-found.mean_difference, -found.cliffs_delta)
    assert mirrored.flip == found.flip
    if found.t is not None and mirrored.interval is not None and found.interval is not None:
        assert found.t == pytest.approx(float(scipy.stats.ttest_rel(b, a).statistic), rel=1e-9)
        assert mirrored.interval == pytest.approx((-found.interval[1], -found.interval[0]))


@pytest.mark.parametrize(
    ("raw", "by_holm", "by_bh"),
    [
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06], [0.03, 0.04, 0.04]),
        ([0.001, 0.02, 0.03, 0.5], [0.004, 0.06, 0.06, 0.5], [0.004, 0.04, 0.04, 0.5]),
        ([0.04], [0.04], [0.04]),
        ([], [], []),
    ],
)
def test_adjusted_p_values(raw: list[float], by_holm: list[float], by_bh: list[float]) -> None:
    """The adjusted values keep the order of the given ones."""
    assert holm(raw) == pytest.approx(by_holm)
    assert benjamini_hochberg(raw) == pytest.approx(by_bh)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_adjusting_keeps_the_order_and_makes_nothing_smaller(raw: list[float]) -> None:
    """Holm is never below Benjamini-Hochberg, which is never below the raw value and is scipy's."""
    strict, lenient = holm(raw), benjamini_hochberg(raw)
    assert all(p <= second <= first <= 1 for p, first, second in zip(raw, strict, lenient, strict=True))
    if raw:
        assert lenient == pytest.approx(list(scipy.stats.false_discovery_control(raw)))
    for adjusted in (strict, lenient):
        by_raw: Sequence[float] = [adjusted[index] for index in sorted(range(len(raw)), key=raw.__getitem__)]
        assert list(by_raw) == sorted(by_raw)


def test_three_variants() -> None:
    """Cochran's Q and Friedman's test of the examples; without variation p is 1, without data there is none."""
    rows = [[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 1]]
    result = cochran_q(rows)
    assert (result.statistic, result.p) == pytest.approx((7.6, 0.022371), abs=CLOSE)
    scores = list(zip((4, 5, 3, 4, 5), (3, 4, 3, 4, 4), (2, 4, 2, 3, 3), strict=True))
    result = friedman(scores)
    assert (result.statistic, result.p) == pytest.approx((8.588235, 0.013649), abs=CLOSE)
    assert cochran_q([[1, 1, 1], [0, 0, 0]]).p == friedman([[1, 1, 1], [2, 2, 2]]).p == 1.0
    assert cochran_q([]).note == friedman([]).note == "no_data"
    assert not math.isnan(cochran_q(rows).p or 0)
