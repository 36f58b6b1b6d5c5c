"""Latency: tiers, invalid measurements, percentiles."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from assay.metrics.core.score import Metric, Row
from assay.metrics.latency import RATINGS, Times, TimesFold, rating
from assay.model.run import ScoreStatus


@pytest.mark.parametrize(
    ("latency_s", "tier", "score"),
    [
        (0.0, "Excellent", 1.0),
        (1.999, "Excellent", 1.0),
        (2.0, "Good", 0.8),
        (5.0, "Good", 0.8),
        (5.0001, "Acceptable", 0.5),
        (10.0, "Acceptable", 0.5),
        (10.01, "Poor", 0.2),
    ],
)
def test_borders_of_the_tiers(
    metric: Callable[..., Metric], row: Callable[..., Row], latency_s: float, tier: str, score: float
) -> None:
    """Each border belongs to the tier that the scale says."""
    assert (rating(latency_s), RATINGS[tier]) == (tier, score)
    scored_row = metric("latency").score(row(latency_ms=latency_s * 1000))
    assert scored_row.value == pytest.approx(latency_s, abs=1e-12)
    assert scored_row.passed is None
    assert scored_row.detail == {"version": "2", "rating": tier, "score": score}


@pytest.mark.parametrize(
    ("latency_ms", "status", "reason"),
    [
        (None, ScoreStatus.SKIPPED, "no_latency"),
        (-0.1, ScoreStatus.ERROR, "invalid_latency"),
        (math.nan, ScoreStatus.ERROR, "invalid_latency"),
        (math.inf, ScoreStatus.ERROR, "invalid_latency"),
    ],
)
def test_no_measurement_is_no_number(
    metric: Callable[..., Metric], row: Callable[..., Row], latency_ms: float | None, status: ScoreStatus, reason: str
) -> None:
    """A missing duration is skipped; an impossible one is an error."""
    score = metric("latency").score(row(latency_ms=latency_ms))
    assert (score.status, score.value, score.reason) == (status, None, reason)


def test_aggregate_of_known_latencies(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """Mean, percentiles and tiers are over all measured answers; a failed call is none, however fast it failed."""
    seconds = [0.52, 1.85, 2.12, 2.45, 4.0, 5.0, 5.5, 11.0]
    rows = [row(latency_ms=value * 1000) for value in seconds]
    rows += [row(latency_ms=0.1, failed=True), row(latency_ms=30_000.0, failed=True)]
    summary = fold(metric("latency"), rows)
    detail = summary.detail
    assert summary.value == detail["mean_s"] == pytest.approx(4.055, abs=1e-9)
    assert (detail["p50_s"], detail["p95_s"], detail["max_s"]) == pytest.approx((3.225, 9.075, 11.0), abs=1e-9)
    assert detail["mean_score"] == pytest.approx(0.7375, abs=1e-12)
    assert detail["ratings"] == {"Excellent": 2, "Good": 4, "Acceptable": 1, "Poor": 1}
    assert summary.meets_threshold is None
    assert (summary.scored_count, summary.error_count, summary.own_error_count) == (8, 2, 0)


def test_percentiles_interpolate_between_ranks() -> None:
    """P95 of 1 to 20 is 19.05; of one value it is that value; of none it is absent."""
    fold = TimesFold()
    assert fold.result() == Times()
    fold.add(7.0)
    assert fold.result() == Times(1, 7.0, 7.0, 7.0, 7.0)
    fold = TimesFold()
    for value in range(1, 21):
        fold.add(float(value))
        fold.result()
    assert fold.result().p95 == pytest.approx(19.05, abs=1e-12)


def test_cold_calls_can_be_left_out(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """By default every call counts; with exclude_cold a cold one is skipped, and decides nothing."""
    cold = row(latency_ms=9000.0)
    cold = dataclasses.replace(cold, response=dataclasses.replace(cold.response, cold=True))
    rows = [cold, row(latency_ms=1000.0)]
    assert fold(metric("latency", threshold=4.0), rows).value == 5.0
    latency = metric("latency", threshold=4.0, exclude_cold=True)
    summary = fold(latency, rows)
    assert (summary.value, summary.scored_count, summary.skipped_count, summary.failed_count) == (1.0, 1, 1, 0)
    assert (latency.score(cold).reason, latency.score(cold).passed) == ("cold_call", None)


def test_a_threshold_is_the_longest_time(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """A threshold is "at most", inclusive, for each row and for the mean."""
    latency = metric("latency", threshold=4.0)
    assert latency.score(row(latency_ms=4000.0)).passed is True
    assert latency.score(row(latency_ms=4001.0)).passed is False
    assert fold(latency, [row(latency_ms=3000.0), row(latency_ms=5000.0)]).meets_threshold is True
    assert fold(latency, [row(latency_ms=3000.0), row(latency_ms=5001.0)]).meets_threshold is False
