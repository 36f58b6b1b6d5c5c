"""Comparisons that once had a wrong verdict, as small data: what is right for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.comparison.comparing import compare_columns, compared, facts

from assay.comparison.cases import CaseScores
from assay.comparison.compare import ComparedRun, compare_runs
from assay.comparison.decision import DecisionRules, decide
from assay.comparison.facts import MetricFacts
from assay.comparison.model import ComparisonSettings, ComparisonVerdict
from assay.statistics.sign_flips import sign_flips

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.model import MetricComparison

TONE = MetricFacts("tone", "tone", scale=(0.0, 1.0))
BY_CATEGORY = ComparisonSettings(cluster="category")


def clustered(
    a: Sequence[float], b: Sequence[float], categories: Sequence[str], settings: ComparisonSettings = BY_CATEGORY
) -> MetricComparison:
    """Return the comparison of exact match of two runs whose cases have categories."""
    runs = [
        compared(name, {"exact_match": values}, categories=categories, settings=settings)
        for name, values in (("a", a), ("b", b))
    ]
    return compare_runs(runs, settings).pairs[0].metric("exact_match")


def of_tone(
    a: Sequence[float], b: Sequence[float], margin: float | None = None, scale: tuple[float, float] | None = (0.0, 1.0)
) -> MetricComparison:
    """Return the comparison of a metric with a scale."""
    metric = MetricFacts("tone", "tone", scale=scale)
    runs = []
    for name, values in (("a", a), ("b", b)):
        cases = CaseScores(("tone",))
        for place, value in enumerate(values):
            cases.take(f"c{place}", {"tone": value}, passed=None)
        runs.append(ComparedRun(facts(name, {"tone": metric}, total=len(values), finished=len(values)), cases))
    return compare_runs(runs, ComparisonSettings(margin=margin)).pairs[0].metric("tone")


def test_one_large_category_and_nine_small_ones_decide_nothing() -> None:
    """A lost 14 of 200 in one category and 2 of 45 elsewhere: by clusters that is one observation, not fourteen."""
    categories = ["general"] * 200 + [f"k{at // 5}" for at in range(45)]
    a = [1.0] * 245
    b = [0.0] * 14 + [1.0] * 186 + [0.0, *[1.0] * 43, 0.0]
    metric = clustered(a, b, categories)
    assert (metric.cluster_count, metric.largest_cluster, metric.reason) == (10, "general", "too_few_clusters")
    assert metric.effective_cluster_count == pytest.approx(245**2 / (200**2 + 9 * 25))
    assert metric.largest_cluster_share == pytest.approx(200 / 245)
    assert (metric.verdict, metric.p, metric.min_attainable_p, metric.interval_method) == (
        ComparisonVerdict.INCONCLUSIVE,
        0.25,
        0.25,
        "cr2",
    )
    assert "few_clusters" in metric.notes
    assert metric.message.startswith("3 of 10 clusters came out differently")


@pytest.mark.parametrize("values", [[0.7] * 5, [0.7] * 49])
def test_a_few_equal_scores_are_not_equivalent(values: list[float]) -> None:
    """A few equal scores exclude no rare loss, whatever the margin."""
    metric = of_tone(values, values, margin=0.001)
    assert (metric.verdict, metric.reason) == (ComparisonVerdict.INCONCLUSIVE, "too_few_differing")
    assert metric.message.endswith("; fewer than 50 cases never show equivalence")


def test_equal_scores_without_a_scale_are_never_equivalent() -> None:
    """Of 1,000 equal values without a least and a greatest one, the next may differ by anything."""
    assert of_tone([0.7] * 1_000, [0.7] * 1_000, margin=0.01).verdict is ComparisonVerdict.EQUIVALENT
    metric = of_tone([0.7] * 1_000, [0.7] * 1_000, margin=0.01, scale=None)
    assert (metric.verdict, metric.reason) == (ComparisonVerdict.INCONCLUSIVE, "no_scale")


def test_a_few_equal_categories_are_not_equivalent() -> None:
    """20 cases in five categories, all right in both runs: undecided, and so 4 under strict rules."""
    settings = ComparisonSettings(cluster="category", margin=0.001)
    categories = [f"k{at // 4}" for at in range(20)]
    runs = [compared(name, {"exact_match": [1.0] * 20}, categories=categories, settings=settings) for name in "ab"]
    comparison = compare_runs(runs, settings)
    assert comparison.pairs[0].metric("exact_match").reason == "too_few_clusters"
    assert decide(comparison, DecisionRules(strict=True)).exit_status == 4


def test_four_cases_of_two_hundred_decide_nothing() -> None:
    """B wins 4 and loses none, each in its own of 100 clusters: no assignment of signs is rarer than 1 in 8."""
    b = [1.0] * 200
    a = [0.0, 1.0] * 4 + [1.0] * 192
    metric = clustered(a, b, [f"k{at // 2}" for at in range(200)])
    assert (metric.verdict, metric.p, metric.reason) == (ComparisonVerdict.INCONCLUSIVE, 0.125, "too_few_clusters")
    assert metric.message == "4 of 100 clusters came out differently: with so few, no p-value can be below 0.05"


@pytest.mark.parametrize("rise", [[0.4, 0.42, 0.41, 0.39, 0.41], [0.1] * 5])
def test_five_cases_never_decide(rise: list[float]) -> None:
    """Five cases never decide, however large the difference; six can."""
    metric = of_tone([0.4] * 5, [0.4 + each for each in rise])
    assert (metric.p, metric.reason, metric.notes) == (0.0625, "too_few_differing", ("few_differing",))
    assert of_tone([0.4] * 6, [0.4 + each for each in (*rise, 0.4)]).verdict is ComparisonVerdict.B_BETTER


def test_the_least_p_is_that_of_the_level() -> None:
    """Seven cases can decide at 5 %, but neither at 1 % nor at 5 % with Holm's factor of four."""
    a, b = [1.0] * 30, [0.0] * 7 + [1.0] * 23
    columns = [{"exact_match": a}, {"exact_match": b}]
    strict = compare_columns(*columns, settings=ComparisonSettings(alpha=0.01)).pairs[0].metric("exact_match")
    assert (strict.reason, strict.notes) == ("too_few_differing", ("few_differing",))
    others = [{"exact_match": [0.0] * at + [1.0] * (30 - at)} for at in (1, 2, 3)]
    several = compare_columns(*columns, *others).pairs[0].metric("exact_match")
    assert (several.p, several.p_adjusted, several.reason) == (0.015625, 0.0625, "too_few_differing")
    assert several.message.endswith("can be below 0.05 after the adjustment for 4 tests")


def test_a_regression_is_adjusted_over_the_pairs_that_decide() -> None:
    """B won 12 and lost 3 of 100 against A: with a third run the raw p is doubled, not tripled."""
    a = [0.0] * 12 + [1.0] * 88
    b = [1.0] * 12 + [0.0] * 3 + [1.0] * 85
    c = [0.0] * 11 + [1.0] * 89
    columns = [{"exact_match": each} for each in (a, b, c)]
    metric = compare_columns(*columns).pairs[0].metric("exact_match")
    assert metric.p == pytest.approx(0.03515625)
    assert metric.p is not None
    assert (metric.p_adjusted, metric.reason) == (2 * metric.p, "not_significant_adjusted")
    every = compare_columns(*columns, settings=ComparisonSettings(all_pairs=True)).pairs[0].metric("exact_match")
    assert every.p_adjusted == pytest.approx(3 * metric.p)


def test_a_few_large_losses_that_carry_the_mean_are_noted() -> None:
    """Two losses of 0.45 among 48 gains of 0.05 make up three quarters of the variance."""
    metric = of_tone([0.5] * 50, [0.55] * 48 + [0.05] * 2)
    assert "large_losses" in metric.notes
    assert "large_losses" not in of_tone([0.5] * 50, [0.55, 0.4] * 25).notes


def test_p_close_to_the_level_has_its_error() -> None:
    """Drawn p-values have a standard error, exact ones have none."""
    values = [0.001 * (at * 37 % 101) ** 1.5 for at in range(60)]
    metric = of_tone([0.0] * 60, [value * (-1) ** (at % 3) for at, value in enumerate(values)])
    assert (metric.method, metric.p_error is not None and 0 < metric.p_error < 0.01) == ("sign_flip_random", True)
    assert of_tone([0.4] * 6, [0.5] * 6).p_error is None


def test_drawn_p_values_reach_the_level_of_a_large_family() -> None:
    """A family of 1,500 tests gets more draws: the least p of 20,000 would be 0.075 after the adjustment."""
    steps = [0.3 + 0.001 * (at * 37 % 101) ** 1.1 for at in range(30)]
    alone, together = (sign_flips([steps], counts=[count])[0] for count in (1, 1_500))
    assert (alone.p, together.p) == pytest.approx((1 / 20_001, 1 / 200_001))
