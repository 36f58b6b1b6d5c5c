"""What every comparison of runs must hold, whatever the rows are."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.comparison.comparing import compare_columns, compared, facts

from assay.comparison.compare import ComparedRun, compare_runs
from assay.comparison.facts import MetricFacts
from assay.comparison.model import (
    Adjustment,
    ComparisonSettings,
    ComparisonVerdict,
    ErrorComparison,
    MetricComparison,
    Side,
)
from assay.comparison.what_changed import changes
from assay.model.interval import Interval
from assay.model.limits import MAX_COMPARED_RUNS
from assay.wire.comparison import COMPARISON

if TYPE_CHECKING:
    from collections.abc import Sequence


MIRRORED = {
    ComparisonVerdict.A_BETTER: ComparisonVerdict.B_BETTER,
    ComparisonVerdict.B_BETTER: ComparisonVerdict.A_BETTER,
}
OTHER = {Side.A: Side.B, Side.B: Side.A, Side.NEITHER: Side.NEITHER}
CATEGORIES = ("refunds", "", "delivery")


EXTREMES = (5e-324, 1e99, 1e100, -1e100, 1.7e308)


@st.composite
def columns(
    draw: st.DrawFn, runs: int = 2, extremes: Sequence[float] = EXTREMES
) -> list[dict[str, list[float | None]]]:
    """Return the columns of runs over the same 1 to 14 cases, with values that are missing."""
    n = draw(st.integers(1, 14))
    kinds: dict[str, st.SearchStrategy[float | None]] = {
        "exact_match": st.sampled_from([0.0, 1.0, 1.0, None]),
        "quality": st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0, None]),
        "latency": st.floats(0.0, 1e6) | st.none() | st.sampled_from(extremes),
    }
    return [
        {name: draw(st.lists(values, min_size=n, max_size=n)) for name, values in kinds.items()} for _ in range(runs)
    ]


SETTINGS = st.builds(
    ComparisonSettings,
    primary=st.sampled_from(["", "quality", "latency", "pass_rate"]),
    margin=st.sampled_from([None, 0.3]),
    cluster=st.sampled_from(["", "category"]),
    adjust=st.sampled_from(list(Adjustment)),
)


def runs_of(
    given_columns: Sequence[dict[str, list[float | None]]], wanted: ComparisonSettings, order: Sequence[int] = ()
) -> list[ComparedRun]:
    """Return runs whose cases come in an order; every run has an agent error in its own case."""
    n = len(given_columns[0]["quality"])
    order = order or range(n)
    return [
        compared(
            f"run-{at}",
            {name: [column[place] for place in order] for name, column in each.items()},
            ids=[f"c{place}" for place in order],
            errors=[index for index, place in enumerate(order) if place == at],
            categories=[CATEGORIES[place % 3] for place in order],
            settings=wanted,
        )
        for at, each in enumerate(given_columns)
    ]


def assert_close(one: Any, other: Any, where: str = "") -> None:
    """Fail where two figures, or anything made of them, differ by more than the rounding of sums."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_close(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for index, (first, second) in enumerate(zip(one, other, strict=True)):
            assert_close(first, second, f"{where}[{index}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9), where
    else:
        assert one == other, where


def negated(value: float | None) -> float | None:
    """Return the figure with the other sign."""
    return None if value is None else -value


def turned(interval: Interval | None) -> Interval | None:
    """Return the interval of the figure with the other sign."""
    return None if interval is None else Interval(-interval.high, -interval.low)


def mirrored(one: MetricComparison) -> MetricComparison:
    """Return what swapping the two runs must make of a comparison."""
    classical = one.classical
    if classical is not None:
        winner = OTHER[classical.winner]
        statistic = negated(classical.statistic) if classical.test == "t_test" else classical.statistic
        classical = replace(classical, winner=winner, statistic=statistic)
    table = one.table and replace(one.table, a_only_count=one.table.b_only_count, b_only_count=one.table.a_only_count)
    return replace(
        one,
        verdict=MIRRORED.get(one.verdict, one.verdict),
        a=one.b,
        b=one.a,
        difference=negated(one.difference),
        interval=turned(one.interval),
        equivalence_interval=turned(one.equivalence_interval),
        one_sided=turned(one.one_sided),
        win_count=one.loss_count,
        loss_count=one.win_count,
        table=table,
        cohens_h=negated(one.cohens_h),
        t=negated(one.t),
        d_z=negated(one.d_z),
        cliffs_delta=negated(one.cliffs_delta),
        classical=classical,
        without_errors=negated(one.without_errors),
        errors=one.errors and mirrored_errors(one.errors),
        worst_case=one.worst_case
        and replace(one.worst_case, difference=-one.worst_case.difference, interval=turned(one.worst_case.interval)),
    )


def mirrored_errors(one: ErrorComparison) -> ErrorComparison:
    """Return what swapping the two runs must make of their errors."""
    return replace(
        one,
        a_row_count=one.b_row_count,
        b_row_count=one.a_row_count,
        a_case_count=one.b_case_count,
        b_case_count=one.a_case_count,
        a_only_case_count=one.b_only_case_count,
        b_only_case_count=one.a_only_case_count,
        worse=OTHER[one.worse],
    )


@given(columns(), SETTINGS)
def test_swapping_two_runs_mirrors_everything(
    pair: list[dict[str, list[float | None]]], how: ComparisonSettings
) -> None:
    """Differences and effect sizes are negated, intervals turned, the winner swapped; p-values and counts stay."""
    one, other = runs_of(pair, how)
    how = replace(how, primary=how.primary or "exact_match")
    here, there = compare_runs([one, other], how), compare_runs([other, one], how)
    for metric in here.pairs[0].metrics:
        assert_close(asdict(there.pairs[0].metric(metric.metric)), asdict(mirrored(metric)), metric.metric)


# Without values that differ by more than a float has digits: sums of clusters are made in the order of the cases.
@given(columns(runs=3, extremes=(5e-324,)), SETTINGS, st.randoms(use_true_random=False))
def test_the_order_of_the_cases_changes_nothing(
    three: list[dict[str, list[float | None]]], how: ComparisonSettings, order: random.Random
) -> None:
    """Every figure, drawn ones included, is independent of the order of the rows."""
    places = list(range(len(three[0]["quality"])))
    order.shuffle(places)
    assert_close(asdict(compare_runs(runs_of(three, how, places), how)), asdict(compare_runs(runs_of(three, how), how)))


@given(columns(), SETTINGS)
def test_equal_rows_are_never_better(pair: list[dict[str, list[float | None]]], how: ComparisonSettings) -> None:
    """Two runs with the same rows have difference 0, p 1 or none, and neither is better."""
    one = pair[0]
    categories = ["refunds"] * len(one["quality"])
    same = [compared(run_id, one, settings=how, categories=categories) for run_id in ("one", "same")]
    for metric in compare_runs(same, how).pairs[0].metrics:
        assert metric.verdict not in (ComparisonVerdict.A_BETTER, ComparisonVerdict.B_BETTER)
        assert metric.difference in (0, None)
        assert metric.p in (1, None)
        assert (metric.win_count, metric.loss_count) == (0, 0)
        assert metric.classical is None or metric.classical.winner is Side.NEITHER


@given(columns(runs=3), SETTINGS)
def test_no_figure_is_infinite_or_nan(three: list[dict[str, list[float | None]]], how: ComparisonSettings) -> None:
    """A comparison is JSON without NaN, and every mean has its number of cases."""
    comparison = compare_runs(runs_of(three, how), how)
    json.dumps(asdict(comparison), allow_nan=False, default=str)
    for metric in (metric for pair in comparison.pairs for metric in pair.metrics):
        assert metric.pair_count + metric.dropped_case_count == len(three[0]["quality"])
        for estimate in (metric.a, metric.b):
            assert estimate is not None
            assert estimate.case_count == metric.pair_count
            assert (estimate.value is None) == (estimate.case_count == 0)
            if estimate.value is not None and estimate.interval is not None:
                assert estimate.interval[0] - 1e-9 <= estimate.value <= estimate.interval[1] + 1e-9


@pytest.mark.parametrize("how", [ComparisonSettings(), ComparisonSettings(seed=7)])
def test_drawn_signs_know_neither_order_nor_direction(how: ComparisonSettings) -> None:
    """Even with drawn signs, swapping and reordering change no bit of p."""
    rng = random.Random(3)
    a, b = ([rng.uniform(1, 5) for _ in range(60)] for _ in range(2))
    metric = compare_columns({"quality": a}, {"quality": b}, settings=how).pairs[0].metric("quality")
    swapped = compare_columns({"quality": b}, {"quality": a}, settings=how).pairs[0].metric("quality")
    reordered = compare_columns({"quality": a[::-1]}, {"quality": b[::-1]}, settings=how).pairs[0].metric("quality")
    assert metric.method == "sign_flip_random"
    assert metric.p == swapped.p == reordered.p
    assert metric.p is not None
    assert not math.isnan(metric.p)


MESSAGE_BYTES = 4 * 2**20
METRICS = {name: MetricFacts(name, name, "%") for name in (f"metric_{number}_of_many" for number in range(20))}
CASES = 30


def run(number: int) -> ComparedRun:
    """Return one of the most runs that can be compared: no case comes out as in another one, and ids are long."""
    columns = {name: [float((number >> place % 5) & 1) for place in range(CASES)] for name in METRICS}
    comparison = compared(f"run-{number}", columns, ids=[f"{place:>0200}" for place in range(CASES)])
    config = {"prompts": {str(at): f"{number} {'Ω' * 100_000}" for at in range(20)}}
    return ComparedRun(replace(facts(f"run-{number}", METRICS), config=config), comparison.cases)


def test_the_largest_comparison_fits() -> None:
    """26 runs with 20 metrics, long ids and prompts fit: cases and texts are cut, figures are not."""
    comparison = compare_runs([run(number) for number in range(MAX_COMPARED_RUNS)], ComparisonSettings())
    assert COMPARISON.to_wire(comparison).ByteSize() < MESSAGE_BYTES
    counts = [len(pair.flipped_cases) for pair in comparison.pairs]
    assert sum(counts) <= 1_000
    assert max(counts) == 3
    assert max(pair.flipped_case_count for pair in comparison.pairs) > 3
    assert len(comparison.changes) == 20


def test_long_texts_are_compared_whole() -> None:
    """Texts that differ only at their ends have changed; the shown text has its length."""
    (found,) = changes([{"prompt": "a" * 10_000 + end} for end in "bc"])
    assert found.path == "prompt"
    assert found.values == ("a" * 4_000 + "… (10,001 characters)",) * 2
