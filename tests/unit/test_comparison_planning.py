"""Sample sizes, detectable differences, ratings, rankings: the examples of their definitions, and what always holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.comparison.row_pace import Pace
from assay.statistics.power import (
    cases_for_rates,
    cases_for_scores,
    detectable_rate_difference,
    detectable_score_difference,
)
from assay.statistics.ranking import best_shares, ranked, ranking_score, recommend

CLOSE = 1e-6


@pytest.mark.parametrize(
    ("difference", "disagreeing", "n"), [(0.2, 0.3, 57), (0.1, 0.25, 194), (0.05, 0.2, 626), (0.03, 0.15, 1306)]
)
def test_cases_for_rates(difference: float, disagreeing: float, n: int) -> None:
    """Rounded up; the sign does not matter."""
    assert cases_for_rates(difference, disagreeing) == cases_for_rates(-difference, disagreeing) == n


@pytest.mark.parametrize(
    ("n", "disagreeing", "difference"),
    [(50, 0.25, 0.193467), (100, 0.25, 0.138434), (200, 0.25, 0.098468), (1000, 0.2, 0.039574), (25, 0.25, None)],
)
def test_detectable_differences_of_rates(n: int, disagreeing: float, difference: float | None) -> None:
    """Where too few cases disagree, nothing is detectable."""
    assert detectable_rate_difference(n, disagreeing) == pytest.approx(difference, abs=CLOSE)


def test_no_number_of_cases_is_enough() -> None:
    """A difference that is nothing beside the spread needs more cases than a float can count."""
    assert cases_for_scores(-5.4e-235, 6.3e98) is None
    assert cases_for_rates(1e-200, 1.0) is None
    assert cases_for_scores(1e-9, 1.0) is None  # some 8e18: not exact as a float, and more than a message holds


def test_scores() -> None:
    """Cases and differences of the examples."""
    assert (cases_for_scores(0.3, 1.0), cases_for_scores(-0.2, 0.8), cases_for_scores(0, 1.0)) == (88, 126, None)
    assert detectable_score_difference(25, 1.0) == pytest.approx(0.560317, abs=CLOSE)
    assert detectable_score_difference(100, 0.9) == pytest.approx(0.252143, abs=CLOSE)


def test_cases_needed_for_what_was_observed() -> None:
    """By the share of disagreeing cases and the difference that a comparison found."""
    assert cases_for_rates(8 / 50, 12 / 50) == 72
    assert cases_for_rates(1 / 200, 7 / 200) == 10987
    assert cases_for_rates(0, 10 / 100) is None
    with pytest.raises(ValueError, match="at least that share"):
        cases_for_rates(0.3, 0.2)


@given(st.integers(30, 100_000), st.floats(0.05, 1.0))
def test_a_detectable_difference_needs_no_more_cases_than_there_are(n: int, disagreeing: float) -> None:
    """The two formulas fit each other."""
    difference = detectable_rate_difference(n, disagreeing)
    if difference is not None:
        needed = cases_for_rates(difference, disagreeing)
        assert needed is not None
        assert abs(needed - n) <= 1


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
    """Over the metrics that there are, by the weights of those."""
    assert ranking_score(metrics) == pytest.approx(score)


def test_rankings_and_recommendations() -> None:
    """The best first, those without a score last; confidence follows from the tests between the first two."""
    assert [name for name, _ in ranked({"c": None, "b": 0.5, "a": 0.5, "d": 0.9})] == ["d", "a", "b", "c"]
    assert recommend(["a", "b"], {"accuracy": "a", "quality": "a"}).confidence == "high"
    assert recommend(["a", "b"], {"accuracy": "a", "quality": "tie"}).confidence == "medium"
    assert recommend(["a", "b"], {"accuracy": "a", "quality": "b"}).confidence == "low"
    assert recommend(["a", "b"], {"accuracy": "tie"}).improvements == ()
    found = recommend(["a", "b"], {"accuracy": "b"})
    assert (found.variant, found.confidence, found.note) == ("a", "low", "ranking_and_tests_disagree")
    assert recommend(["a"], {}).confidence == "low"


def test_the_probability_of_being_best() -> None:
    """About 0.949, 0.051 and 0 for eight cases of three variants; equal variants share it."""
    rows = [(1, 1, 0), (1, 0, 0), (1, 1, 1), (1, 1, 0), (0, 0, 0), (1, 1, 0), (1, 0, 0), (1, 1, 1)]
    assert best_shares(rows) == pytest.approx((0.949, 0.051, 0.0), abs=0.02)
    assert best_shares([(1, 1), (0, 0)]) == [0.5, 0.5]


def test_the_pace_of_a_run_leaves_out_what_its_first_rows_waited_for() -> None:
    """A model that loads for 20 s costs a run of 300 rows no more than one of 2; an error at once does not count."""
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
