"""When a comparison stops early: the same decision from the same rows, whatever the order in which they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.comparison.model import ComparisonVerdict
from assay.comparison.stopping import Stopping, StoppingPlan, first_stop, shuffled
from assay.model.stopping import StoppingRule

if TYPE_CHECKING:
    from collections.abc import Sequence

Pair = tuple[float | None, float | None]

TIE, WON, LOST, MISSING = (1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (None, 1.0)
RATES = StoppingPlan(StoppingRule.ALWAYS_VALID, 40, scale=(0.0, 1.0))
LOOKS = StoppingPlan(StoppingRule.FIVE_LOOKS, 40)
PAIRS = st.lists(st.sampled_from([TIE, WON, WON, WON, LOST, MISSING, (0.0, 0.5)]), max_size=40)


def test_the_always_valid_rule_stops_at_the_case() -> None:
    """The example: E reaches 20 at the 11th case with a value; a missing value is a case and no pair."""
    path = [WON, TIE, WON, WON, TIE, WON, WON, TIE, WON, WON]
    assert first_stop(RATES, path) is None
    stop = first_stop(RATES, [*path, MISSING, WON, LOST, LOST, LOST])
    assert stop is not None
    assert (stop.cases, stop.n_pairs, stop.verdict) == (12, 11, ComparisonVerdict.B_BETTER)
    assert stop.p == pytest.approx(0.035156, abs=1e-6)


def test_scores_are_divided_by_their_range() -> None:
    """A difference of 1 on a scale from 1 to 5 is a quarter, and eight of them are not evidence enough."""
    plan = StoppingPlan(StoppingRule.ALWAYS_VALID, 40, scale=(1.0, 5.0), higher_is_better=False)
    assert first_stop(plan, [(3.0, 4.0)] * 8) is None
    stop = first_stop(plan, [(1.0, 5.0)] * 8)
    assert stop is not None
    assert stop.verdict is ComparisonVerdict.A_BETTER


def test_planned_looks_are_the_only_ones() -> None:
    """Twelve wins are decided at the second look, after 16 of 40 cases, not before it is due."""
    first = first_stop(LOOKS, [WON] * 15)
    assert first is None
    stop = first_stop(LOOKS, [WON] * 14 + [LOST, LOST] + [LOST] * 20)
    assert stop is None
    stop = first_stop(LOOKS, [WON] * 14 + [TIE, MISSING] + [LOST] * 20)
    assert stop is not None
    assert (stop.look, stop.cases, stop.n_pairs, stop.bound) == (2, 16, 15, 3.2255)
    assert stop.z == pytest.approx(14**0.5)


def test_nothing_behind_an_unfinished_case_counts() -> None:
    """Early rows wait for the rows before them, so that slow answers do not select the cases of a look."""
    rows: Sequence[Pair | None] = [WON] * 7 + [None] + [WON] * 30
    assert first_stop(RATES, rows) is None
    assert first_stop(LOOKS, rows) is None
    stop = first_stop(RATES, [WON] * 38)
    assert stop is not None
    assert stop.cases == 8


@given(PAIRS, st.sampled_from([RATES, LOOKS]), st.data())
def test_the_parts_in_which_rows_come_move_no_decision(
    rows: list[Pair], plan: StoppingPlan, data: st.DataObject
) -> None:
    """A process that took over decides from all rows as one that saw them come; a decision stays."""
    cut = data.draw(st.integers(0, len(rows)))
    stopping = Stopping(plan)
    early = stopping.take(rows[:cut])
    late = stopping.take(rows[cut:])
    assert late == first_stop(plan, rows)
    assert early is None or early == late


@given(PAIRS, st.sampled_from([RATES, LOOKS]))
def test_swapping_the_runs_swaps_the_verdict(rows: list[Pair], plan: StoppingPlan) -> None:
    """At the same case, with the other run as the better one."""
    here, there = first_stop(plan, rows), first_stop(plan, [(b, a) for a, b in rows])
    assert (here is None) == (there is None)
    if here is not None and there is not None:
        assert (here.cases, here.n_pairs, here.look) == (there.cases, there.n_pairs, there.look)
        assert {here.verdict, there.verdict} == {ComparisonVerdict.A_BETTER, ComparisonVerdict.B_BETTER}


def test_what_a_rule_cannot_hold() -> None:
    """Unbounded metrics, too few cases and another level are all refused at once."""
    assert "a metric with bounds" in StoppingPlan(StoppingRule.ALWAYS_VALID, 40).problems()[0]
    problems = StoppingPlan(StoppingRule.FIVE_LOOKS, 19, alpha=0.1).problems()
    assert ["at least 20 cases" in problems[0], "--alpha 0.05, not 0.1" in problems[1]] == [True, True]
    with pytest.raises(ValueError, match="at least 20 cases"):
        Stopping(StoppingPlan(StoppingRule.FIVE_LOOKS, 19))
    with pytest.raises(ValueError, match="than the 40"):
        first_stop(LOOKS, [TIE] * 41)


@given(st.lists(st.text(), unique=True, max_size=30), st.randoms(use_true_random=False))
def test_the_order_belongs_to_seed_and_ids(case_ids: list[str], random: object) -> None:
    """The same cases come in the same order however the dataset is sorted; another seed gives another order."""
    asked = [case_ids[place] for place in shuffled(case_ids, 7)]
    assert sorted(asked) == sorted(case_ids)
    other = list(case_ids)
    random.shuffle(other)  # type: ignore[attr-defined]  # a random.Random, which hypothesis does not name
    assert [other[place] for place in shuffled(other, 7)] == asked


def test_the_order_is_the_same_in_every_version() -> None:
    """A run that is resumed by a newer version asks in the order that was recorded."""
    case_ids = [f"c{place}" for place in range(8)]
    assert shuffled(case_ids, 7) != shuffled(case_ids, 8)
    assert shuffled(case_ids, 7) == [0, 7, 2, 6, 3, 5, 1, 4]
