"""Mean reciprocal rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.score import Metric, Row
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus, Source
from assay.model.case import Case, Turn
from assay.model.run import MetricSpec, ScoreStatus


def ranked(expected: Sequence[str], retrieved: Sequence[str], *, failed: bool = False) -> Row:
    """A row of an agent that retrieves sources in rank order."""
    response = AgentResponse(
        status=AgentStatus.ERROR if failed else AgentStatus.SUCCESS,
        error=AgentError(AgentErrorKind.RAISED, "no") if failed else None,
        sources=tuple(Source(title=title) for title in retrieved),
    )
    return Row(Case("case", (Turn("question", expected_sources=tuple(expected)),)), response)


KNOWN = [
    (
        ranked(
            ["Consumer behaviour", "Behavioral economics"],
            ["Marketing", "Consumer behaviour", "Behavioral economics"],
        ),
        0.5,
    ),
    (ranked(["Consumer behaviour"], ["Consumer_behaviour"]), 1.0),
    (ranked(["Consumer behaviour"], ["https://en.wikipedia.org/wiki/Consumer_behaviour#History"]), 1.0),
    (ranked(["X"], ["A", "A", "x "]), 1 / 3),
    (ranked(["Behavioral economics"], ["Behavioural economics"]), 0.0),
    (ranked(["X"], []), 0.0),
    (ranked([], ["X"]), None),
]


@pytest.mark.parametrize(("row", "value"), KNOWN)
def test_known_rows(metric: Callable[..., Metric], row: Row, value: float | None) -> None:
    """The first expected source counts, duplicates take their place; rows get no verdict."""
    score = metric("mrr").score(row)
    assert score.value == (None if value is None else pytest.approx(value))
    assert score.passed is None
    assert score.status is (ScoreStatus.SKIPPED if value is None else ScoreStatus.SCORED)


def test_the_mean_is_over_questions_with_expected_sources(
    metric: Callable[..., Metric], fold: Callable[..., Any]
) -> None:
    """Six of the seven count."""
    summary = fold(metric("mrr"), [row for row, _ in KNOWN])
    assert summary.value == pytest.approx(0.472222, abs=1e-6)
    assert (summary.scored_count, summary.skipped_count) == (6, 1)
    assert (summary.threshold, summary.goal, summary.rule) == (0.70, 0.85, "more_than")


def test_threshold_and_target_must_be_exceeded(metric: Callable[..., Metric], fold: Callable[..., Any]) -> None:
    """A mean of exactly 0.75 misses 0.75 and exceeds 0.7."""
    rows = [ranked(["X"], ["X"]), ranked(["X"], ["A", "X"])]
    summary = fold(metric("mrr", threshold=0.75, goal=0.7), rows)
    assert (summary.value, summary.meets_threshold, summary.meets_goal) == (0.75, False, True)


def test_only_the_first_k_sources_count(metric: Callable[..., Metric]) -> None:
    """A source below the cut-off has no rank."""
    row = ranked(["X"], ["A", "A", "X"])
    assert [metric("mrr", k=k).score(row).value for k in (2, 3)] == [0.0, pytest.approx(1 / 3)]


def test_an_agent_error_is_computed(metric: Callable[..., Metric]) -> None:
    """Nothing retrieved is 0, and what was retrieved before the failure counts."""
    none, some = (metric("mrr").score(ranked(["X"], titles, failed=True)) for titles in ([], ["X"]))
    assert (none.value, none.reason) == (0.0, "agent_error")
    assert (some.value, some.reason) == (1.0, "")


@given(st.lists(st.sampled_from("XYZ"), max_size=6), st.integers(1, 6))
def test_rank_and_hit_agree(retrieved: list[str], k: int) -> None:
    """The reciprocal rank is positive exactly for a hit, and a larger k never lowers either."""
    row = ranked(["X"], retrieved)
    values = {
        (kind, cut): build_metric(MetricSpec(kind, complete_parameters(kind, {"k": cut}, where="metrics[0]")))
        .score(row)
        .value
        or 0.0
        for kind in ("mrr", "hit_rate")
        for cut in (k, k + 1)
    }
    assert (values["mrr", k] > 0) is (values["hit_rate", k] == 1.0)
    assert values["mrr", k] <= values["mrr", k + 1]
    assert values["mrr", k] == (1 / (retrieved.index("X") + 1) if "X" in retrieved[:k] else 0.0)
