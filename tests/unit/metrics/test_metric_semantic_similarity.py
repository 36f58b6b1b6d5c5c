"""Semantic similarity: cosine, its edge cases, and its aggregate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.metrics.core.score import Metric, Row
from assay.metrics.core.similarity import cosine
from assay.model.run import ScoreStatus

VECTORS = st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3)


def _at(value: float) -> list[float]:
    """A unit vector whose cosine with (1, 0) is `value`."""
    return [value, math.sqrt(1 - value * value)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1, 0), (1, 1), 0.7071067812),
        ((3, 4), (4, 3), 0.96),
        ((1, 2, 3), (-1, -2, -3), -1.0),
        ((0.2, 0.1, 0.4), (0.1, 0.3, 0.5), 0.9221388920),
    ],
)
def test_cosine_of_known_vectors(first: Sequence[float], second: Sequence[float], expected: float) -> None:
    """The cosine has the values computed by hand."""
    assert cosine(first, second) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("first", "second"),
    [((0, 0), (1, 1)), ((1, 1), (1, 1, 1)), ((), ()), ((math.nan, 1), (1, 1)), ((math.inf, 1), (1, 1))],
)
def test_vectors_without_an_angle_have_no_cosine(first: Sequence[float], second: Sequence[float]) -> None:
    """Zero vectors, unequal lengths, NaN and infinity give no value."""
    assert cosine(first, second) is None


@given(VECTORS, VECTORS, st.floats(1e-3, 1e3))
def test_cosine_is_symmetric_bounded_and_blind_to_length(u: list[float], v: list[float], factor: float) -> None:
    """Swapping or scaling vectors changes nothing, and the value stays in [-1, 1]."""
    value = cosine(u, v)
    assume(value is not None and math.hypot(*u) > 1e-3 and math.hypot(*v) > 1e-3)
    assert value is not None
    assert -1.0 <= value <= 1.0
    assert cosine(v, u) == pytest.approx(value, abs=1e-12)
    assert cosine([factor * x for x in u], v) == pytest.approx(value, abs=1e-9)


def test_a_scored_row_names_what_produced_it(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """Version, model, revision, truncation and threshold stand beside the value."""
    built = row("a", ["b"], vectors=[(3, 4), (4, 3)], truncated=frozenset({"b"}), precision="exact", engine="packed")
    score = metric("semantic_similarity").score(built)
    assert score.value == pytest.approx(0.96)
    assert score.passed is True
    assert score.detail == {
        "version": "1",
        "model": "all-MiniLM-L6-v2",
        "revision": "abc",
        "precision": "exact",
        "engine": "packed",
        "truncated": True,
        "threshold": 0.75,
    }


def test_a_slightly_negative_value_is_kept(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """Negative cosines are reported, not clipped to 0."""
    score = metric("semantic_similarity").score(row("a", ["b"], vectors=[_at(-0.0806), (1, 0)]))
    assert score.value == pytest.approx(-0.0806)
    assert score.passed is False


def test_the_best_reference_counts(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """With several references the highest cosine is the value; the position is among all of the case's."""
    built = row("a", ["worse", " ", "better"], vectors=[(1, 0), _at(0.2), _at(0.9)])
    score = metric("semantic_similarity").score(built)
    assert score.value == pytest.approx(0.9)
    assert score.detail["reference_index"] == 2


@pytest.mark.parametrize("references", [[], [""], [" \n"]])
def test_no_reference_is_skipped(metric: Callable[..., Metric], row: Callable[..., Row], references: list[str]) -> None:
    """A row without references is skipped, even if the agent failed."""
    for failed in (False, True):
        score = metric("semantic_similarity").score(row("answer", references, failed=failed))
        assert (score.status, score.reason, score.passed) == (ScoreStatus.SKIPPED, "no_reference", None)


def test_a_blank_answer_is_zero_without_the_embedder(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """Nothing said scores 0.0 and fails, though no vectors were gathered."""
    score = metric("semantic_similarity").score(row(" \n", ["reference"]))
    assert (score.value, score.passed, score.reason) == (0.0, False, "empty_output")


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        ({"error": "embedder_unavailable"}, "embedder_unavailable"),
        ({}, "embedding_missing"),
        ({"vectors": [(0, 0), (1, 1)]}, "invalid_vector"),
        ({"vectors": [(1, 0, 0), (1, 1)]}, "invalid_vector"),
        ({"vectors": [(1, 0)]}, "invalid_vector"),
    ],
)
def test_a_failure_of_our_own_is_an_error_without_verdict(
    metric: Callable[..., Metric], row: Callable[..., Row], evidence: dict[str, Any], reason: str
) -> None:
    """Missing or unusable vectors are an error with its reason, never a 0 and never a failed row."""
    score = metric("semantic_similarity").score(row("answer", ["reference"], **evidence))
    assert (score.status, score.value, score.passed, score.reason) == (ScoreStatus.ERROR, None, None, reason)


def test_an_agent_error_fails_a_row_with_a_reference(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """The agent's failure has no value but counts against the pass rate."""
    score = metric("semantic_similarity").score(row("", ["reference"], failed=True))
    assert (score.status, score.value, score.passed, score.reason) == (ScoreStatus.ERROR, None, False, "agent_error")


def test_without_threshold_there_is_no_verdict(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """A model without a known threshold passes and fails no row."""
    similarity = metric("semantic_similarity", threshold=None)
    assert similarity.score(row("a", ["b"], vectors=[(1, 0), (1, 0)])).passed is None
    assert similarity.score(row("a", ["b"], failed=True)).passed is None


@pytest.mark.parametrize(
    ("reference", "english_only", "warned"),
    [
        ("\u0627\u0644\u0648\u0643\u064a\u0644 \u0645\u062a\u0635\u0644", True, True),
        ("\u0627\u0644\u0648\u0643\u064a\u0644 \u0645\u062a\u0635\u0644", False, False),
        ("The agent is online.", True, False),
        ("abcdefg \u0627\u0628\u062a", True, False),
        ("abcdef \u0627\u0628\u062a", True, True),
        ("\u00c9t\u00e9 \uff21\uff22", True, False),
        ("12345 \u2026", True, False),
    ],
)
def test_an_english_model_on_other_letters_is_warned_of(
    metric: Callable[..., Metric], row: Callable[..., Row], reference: str, english_only: bool, warned: bool
) -> None:
    """More than 30 % foreign letters in the reference mark the score of an English-only model."""
    built = row("a", [reference], vectors=[(1, 0), (1, 0)], english_only=english_only)
    warnings = metric("semantic_similarity").score(built).detail.get("warnings", [])
    assert warnings == (["model_language_mismatch"] if warned else [])


def test_aggregate_of_scored_rows_and_an_agent_error(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """The mean is over scored rows; the failed agent counts in the pass rate only."""
    similarity = metric("semantic_similarity")
    rows = [row("a", ["b"], vectors=[_at(value), (1, 0)]) for value in (0.91, 0.75, 0.7499, 0.40)]
    summary = fold(similarity, [*rows, row("", ["b"], failed=True)])
    assert summary.value == pytest.approx(0.702475, abs=1e-6)
    assert (summary.scored_count, summary.skipped_count, summary.error_count, summary.own_error_count) == (4, 0, 1, 0)
    assert (summary.passed_count, summary.failed_count) == (2, 3)
    assert summary.detail["pass_rate"] == pytest.approx(0.4)
    assert summary.meets_threshold is False
    assert summary.detail["models"] == [{"model": "all-MiniLM-L6-v2", "revision": "abc"}]


def test_warnings_of_rows_are_counted_in_the_aggregate(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """The summary says how many rows an English-only model scored in another language."""
    references = ("\u0627\u0644\u0648\u0643\u064a\u0644", "The agent is online.", "\u0645\u062a\u0635\u0644")
    rows = [row("a", [reference], vectors=[(1, 0), (1, 0)], english_only=True) for reference in references]
    assert fold(metric("semantic_similarity"), rows).detail["warnings"] == {"model_language_mismatch": 2}


def test_a_failure_of_our_own_is_in_neither_part_of_the_pass_rate(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """An embedder that is down changes counts only."""
    rows = [row("a", ["b"], vectors=[(1, 0), (1, 0)]), row("a", ["b"], error="embedder_unavailable"), row("a")]
    summary = fold(metric("semantic_similarity"), rows)
    assert (summary.scored_count, summary.skipped_count, summary.error_count, summary.own_error_count) == (1, 1, 1, 1)
    assert summary.detail["pass_rate"] == 1.0
