"""How many cases a comparison needs, learned from earlier runs."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.support.docs.guides import blocks

from assay.comparison.planning import RowCost, Variation, plan, variation_of
from assay.errors import InvalidInputError
from assay.statistics.power import cases_for_rates, cases_for_scores
from assay_cli.commands.plan import plan_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

COST = RowCost(agent_calls=1, judge_calls=0.5, tokens=100, cost_usd=0.01, time_s=0.25)


def test_the_variance_of_repeats_is_split() -> None:
    """The specification's rows 1110, 1111, 0010, 1011, 0000: within 0.15, of means 0.16875, noise 22 %."""
    rows = [
        (str(case), float(run)) for case, runs in enumerate(["1110", "1111", "0010", "1011", "0000"]) for run in runs
    ]
    variation = variation_of("accuracy", rows)
    assert variation.within == pytest.approx(0.15)
    assert variation.variance == pytest.approx(0.16875)
    assert variation.noise_share == pytest.approx(0.222222, abs=1e-6)
    assert variation.repeats == 4


def test_sizes_of_the_specification() -> None:
    """A quarter of disagreeing cases needs 207 of them for ten points; scores with sd 1.0 need 90 for 0.3."""
    sizes = {size.repeats: size for size in plan(rates(both=125, a_only=25, b_only=25, neither=25), 0.1, COST).sizes}
    assert sizes[1].cases == 207
    assert sizes[1].detectable == pytest.approx(0.101519, abs=1e-6)
    assert sizes[2].cases is None  # what repeats bring is not known
    scores = Variation("quality", 100, 4.0, False, 1.0, None, None, 1.0, 1)
    assert plan(scores, 0.3, COST).sizes[0].cases == 90


def rates(*, both: int, a_only: int, b_only: int, neither: int) -> Variation:
    """Return how two runs differ by a table of right and wrong cases."""
    pairs = [(1.0, 1.0)] * both + [(1.0, 0.0)] * a_only + [(0.0, 1.0)] * b_only + [(0.0, 0.0)] * neither
    runs = [[(str(case), pair[side]) for case, pair in enumerate(pairs)] for side in (0, 1)]
    return variation_of("exact_match", *runs)


def test_sizes_at_the_upper_limit() -> None:
    """Clopper and Pearson's limit of 50 of 200 that disagree is 0.280; chi-square's of sd 1.0 in 100 cases 1.064."""
    size = plan(rates(both=125, a_only=25, b_only=25, neither=25), 0.1, COST).sizes[0]
    assert size.cases_upper == cases_for_rates(0.1, float(stats.beta.ppf(0.8, 51, 150)))
    scores = Variation("quality", 100, 4.0, False, 1.0, None, None, 1.0, 1)
    limit = math.sqrt(99 / float(stats.chi2.ppf(0.2, 99)))
    assert plan(scores, 0.3, COST).sizes[0].cases_upper == cases_for_scores(0.3, limit)


@pytest.mark.parametrize(
    ("first", "second", "reason", "message"),
    [
        ([0.8] * 10, [0.8] * 10, "no_variation", "m cannot be planned from these runs: the difference between them is"),
        ([0.8] * 10, None, "no_variation", "m cannot be planned from this run: the value is the same in every case"),
        ([1.0] * 20, [1.0] * 20, "no_variation", "cannot be planned"),
        ([0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5], "no_variation", "the same in every case"),
        (
            [1.0, 0.0] * 100,
            [0.0, 0.0] + [1.0, 0.0] * 99,
            "too_little_disagreement",
            "disagree on 0.005 of the cases",
        ),
    ],
)
def test_runs_that_plan_nothing(
    first: Sequence[float], second: Sequence[float] | None, reason: str, message: str
) -> None:
    """Without variation there is no size and no detectable difference."""
    runs = [[(str(case), value) for case, value in enumerate(run)] for run in (first, second) if run is not None]
    size = plan(variation_of("m", *runs), 0.05, COST)
    assert size.reason == reason
    assert message in size.message
    assert {(one.cases, one.cases_upper) for one in size.sizes} == {(None, None)}
    assert {one.detectable for one in size.sizes if reason == "no_variation"} <= {None}


def test_a_share_that_disagrees_less_than_the_difference_has_the_cautious_size_alone() -> None:
    """One of 20 cases disagrees, as few as the difference needs: its upper limit plans, the share seen does not."""
    size = plan(rates(both=19, a_only=1, b_only=0, neither=0), 0.06, COST).sizes[0]
    assert (size.cases, size.rows) == (None, None)
    assert size.cases_upper is not None
    assert size.cases_upper > 100


def test_few_cases_that_differ_need_more_cases() -> None:
    """Ten of 200 cases differ, widely: a size leaves six that differ, whatever their spread says."""
    rng = random.Random(4)
    first = [(str(case), rng.random()) for case in range(200)]
    second = [(case, value + (5.0 if int(case) % 20 == 0 else 0.0)) for case, value in first]
    variation = variation_of("quality", first, second)
    assert variation.differing == pytest.approx(0.05)
    assert plan(variation, 1.0, COST).sizes[0].cases == 157


def test_clusters_are_what_is_counted() -> None:
    """Ten questions a page that succeed or fail together need ten times the cases of single ones, and six pages."""
    rng = random.Random(9)
    pages = {str(case): f"page {case // 10}" for case in range(400)}
    moved = {page: rng.gauss(0.0, 1.0) for page in sorted(set(pages.values()))}
    first = [(case, 0.0) for case in pages]
    second = [(case, moved[page]) for case, page in pages.items()]
    alone = variation_of("quality", first, second)
    clustered = variation_of("quality", first, second, cluster="tag:page", clusters=pages)
    assert (clustered.clusters, clustered.effective_clusters) == (40, 40.0)
    single, shared = (plan(one, 0.3, COST).sizes[0] for one in (alone, clustered))
    assert single.cases is not None
    assert shared.cases == pytest.approx(10 * single.cases, rel=0.1)
    assert shared.cases is not None
    assert shared.clusters == shared.cases / 10
    assert plan(clustered, 100.0, COST).sizes[0].cases == 60
    with pytest.raises(InvalidInputError, match="one cluster by category"):
        variation_of("quality", first, second, cluster="category", clusters=dict.fromkeys(pages, "a"))


def test_clusters_of_unequal_size_count_as_fewer() -> None:
    """One page of 200 cases and nine of 5 are as good as 1.5 equal ones: too few to detect anything."""
    rng = random.Random(2)
    pages = {str(case): str(max(0, (case - 195) // 5)) for case in range(245)}
    rows = [[(case, rng.random()) for case in pages] for _ in range(2)]
    variation = variation_of("quality", *rows, cluster="category", clusters=pages)
    assert variation.clusters == 10
    assert variation.effective_clusters == pytest.approx(1.49, abs=0.01)
    size = plan(variation, 0.1, COST).sizes[0]
    assert size.detectable is None
    assert size.cases is not None
    assert size.cases >= 6 * 245 / 1.5


def test_what_a_plan_costs() -> None:
    """Calls, tokens, money and time are those of both variants, at the earlier run's rates."""
    size = plan(Variation("quality", 100, 4.0, False, 1.0, None, None, 1.0, 1), 0.3, COST).sizes[0]
    assert (size.rows, size.agent_calls, size.judge_calls, size.tokens) == (180, 180, 90, 18_000)
    assert size.cost_usd == pytest.approx(1.8)
    assert size.time_s == pytest.approx(45.0)


def test_repeats_take_noise_out() -> None:
    """If runs of one case differ, more repeats need fewer cases."""
    rng = random.Random(1)
    rows = [(str(case), rng.gauss(case % 5, 2.0)) for case in range(60) for _ in range(3)]
    cases = [size.cases for size in plan(variation_of("quality", rows), 0.5, COST).sizes]
    assert None not in cases
    assert cases == sorted(cases, reverse=True)  # type: ignore[type-var]  # none is None
    assert cases[0] > 1.5 * cases[-1]  # type: ignore[operator]  # as above


def test_two_runs_measure_the_difference() -> None:
    """With a second run nothing is assumed; a plan says what it rests on and how far it may be off."""
    rows = [(str(case), float(case % 5)) for case in range(40)]
    variation = variation_of("quality", rows, [(case, value + int(case) % 3) for case, value in rows])
    assert (variation.correlation, variation.step) == (None, 1.0)
    assert variation.differing == pytest.approx(26 / 40)
    assert any("assumed to correlate" in note for note in plan(variation_of("quality", rows), 0.1, COST).notes)
    notes = plan(variation, 0.1, COST).notes
    assert not any("assumed" in note for note in notes)
    assert any("learned from 40 cases, and about every second one is too small" in note for note in notes)
    assert any("fewer than 6 differing cases" in note for note in notes)
    assert any("name these with --cluster" in note for note in notes)


@pytest.mark.parametrize("repeats", [(1, 8), (8, 1), (4, 4)])
def test_each_run_brings_its_own_repeats(repeats: tuple[int, int]) -> None:
    """The same variants, run once and eight times: the noise of both is taken out, in either order."""
    rng = random.Random(7)
    case_means = [rng.gauss(0.0, 1.0) for _ in range(4_000)]
    runs = [
        [(str(case), mean + rng.gauss(0.0, 2.0)) for case, mean in enumerate(case_means) for _ in range(count)]
        for count in repeats
    ]
    variation = variation_of("quality", runs[0], runs[1])
    turned = variation_of("quality", runs[1], runs[0])
    assert variation.noise == pytest.approx(4 / repeats[0] + 4 / repeats[1], rel=0.1)
    for planned in (1, 2, 5):
        variance = variation.difference_variance(planned)
        assert variance == pytest.approx(2 * 4 / planned, rel=0.15)
        assert turned.difference_variance(planned) == pytest.approx(variance, rel=1e-12)
    assert turned.n == variation.n
    assert turned.noise_share == pytest.approx(variation.noise_share)


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
    """A plan needs two cases with values, two common ones if it uses two runs."""
    with pytest.raises(InvalidInputError, match="1 cases have a value"):
        variation_of("quality", [("a", 1.0), ("b", None)])
    with pytest.raises(InvalidInputError, match="share 0 cases"):
        variation_of("quality", [("a", 1.0), ("b", 2.0)], [("c", 1.0), ("d", 2.0)])


def test_the_guide_shows_what_is_printed() -> None:
    """The output in docs/compare.md is that of two runs over 100 cases of which 15 disagree."""
    shown = next(block.text for block in blocks("docs/compare.md", "text") if "detectable with" in block.text)
    cost = RowCost(agent_calls=1, judge_calls=0, tokens=None, cost_usd=None, time_s=0.01)
    size = plan(rates(both=85, a_only=3, b_only=12, neither=0), 0.1, cost)
    assert "\n".join(plan_lines(size)).startswith(shown.rstrip("\n"))
