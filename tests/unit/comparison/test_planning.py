"""How many cases a comparison needs, learned from earlier runs."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.comparison.planning import RowCost, Variation, plan, variation_of
from assay.errors import InvalidInputError

COST = RowCost(agent_calls=1, judge_calls=0.5, tokens=100, cost_usd=0.01, time_s=0.25)


def test_the_variance_of_repeats_is_split() -> None:
    """The specification's rows 1110, 1111, 0010, 1011, 0000: within 0.15, of means 0.16875, noise 22 %."""
    rows = [
        (str(case), float(one)) for case, runs in enumerate(["1110", "1111", "0010", "1011", "0000"]) for one in runs
    ]
    found = variation_of("accuracy", rows)
    assert found.within == pytest.approx(0.15)
    assert found.variance == pytest.approx(0.16875)
    assert found.noise_share == pytest.approx(0.222222, abs=1e-6)
    assert found.repeats == 4


def test_sizes_of_the_specification() -> None:
    """A quarter of disagreeing cases needs 194 of them for ten points; scores with sd 1.0 need 88 for 0.3."""
    rates = Variation("accuracy", 200, 0.8, True, 0.16, None, None, 0.25, 1)
    sizes = {one.repeats: one for one in plan(rates, 0.1, COST).sizes}
    assert sizes[1].cases == 194
    assert sizes[1].detectable == pytest.approx(0.098468, abs=1e-6)
    assert sizes[2].cases is None  # what repeats bring is not known
    scores = Variation("quality", 100, 4.0, False, 1.0, None, None, 1.0, 1)
    assert plan(scores, 0.3, COST).sizes[0].cases == 88


def test_what_a_plan_costs() -> None:
    """Calls, tokens, money and time are those of both variants, at the earlier run's rates."""
    found = plan(Variation("quality", 100, 4.0, False, 1.0, None, None, 1.0, 1), 0.3, COST).sizes[0]
    assert (found.rows, found.agent_calls, found.judge_calls, found.tokens) == (176, 176, 88, 17_600)
    assert found.cost_usd == pytest.approx(1.76)
    assert found.time_s == pytest.approx(44.0)


def test_repeats_take_noise_out() -> None:
    """Where the runs of one case differ, more of them need fewer cases, and never more."""
    rng = random.Random(1)
    rows = [(str(case), rng.gauss(case % 5, 2.0)) for case in range(60) for _ in range(3)]
    cases = [one.cases for one in plan(variation_of("quality", rows), 0.5, COST).sizes]
    assert None not in cases
    assert cases == sorted(cases, reverse=True)  # type: ignore[type-var]  # none is None
    assert cases[0] > 1.5 * cases[-1]  # type: ignore[operator]  # as above


def test_two_runs_measure_the_difference() -> None:
    """With a second run nothing is assumed: equal values have no variance, and two cases are enough."""
    rows = [(str(case), case % 5) for case in range(40)]
    found = variation_of("quality", rows, rows)
    assert (found.correlation, found.spread) == (None, 0.0)
    assert plan(found, 0.1, COST).sizes[0].cases == 2
    assert any("assumed to correlate" in note for note in plan(variation_of("quality", rows), 0.1, COST).notes)


@pytest.mark.parametrize("repeats", [(1, 8), (8, 1), (4, 4)])
def test_each_run_brings_its_own_repeats(repeats: tuple[int, int]) -> None:
    """The same variants, run once and eight times: the noise of both is taken out, in either order."""
    rng = random.Random(7)
    case_means = [rng.gauss(0.0, 1.0) for _ in range(4_000)]
    runs = [
        [(str(case), mean + rng.gauss(0.0, 2.0)) for case, mean in enumerate(case_means) for _ in range(count)]
        for count in repeats
    ]
    found = variation_of("quality", runs[0], runs[1])
    turned = variation_of("quality", runs[1], runs[0])
    assert found.noise == pytest.approx(4 / repeats[0] + 4 / repeats[1], rel=0.1)
    for planned in (1, 2, 5):
        variance = found.difference_variance(planned)
        assert variance == pytest.approx(2 * 4 / planned, rel=0.15)
        assert turned.difference_variance(planned) == pytest.approx(variance, rel=1e-12)
    assert turned.n == found.n
    assert turned.noise_share == pytest.approx(found.noise_share)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e100, -1e100, 5e173, 1.7e308]),
        ),
        min_size=2,
        max_size=12,
    ),
    st.booleans(),
    st.floats(1e-300, 1e300),
)
def test_huge_values_make_no_figure_infinite(rows: list[tuple[str, float]], has_other: bool, difference: float) -> None:
    """Values beyond 1e100 count for nothing, as in a comparison; a plan from all others is JSON."""
    if len({case for case, value in rows if abs(value) <= 1e100}) < 2:
        with pytest.raises(InvalidInputError):
            variation_of("formula", rows)
        return
    variation = variation_of("formula", rows, rows[::-1] if has_other else None)
    json.dumps(dataclasses.asdict(plan(variation, difference, COST)), allow_nan=False)


def test_too_little_to_learn_from() -> None:
    """A plan needs two cases with values, and of two runs two common ones."""
    with pytest.raises(InvalidInputError, match="1 cases have a value"):
        variation_of("quality", [("a", 1.0), ("b", None)])
    with pytest.raises(InvalidInputError, match="share 0 cases"):
        variation_of("quality", [("a", 1.0), ("b", 2.0)], [("c", 1.0), ("d", 2.0)])
