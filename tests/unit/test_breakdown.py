"""Rows by category and tag, and counted by weight."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.score import Metric
from assay.model.answers.agent_response import AgentStatus
from assay.model.run import MetricSpec, RowResult, Score, ScoreStatus, WeightedSummary
from assay.wire.summary import SUMMARY
from assay_orchestrator.summary.run_summary import summarise


def coverage() -> Metric:
    """A metric that is the mean of its rows."""
    return build_metric(MetricSpec("coverage", complete_parameters("coverage", {}, where="m")))


def row(
    index: int, value: float | None, passed: bool | None, *, category: str = "", tags: str = "", weight: float = 1.0
) -> RowResult:
    """A stored row with one score; no value means that the score was skipped."""
    status = ScoreStatus.SKIPPED if value is None else ScoreStatus.SCORED
    score = Score("coverage", status, value=value, detail={})
    return RowResult(
        f"c{index}", index, 1, category, AgentStatus.SUCCESS, passed, (score,), None, "",
        tags=tuple(tags.split()), weight=weight,
    )  # fmt: skip


def test_each_category_and_tag_has_its_own_numbers() -> None:
    """Rows, verdicts, pass rate and aggregates of each group; a row counts once under each of its tags."""
    rows = [
        row(0, 1.0, True, category="count", tags="smoke ar"),
        row(1, 0.0, False, category="count", tags="ar ar"),
        row(2, 0.5, None, category="list", tags="ar"),
        row(3, None, True),
    ]
    summary = summarise(rows, [coverage()], [])
    groups = {group.name: group for group in summary.categories}
    assert list(groups) == ["count", "list"]
    count = groups["count"]
    assert (count.row_count, count.passed_count, count.failed_count, count.pass_rate, count.metrics) == (
        2,
        1,
        1,
        0.5,
        {"coverage": 0.5},
    )
    assert (groups["list"].pass_rate, groups["list"].metrics) == (None, {"coverage": 0.5})
    tags = {group.name: (group.row_count, group.pass_rate, group.metrics["coverage"]) for group in summary.tags}
    assert tags == {"ar": (3, 0.5, 0.5), "smoke": (1, 1.0, 1.0)}


def test_twenty_rows_in_two_categories() -> None:
    """17 of 20 pass; the rate of a category is over its own rows."""
    rows = [row(index, None, index >= 3, category="a" if index < 5 else "b") for index in range(20)]
    summary = summarise(rows, [coverage()], [])
    assert summary.pass_rate == pytest.approx(0.85)
    assert [group.pass_rate for group in summary.categories] == [pytest.approx(0.4), 1.0]


def test_groups_beyond_a_thousand_are_counted() -> None:
    """The first thousand tags are summarised; the others are counted once each, however many rows they have."""
    rows = [row(index, None, True, category="a", tags=f"t{index % 1100}") for index in range(2200)]
    summary = summarise(rows, [coverage()], [])
    assert (len(summary.tags), summary.omitted_tag_count) == (1000, 100)
    assert (len(summary.categories), summary.omitted_category_count) == (1, 0)


def test_weights_are_told_apart_from_plain_numbers() -> None:
    """A case of weight 3 counts three times among the weighted numbers and once elsewhere; 0 counts nothing."""
    rows = [
        row(0, 1.0, True, weight=3.0),
        row(1, 0.0, False),
        row(2, 0.0, False, weight=0.0),
        row(3, None, None, weight=9.0),
    ]
    summary = summarise(rows, [coverage()], [])
    assert summary.pass_rate == summary.metrics[0].value == pytest.approx(1 / 3)
    assert summary.weighted == WeightedSummary(0.75, {"coverage": 0.75})
    assert summarise(rows[1:2], [coverage()], []).weighted is None
    nothing = summarise(rows[2:3], [coverage()], []).weighted
    assert nothing == WeightedSummary(None)


WEIGHTS = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans(), WEIGHTS), max_size=20), st.floats(1, 1e6))
def test_weighted_numbers_have_no_order_and_no_unit(cases: list[tuple[float, bool, float]], factor: float) -> None:
    """Any order gives the same bits, all weights times a factor the same numbers, and they lie among the values."""
    rows = [row(index, value, passed, weight=weight) for index, (value, passed, weight) in enumerate(cases)]
    before = summarise(rows, [coverage()], []).weighted
    assert summarise(rows[::-1], [coverage()], []).weighted == before
    scaled = [row(index, *case[:2], weight=case[2] * factor) for index, case in enumerate(cases)]
    after = summarise(scaled, [coverage()], []).weighted
    if before and after and before.pass_rate is not None:
        assert after.pass_rate == pytest.approx(before.pass_rate, rel=1e-9)
        values = [value for value, _, weight in cases if weight]
        assert min(values) - 1e-12 <= before.metrics["coverage"] <= max(values) + 1e-12


@pytest.mark.parametrize(("name_chars", "group_chars"), [(8, 5), (60, 5), (8, 3_000)])
def test_the_groups_of_very_many_metrics_fit_in_a_message(name_chars: int, group_chars: int) -> None:
    """200 metrics, 1,000 categories and 1,000 tags: with settings of 2 MiB the run can still be read."""
    names = [f"m{number}".ljust(name_chars, "x") for number in range(200)]
    parameters = complete_parameters("coverage", {}, where="m")
    metrics = [build_metric(MetricSpec(name, parameters, "coverage")) for name in names]
    scores = tuple(Score(name, ScoreStatus.SCORED, value=0.123) for name in names)
    rows = [
        RowResult(
            f"c{index}", index, 1, f"k{index}".ljust(group_chars, "x"), AgentStatus.SUCCESS, True, scores, None, "",
            tags=(f"t{index}".ljust(group_chars, "x"),),
        )
        for index in range(1_000)
    ]  # fmt: skip
    summary = summarise(rows, metrics, [])
    assert SUMMARY.to_wire(summary).ByteSize() < 2 * 1024**2 - 1024
    for groups, omitted in (
        (summary.categories, summary.omitted_category_count), (summary.tags, summary.omitted_tag_count),
    ):  # fmt: skip
        assert len(groups) > 40
        assert len(groups) + omitted == 1_000
