"""Sample sizes, detectable differences, ratings, rankings: the examples of their definitions, and what always holds."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.comparison.compare import recommend
from assay.comparison.model import RunRef
from assay.comparison.row_pace import Pace
from assay.statistics.clusters import least_units
from assay.statistics.paired import mcnemar
from assay.statistics.power import (
    cases_for_rates,
    cases_for_scores,
    detectable_rate_difference,
    detectable_score_difference,
    rate_power,
)
from assay.statistics.ranking import best_shares, ranked, ranking_score
from assay.statistics.sign_flips import sign_flips

CLOSE = 1e-6


@pytest.mark.parametrize(
    ("difference", "disagreeing", "n"),
    [
        (0.2, 0.3, 61),
        (0.1, 0.25, 207),
        (0.05, 0.1, 337),
        (0.3, 0.5, 46),
        (0.05, 0.2, 658),
        (0.03, 0.15, 1362),
        (0.9, 0.9, 7),
        (0.15, 1.0, 367),  # 361 have the power, too, and some after them lack it
    ],
)
def test_cases_for_rates(difference: float, disagreeing: float, n: int) -> None:
    """From so many cases on, exact McNemar has its power; one less lacks it. The sign does not matter."""
    assert cases_for_rates(difference, disagreeing) == cases_for_rates(-difference, disagreeing) == n
    powers = [rate_power(each, difference, disagreeing) for each in range(n - 1, n + 60)]
    assert powers[0] < 0.8
    assert min(powers[1:]) >= 0.8


@pytest.mark.parametrize("alpha", [0.05, 0.0625, 0.01])
@pytest.mark.parametrize(
    ("n", "difference", "disagreeing"), [(12, 0.4, 0.6), (15, -0.3, 0.3), (20, 0.5, 1.0), (5, 1, 1)]
)
def test_power_counts_what_the_test_decides(n: int, difference: float, disagreeing: float, alpha: float) -> None:
    """Power is the sum over all tables in which `mcnemar` is significant in the right direction; p = alpha is not."""
    won, lost = (disagreeing + abs(difference)) / 2, (disagreeing - abs(difference)) / 2
    same = 1 - disagreeing
    expected = math.fsum(
        math.comb(n, b) * math.comb(n - b, c) * lost**b * won**c * same ** (n - b - c)
        for b in range(n + 1)
        for c in range(b + 1, n - b + 1)
        if mcnemar(0, b, c, n - b - c).p < alpha
    )
    assert rate_power(n, difference, disagreeing, alpha=alpha) == pytest.approx(expected, abs=1e-10)


def test_large_sizes_are_close_to_the_normal_limit() -> None:
    """Where enumeration ends, the closed form with what an exact test loses continues it."""
    assert cases_for_rates(0.003, 0.2) == pytest.approx(175_000, rel=0.01)
    assert cases_for_rates(0.001, 0.2) == pytest.approx(1_571_766, rel=1e-4)  # enumerated
    assert detectable_rate_difference(200_000, 0.2) == pytest.approx(detectable_rate_difference(200_001, 0.2), rel=0.01)


@pytest.mark.parametrize(
    ("n", "disagreeing", "difference"),
    [
        (50, 0.25, 0.198584),
        (100, 0.25, 0.144206),
        (200, 0.25, 0.101519),
        (1000, 0.2, 0.040410),
        (25, 0.25, None),
        (50, 0.12, None),  # six or more of six expected cases differ too seldom
        (5, 1.0, None),
        (6, 1.0, 0.926985),  # all six must point one way: the sixth root of 0.8 is won
    ],
)
def test_detectable_differences_of_rates(n: int, disagreeing: float, difference: float | None) -> None:
    """Where too few cases disagree, nothing is detectable."""
    found = detectable_rate_difference(n, disagreeing)
    assert found == pytest.approx(difference, abs=CLOSE)
    if found is not None:
        assert rate_power(n, found, disagreeing) == pytest.approx(0.8, abs=1e-8)


def test_no_number_of_cases_is_enough() -> None:
    """A difference that is tiny beside the spread needs more cases than a float can count."""
    assert cases_for_scores(-5.4e-235, 6.3e98) is None
    assert cases_for_rates(1e-200, 1.0) is None
    assert cases_for_rates(0, 0.1) is None
    assert cases_for_scores(1e-9, 1.0) is None  # some 8e18: not exact as a float, and more than a message holds
    with pytest.raises(ValueError, match="at least that share"):
        cases_for_rates(0.3, 0.2)


@pytest.mark.parametrize(("effect", "n"), [(5, 6), (1.5, 7), (1.2, 8), (1.0, 11), (0.8, 15), (0.5, 34), (0.3, 90)])
def test_cases_for_scores(effect: float, n: int) -> None:
    """The noncentral t, for few cases the sign flips themselves, never fewer than can decide; 0 has no size."""
    assert (cases_for_scores(effect, 1.0), cases_for_scores(-2 * effect, 2.0), cases_for_scores(0, 1.0)) == (n, n, None)
    assert least_units(0.05) == 6


def test_few_cases_decide_by_their_signs() -> None:
    """Six normal differences are significant where all are above 0: the mean is that of the sixth root of 0.8."""
    assert detectable_score_difference(5, 1.0) is None
    assert detectable_score_difference(6, 1.0) == pytest.approx(NormalDist().inv_cdf(0.8 ** (1 / 6)), abs=0.02)
    assert detectable_score_difference(25, 1.0) == pytest.approx(0.584027, abs=CLOSE)
    assert detectable_score_difference(100, 0.9) == pytest.approx(0.254622, abs=CLOSE)


def test_sign_flips_keep_what_sizes_promise() -> None:
    """A difference of one standard deviation: of 11 planned cases the product's own test finds 80 %, and no less."""
    n = cases_for_scores(1.0, 1.0)
    assert n is not None
    drawn = np.random.default_rng(3).normal(1.0, 1.0, (1_500, n))
    found = [one.p < 0.05 and row.sum() > 0 for one, row in zip(sign_flips(list(drawn)), drawn, strict=True)]
    assert sum(found) / len(found) >= 0.8 - 3 * math.sqrt(0.16 / len(found))


def test_scores_of_which_few_differ_need_six_that_do() -> None:
    """With 5 % of cases that differ, 157 of them leave six with a chance of 80 %; fewer detect nothing."""
    assert cases_for_scores(0.3, 1.0, differing=0.05) == 157
    assert detectable_score_difference(156, 1.0, differing=0.05) is None
    assert detectable_score_difference(157, 1.0, differing=0.05) is not None


def test_sums_in_whole_steps_lose_power() -> None:
    """Scores that differ by 0 or 1 are rates: their size is McNemar's within 1 %."""
    spread = math.sqrt(0.1 - 0.05**2)
    found = cases_for_scores(0.05, spread, differing=0.1, step=1.0)
    assert found == pytest.approx(337, rel=0.01)
    assert detectable_score_difference(337, spread, differing=0.1, step=1.0) == pytest.approx(0.05, rel=0.01)


@given(st.integers(30, 20_000), st.floats(0.05, 1.0))
def test_a_detectable_difference_needs_no_more_cases_than_there_are(n: int, disagreeing: float) -> None:
    """Power rises with the difference, and a size for a detectable one is about the number of cases."""
    difference = detectable_rate_difference(n, disagreeing)
    if difference is not None:
        needed = cases_for_rates(difference * (1 + 1e-6), disagreeing) if difference < disagreeing * 0.999 else n
        assert needed == pytest.approx(n, abs=2 + 3 * math.sqrt(n))


@pytest.mark.parametrize(
    ("metrics", "score"),
    [
        ({"accuracy": 0.88, "consistency": 0.834, "quality": 4.2}, 0.8542),
        ({"accuracy": 0.6, "consistency": 0.9, "quality": 4.4}, 0.774),
        ({"accuracy": 0.88}, 0.88),
        ({"consistency": 0.8, "quality": 4.5}, 0.85),
        ({"accuracy": 0.6, "quality": 5}, 0.7714285714),
        ({"accuracy": None}, None),
    ],
)
def test_ranking_scores(metrics: dict[str, float | None], score: float | None) -> None:
    """Scores are weighted over the metrics that have a value."""
    assert ranking_score(metrics) == pytest.approx(score)


def test_rankings_and_recommendations() -> None:
    """The best first, those without a score last; confidence follows from the tests between the first two."""
    assert [name for name, _ in ranked({"c": None, "b": 0.5, "a": 0.5, "d": 0.9})] == ["d", "a", "b", "c"]
    first = RunRef("a", "run-a")
    assert recommend(first, "b", {"accuracy": "a", "quality": "a"}).confidence == "high"
    assert recommend(first, "b", {"accuracy": "a", "quality": "tie"}).confidence == "medium"
    assert recommend(first, "b", {"accuracy": "a", "quality": "b"}).confidence == "low"
    assert recommend(first, "b", {"accuracy": "tie"}).improvements == ()
    found = recommend(first, "b", {"accuracy": "b"})
    assert (found.label, found.confidence, found.note) == ("a", "low", "ranking_and_tests_disagree")


def test_the_probability_of_being_best() -> None:
    """About 0.949, 0.051 and 0 for eight cases of three variants; equal variants share it."""
    rows = [(1, 1, 0), (1, 0, 0), (1, 1, 1), (1, 1, 0), (0, 0, 0), (1, 1, 0), (1, 0, 0), (1, 1, 1)]
    assert best_shares(rows) == pytest.approx((0.949, 0.051, 0.0), abs=0.02)
    assert best_shares([(1, 1), (0, 0)]) == [0.5, 0.5]


def test_the_normal_limit_agrees_with_resampling_where_it_begins() -> None:
    """Rare losses of one variant over 999 and 1,000 cases give the same shares; equal variants share them."""
    cases = [(1.0, 0.0, 1.0)] * 12 + [(0.0, 1.0, 0.0)] * 6 + [(1.0, 1.0, 1.0)] * 981
    drawn, limit = best_shares(cases), best_shares([*cases, (1.0, 1.0, 1.0)])
    assert drawn[1] == pytest.approx(0.08, abs=0.02)
    assert limit == pytest.approx(drawn, abs=0.02)
    assert limit[0] == pytest.approx(limit[2])


def test_the_pace_of_a_run_leaves_out_what_its_first_rows_waited_for() -> None:
    """Loading a model for 20 s affects the pace of a large run no more than that of a small one."""
    pace = Pace()
    pace.take("2026-11-27T10:00:00.000Z", 10.0, 5.0)
    for index in range(12):
        pace.take("2026-11-27T10:00:00.000Z", 20_000.0 + 100 * index, 40.0)
    assert pace.row_s(4) == pytest.approx(0.1, rel=0.1)
    assert Pace().row_s(4) is None


def test_the_agent_takes_its_share_of_the_time() -> None:
    """Rows that end together still ask the agent, as many at once as it may have."""
    pace = Pace()
    for _ in range(4):
        pace.take("2026-11-27T10:00:00.000Z", 20_000.0, 2_000.0)
    pace.take(None, None, 2_000.0)
    assert pace.row_s(4) == pytest.approx(0.5)
