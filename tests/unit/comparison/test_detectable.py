"""What the cases of a comparison could detect, and how many a chosen difference needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.comparison.comparing import compare_columns, compared, disagreeing

from assay.comparison.compare import compare_runs
from assay.comparison.decision import DecisionRules
from assay.comparison.model import ComparisonSettings, MetricComparison
from assay.comparison.settings import check_settings
from assay.statistics.power import cases_for_rates, detectable_effect, detectable_rate_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

DIFFERENCES = [0.4, 0.3, 0.5, 0.4, 0.6, 0.2]


def of_scores(differences: Sequence[float], **settings: Any) -> MetricComparison:
    """Return the comparison of scores that differ so."""
    columns = [{"quality": [3.0 + turned * difference for difference in differences]} for turned in (0, 1)]
    return compare_columns(*columns, settings=ComparisonSettings(**settings)).pairs[0].metrics[0]


def of_rates(a_only: int, b_only: int, n: int, **settings: Any) -> MetricComparison:
    """Return the comparison of rates of which so many cases disagree."""
    columns = [{"exact_match": column} for column in disagreeing(a_only, b_only, n)]
    return compare_columns(*columns, settings=ComparisonSettings(**settings)).pairs[0].metrics[0]


@pytest.mark.parametrize(
    ("differences", "alpha", "has_figure"),
    [
        ([0.4] * 5, 0.05, False),  # five can never decide
        (DIFFERENCES, 0.05, True),
        ([*DIFFERENCES, *[0.0] * 60], 0.05, False),  # of 66 more often five differ than six
        ([*DIFFERENCES, *[0.2] * 3], 0.01, True),
        (DIFFERENCES, 0.01, False),
    ],
)
def test_scores_that_can_never_decide_have_no_detectable_difference(
    differences: list[float], alpha: float, has_figure: bool
) -> None:
    """Where no p-value is below alpha, or hardly ever, no difference is called detectable."""
    assert (of_scores(differences, alpha=alpha).detectable is not None) is has_figure


@pytest.mark.parametrize(("a_only", "b_only", "has_figure"), [(0, 5, False), (3, 3, False), (5, 15, True)])
def test_rates_that_can_never_decide_have_no_detectable_difference(a_only: int, b_only: int, has_figure: bool) -> None:
    """The same holds for pass rates, of which the cases count that pass in one run alone."""
    assert (of_rates(a_only, b_only, 50).detectable is not None) is has_figure


def test_detectable_differences_are_those_of_the_test() -> None:
    """McNemar's for rates, for scores the sign flips of so few; a difference beyond the scale is none."""
    assert of_rates(10, 15, 100).detectable == detectable_rate_difference(100, 0.25)
    few = of_scores([0.4, -0.3, 0.513, 0.41, -0.6, 0.2, 0.3])
    effect = detectable_effect(7)
    assert effect is not None
    assert few.standard_error is not None
    assert few.detectable == pytest.approx(effect * 7**0.5 * few.standard_error)
    assert of_scores([3.1, -3.0, 3.3, -3.2, 3.4, -3.5]).detectable is None


def test_clusters_are_what_can_detect() -> None:
    """Five categories decide nothing, however many cases they have; twelve detect less than their cases alone."""
    for count, has_figure in ((5, False), (12, True)):
        categories = [str(case % count) for case in range(120)]
        values = [[0.0] * 120, [0.1 * (case % count) + 0.01 * (case % 7) for case in range(120)]]
        settings = ComparisonSettings(cluster="category")
        runs = [
            compared(str(at), {"quality": column}, settings=settings, categories=categories)
            for at, column in enumerate(values)
        ]
        metric = compare_runs(runs, settings).pairs[0].metrics[0]
        assert (metric.detectable is not None) is has_figure
    alone = compare_columns(*({"quality": column} for column in values)).pairs[0].metrics[0]
    assert alone.detectable is not None
    assert metric.detectable is not None
    assert metric.detectable > 2 * alone.detectable


def test_figures_without_a_verdict_promise_none() -> None:
    """Filtered cases and undecided pairs have neither a detectable difference nor a number of needed cases."""
    filtered = of_rates(10, 15, 100, where="failed", difference=0.1)
    assert (filtered.reason, filtered.detectable, filtered.needed_case_count) == ("filtered", None, None)
    columns = [{"exact_match": column} for column in (*disagreeing(10, 15, 100), disagreeing(10, 15, 100)[0][::-1])]
    pair = compare_columns(*columns, settings=ComparisonSettings(difference=0.1)).pair("B", "C").metrics[0]
    assert (pair.decides, pair.detectable, pair.needed_case_count) == (False, None, None)


def test_several_runs_need_more() -> None:
    """Two comparisons with one baseline: the figure is that of half the level, which the adjustment asks first."""
    columns = [{"exact_match": column} for column in (*disagreeing(10, 15, 100), disagreeing(10, 15, 100)[0][::-1])]
    metric = compare_columns(*columns).pair("A", "B").metrics[0]
    assert metric.detectable is not None
    assert metric.detectable > of_rates(10, 15, 100).detectable  # type: ignore[operator]  # it is a number


@pytest.mark.parametrize(
    ("settings", "rules", "chosen"),
    [
        ({}, {}, None),
        ({"margin": 0.1}, {}, 0.1),
        ({"margin": 0.1, "difference": 0.05}, {"max_drop": 0.2}, 0.05),
        ({}, {"max_drop": 0.1}, 0.1),
        ({}, {"max_drop": 0.0}, None),
        ({"difference": 0.3}, {}, 0.3),  # more than the quarter of the cases that disagrees
    ],
)
def test_needed_cases_are_those_of_a_chosen_difference(
    settings: dict[str, Any], rules: dict[str, Any], chosen: float | None
) -> None:
    """A sample size is for the primary metric and a chosen difference, never for the observed one."""
    checked, _ = check_settings(
        ComparisonSettings(**settings),
        DecisionRules(**rules),
        adjust="holm",
        fail_on="regression",
    )
    assert checked.difference == chosen
    columns = [{"exact_match": one, "quality": [2 + each for each in one]} for one in disagreeing(10, 15, 100)]
    first, *others = compare_columns(*columns, settings=checked).pairs[0].metrics
    assert first.needed_case_count == (None if chosen is None or chosen > 0.25 else cases_for_rates(chosen, 0.25))
    assert {one.needed_case_count for one in others} == {None}
