"""Satisfaction: the formula, what is missing, and failures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.core.score import Metric, Row
from assay.metrics.satisfaction import satisfaction
from assay.model.run import ScoreStatus


def _at(value: float) -> list[float]:
    """A unit vector whose cosine with (1, 0) is `value`."""
    return [value, math.sqrt(1 - value * value)]


@pytest.mark.parametrize(
    ("similarity", "events", "latency_ms", "expected"),
    [
        (0.9, True, 1000, 0.91),
        (0.9, True, 5000, 0.75),
        (0.9, True, 7000, 0.75),
        (0.9, False, 0, 0.65),
        (0.8, True, 2500, 0.8),
        (-0.1, False, 6000, 0.0),
    ],
)
def test_known_values(
    metric: Callable[..., Metric],
    row: Callable[..., Row],
    similarity: float,
    events: bool,
    latency_ms: float,
    expected: float,
) -> None:
    """The formula, alone and through a row, has the values computed by hand."""
    assert satisfaction(similarity, events, latency_ms) == pytest.approx(expected, abs=1e-12)
    built = row("a", ["b"], vectors=[_at(similarity), (1, 0)], events=int(events), latency_ms=latency_ms)
    score = metric("satisfaction").score(built)
    assert score.value == pytest.approx(expected, abs=1e-6)
    assert score.passed is None
    assert score.detail["model"] == "all-MiniLM-L6-v2"


@pytest.mark.parametrize(
    ("answer", "events", "similarity", "expected"),
    [("I do not know.", 0, 0.3, 0.65), ("The Ski Race is on Sunday.", 1, 0.3, 0.35), ("On Sunday.", 0, 0.3, 0.35)],
)
def test_a_declined_question_earns_what_an_invented_answer_loses(
    metric: Callable[..., Metric], row: Callable[..., Row], answer: str, events: int, similarity: float, expected: float
) -> None:
    """Of a question that cannot be answered there is nothing to find: saying so is the finding."""
    built = row(answer, ["b"], vectors=[_at(similarity), (1, 0)], events=events, latency_ms=0)
    built = dataclasses.replace(built, case=dataclasses.replace(built.case, category="out_of_scope"))
    assert metric("satisfaction").score(built).value == pytest.approx(expected, abs=1e-6)


@given(st.floats(-1, 1), st.booleans(), st.floats(0, 1e9))
def test_satisfaction_stays_in_the_unit(similarity: float, events: bool, latency_ms: float) -> None:
    """Whatever goes in, the value is from 0 to 1."""
    assert 0.0 <= satisfaction(similarity, events, latency_ms) <= 1.0


def test_the_aggregate_is_the_mean(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """Three rows average to 0.598."""
    rows = [
        row("a", ["b"], vectors=[_at(similarity), (1, 0)], events=events, latency_ms=latency_ms)
        for similarity, events, latency_ms in ((0.9, 1, 1000), (0.6, 1, 6000), (0.2, 0, 400))
    ]
    assert fold(metric("satisfaction"), rows).value == pytest.approx(0.598, abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"references": []}, ScoreStatus.SKIPPED, "no_reference"),
        ({"latency_ms": None}, ScoreStatus.SKIPPED, "no_latency"),
        ({"latency_ms": -1.0}, ScoreStatus.ERROR, "invalid_latency"),
        ({"latency_ms": math.nan}, ScoreStatus.ERROR, "invalid_latency"),
        ({"latency_ms": math.inf}, ScoreStatus.ERROR, "invalid_latency"),
        ({"vectors": [], "error": "embedder_unavailable"}, ScoreStatus.ERROR, "embedder_unavailable"),
    ],
)
def test_what_is_missing_or_broken_is_never_a_number(
    metric: Callable[..., Metric], row: Callable[..., Row], fields: dict[str, Any], status: ScoreStatus, reason: str
) -> None:
    """Missing parts skip the row, broken ones are an error; neither yields a value."""
    built = row(**{"text": "a", "references": ["b"], "vectors": [(1, 0), (1, 0)], "latency_ms": 100.0, **fields})
    score = metric("satisfaction").score(built)
    assert (score.status, score.value, score.reason) == (status, None, reason)


def test_a_fast_crash_earns_nothing(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """An agent error scores 0.0, with or without a reference, and fails where there is a threshold."""
    for references in (["b"], []):
        crashed = row("", references, failed=True, latency_ms=1.0, events=3)
        assert metric("satisfaction").score(crashed).value == 0.0
        assert metric("satisfaction").score(crashed).passed is None
        assert metric("satisfaction", threshold=0.5).score(crashed).passed is False


def test_a_threshold_decides_rows(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """With a threshold, inclusive, each row passes or fails."""
    built = row("a", ["b"], vectors=[(1, 0), (1, 0)], events=1, latency_ms=5000.0)
    assert metric("satisfaction", threshold=0.8).score(built).passed is True
    assert metric("satisfaction", threshold=0.81).score(built).passed is False
