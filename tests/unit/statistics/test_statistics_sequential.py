"""Stopping early: the examples of the always-valid test and of the planned looks, and what must always hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # its stats are imported when a test names them: each process of the tests collects them all
from hypothesis import given
from hypothesis import strategies as st

from assay.statistics.sequential import (
    Evidence,
    Look,
    always_valid_interval,
    always_valid_lower_bound,
    first_crossing,
    look_at,
    look_sizes,
)

CLOSE = 1e-6
BINARY = st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=80)
SCORES = st.lists(st.sampled_from([-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0]), max_size=80)


@pytest.mark.parametrize(
    ("lost", "won", "evidence"),
    [
        (0, 0, 1.0),
        (0, 1, 1.0),
        (0, 5, 5.333333),
        (0, 6, 9.142857),
        (0, 7, 16.0),
        (0, 8, 28.444444),
        (2, 10, 4.773893),
        (3, 15, 16.908153),
        (5, 5, 0.369408),
        (8, 20, 2.978147),
        (1, 4, 1.066667),
        (10, 40, 2149.130737),
    ],
)
def test_evidence_of_counts(lost: int, won: int, evidence: float) -> None:
    """From the cases one by one."""
    cases = [-1.0] * lost + [1.0] * won + [0.0]
    assert math.exp(Evidence(len(cases)).take(cases)[-1]) == pytest.approx(evidence, abs=CLOSE)


def test_the_path_of_an_example() -> None:
    """E and the always-valid p after each case; the p never rises, and E reaches 20 at the 11th case."""
    evidence = Evidence(11)
    found, p = [], []
    for difference in (1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1):
        found += list(evidence.take([difference]))
        p.append(evidence.p)
    path = [1, 1, 1.3333, 2, 2, 3.2, 5.3333, 5.3333, 9.1429, 16, 28.4444]
    assert np.exp(found) == pytest.approx(path, abs=1e-4)
    assert p == pytest.approx([1, 1, 0.75, 0.5, 0.5, 0.3125, 0.1875, 0.1875, 0.1094, 0.0625, 0.0352], abs=1e-4)
    assert (first_crossing(found), first_crossing(found[:-1])) == (11, None)


def test_evidence_of_scores() -> None:
    """The example of scores divided by their range."""
    scores = [0.25, 0.5, 0, 0.25, -0.25, 0.5, 0.25, 0.75]
    assert math.exp(Evidence(8).take(scores)[-1]) == pytest.approx(1.630636, abs=CLOSE)
    assert math.exp(Evidence(5000).take(scores)[-1]) == pytest.approx(1.630636, abs=CLOSE)


@given(SCORES, st.randoms(use_true_random=False))
def test_neither_direction_nor_order_moves_the_evidence(differences: list[float], random: object) -> None:
    """Swapping A and B keeps every E; another order of the cases keeps the last."""
    path = Evidence(80).take(differences)
    assert list(Evidence(80).take([-difference for difference in differences])) == pytest.approx(list(path), abs=1e-9)
    shuffled = list(differences)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random, which hypothesis does not name
    if differences:
        assert Evidence(80).take(shuffled)[-1] == pytest.approx(path[-1], abs=1e-9)


@given(SCORES, st.integers(0, 80))
def test_the_parts_in_which_cases_come_move_no_bit(differences: list[float], at: int) -> None:
    """A decision made again from the same cases is the same one."""
    whole, parts = Evidence(80), Evidence(80)
    path = list(whole.take(differences))
    assert [*parts.take(differences[:at]), *parts.take(differences[at:])] == path
    assert parts.p == whole.p


@given(BINARY)
def test_the_integral_is_the_closed_form(differences: list[float]) -> None:
    """Differences of -1, 0 and 1 behind a fractional one integrate to what their counts give."""
    integrated = Evidence(81)
    integrated.take([1e-300])  # a fraction that changes nothing, after which sums are integrated
    assert list(integrated.take(differences)) == pytest.approx(list(Evidence(81).take(differences)), abs=1e-9)


@pytest.mark.parametrize(("won", "lost"), [(20_000, 0), (10_300, 9_700), (15_000, 5_000)])
def test_many_cases_are_integrated_by_few_nodes(won: int, lost: int) -> None:
    """Where the nodes are far fewer than the degree asks for, E is still that of the closed form."""
    evidence = Evidence(20_001)
    evidence.take([1e-300])  # a fraction that changes nothing, after which sums are integrated
    path = evidence.take(np.random.default_rng(4).permutation([1.0] * won + [-1.0] * lost).tolist())
    assert path[-1] == pytest.approx(Evidence(20_000).take([1.0] * won + [-1.0] * lost)[-1], abs=1e-7)


@pytest.mark.parametrize("differences", [[1.5], [math.nan], [0.0] * 4])
def test_what_evidence_refuses(differences: list[float]) -> None:
    """Differences that are not divided by the range, NaN, and more cases than were announced."""
    with pytest.raises(ValueError, match=r"divide them by the range|more than the 3"):
        Evidence(3).take(differences)


@pytest.mark.parametrize(
    ("lost", "won", "n", "low", "high"), [(10, 40, 200, 0.050278, 0.253504), (3, 15, 60, -0.037029, 0.439819)]
)
def test_always_valid_intervals(lost: int, won: int, n: int, low: float, high: float) -> None:
    """The examples; without cases, nothing is left out."""
    differences = [-1.0] * lost + [1.0] * won + [0.0] * (n - lost - won)
    assert always_valid_interval(differences) == pytest.approx((low, high), abs=CLOSE)
    assert always_valid_interval([]) == (-1.0, 1.0)


def test_an_always_valid_lower_bound() -> None:
    """Bets on a larger mean alone: closed for equal differences, and never below the end of the two-sided interval."""
    bound = always_valid_lower_bound([1.0] * 8)
    ratio = 1 - bound  # 2·∫ (1 + λ·ratio)⁸ dλ from 0 to ½ is 20
    assert 2 * ((1 + ratio / 2) ** 9 - 1) / (9 * ratio) == pytest.approx(20, abs=1e-6)
    differences = [-1.0] * 10 + [1.0] * 40 + [0.0] * 150
    assert 0.050278 < always_valid_lower_bound(differences) < 0.15
    assert always_valid_lower_bound([]) == always_valid_lower_bound([0.0]) == -1.0


@given(SCORES)
def test_always_valid_intervals_always(differences: list[float]) -> None:
    """They hold the mean, lie in [-1, 1], and are mirrored by swapping the variants."""
    low, high = always_valid_interval(differences)
    mean = sum(differences) / len(differences) if differences else 0.0
    assert -1 <= low <= mean <= high <= 1
    assert always_valid_interval([-difference for difference in differences]) == pytest.approx((-high, -low), abs=1e-7)
    assert low - 1e-9 <= always_valid_lower_bound(differences) <= mean


def test_when_looks_are_due() -> None:
    """At every fifth of the planned cases, rounded up; fewer than 20 cases cannot be looked at five times."""
    assert look_sizes(500) == (100, 200, 300, 400, 500)
    assert look_sizes(21) == (5, 9, 13, 17, 21)
    with pytest.raises(ValueError, match="at least 20 cases, not 19"):
        look_sizes(19)


def test_what_a_look_says() -> None:
    """z of wins against losses; of scores the z whose tail is that of t; equal differences count as won."""
    seen = look_at([1.0] * 10 + [-1.0] * 2 + [0.0] * 5, is_binary=True)
    assert (seen.z, seen.standard_error) == pytest.approx((8 / math.sqrt(12), math.sqrt(12) / 17))
    scores = [1.0, 1.0, 0.0, 1.0, 1.0, 2.0, 0.0, 0.0]
    tail = scipy.stats.ttest_1samp(scores, 0, alternative="greater").pvalue
    z = scipy.stats.norm.isf(tail)
    seen = look_at(scores, is_binary=False)
    assert (seen.z, seen.standard_error) == pytest.approx((z, 0.75 / z))
    assert look_at([-score for score in scores], is_binary=False).z == pytest.approx(-z)
    assert look_at([-0.5] * 9, is_binary=False) == Look(-3.0, 0.5 / 3)
    assert look_at([0.8 - 0.7, 0.9 - 0.8, 0.4 - 0.3] * 3, is_binary=False).z == 3.0  # equal but for rounding
    assert look_at([0.0, 0.0], is_binary=True) == look_at([], is_binary=False) == Look(0.0, 0.0)
    assert look_at([1.0, -1.0, 0.0], is_binary=True) == Look(0.0, math.sqrt(2) / 3)
    assert look_at([0.5, -0.5], is_binary=False) == Look(0.0, 0.5)
    assert 30 < look_at([1.0] * 99_999 + [0.999], is_binary=False).z < 40
