"""Exact match: normal form, options, and accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.metrics.core.score import Metric, Row
from assay.model.run import ScoreStatus

EXAMPLES: list[tuple[str, str, float | None]] = [
    (" Paris ", "paris", 1.0),
    ("Paris", " Paris\n", 1.0),
    ("paris.", "Paris", 0.0),
    ("", "x", 0.0),
    ("y", "", None),
    ("z", " ", None),
    ("Stra\u00dfe", "STRASSE", 1.0),
    ("cafe\u0301", "caf\u00e9", 1.0),
    ("\u0639\u0630\u0631\u0627\u064b", "\u0639\u0630\u0631\u0627", 0.0),
    ("a  b", "a b", 0.0),
    ("0", "0", 1.0),
]


@pytest.mark.parametrize(("output", "expected", "value"), EXAMPLES)
def test_known_pairs(
    metric: Callable[..., Metric], row: Callable[..., Row], output: str, expected: str, value: float | None
) -> None:
    """Both sides are stripped, case-folded and composed; everything else counts."""
    score = metric("exact_match").score(row(output, [expected]))
    assert score.value == value
    assert score.passed is (None if value is None else bool(value))


@pytest.mark.parametrize(
    ("examples", "correct", "total", "accuracy"),
    [(EXAMPLES[:6], 2, 4, 0.5), (EXAMPLES[6:], 3, 5, 0.6), (EXAMPLES[4:6], 0, 0, None)],
)
def test_accuracy_is_over_rows_with_a_reference(
    metric: Callable[..., Metric],
    row: Callable[..., Row],
    fold: Callable[..., Any],
    examples: list[tuple[str, str, float | None]],
    correct: int,
    total: int,
    accuracy: float | None,
) -> None:
    """Rows without reference are not in the total; with an empty total everything derived is absent."""
    summary = fold(metric("exact_match"), [row(output, [expected]) for output, expected, _ in examples])
    assert summary.value == accuracy
    assert (summary.detail["correct"], summary.detail["total"]) == (correct, total)
    assert summary.detail["accuracy"] == accuracy
    expected = None if accuracy is None else False
    assert summary.detail["meets_threshold"] is expected
    assert summary.meets_threshold is expected


def test_the_threshold_is_inclusive(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """17 of 20 reaches 0.85."""
    rows = [row("a", ["a"])] * 17 + [row("b", ["a"])] * 3
    assert fold(metric("exact_match"), rows).meets_threshold is True


@pytest.mark.parametrize(
    ("option", "output", "expected", "value"),
    [
        ("collapse_whitespace", "a \n b", "a b", 1.0),
        ("strip_punctuation", "paris.", "Paris", 1.0),
        ("strip_punctuation", "\u00abParis\u00bb!", "paris", 1.0),
        ("strip_punctuation", "", "?!", 0.0),
        ("strip_punctuation", "?!", "?!", 1.0),
        ("strip_punctuation", "...", "?!", 0.0),
        ("strip_punctuation", "5 $", "5", 0.0),
        ("arabic_fold", "\u0639\u0630\u0631\u0627\u064b", "\u0639\u0630\u0631\u0627", 1.0),
        ("arabic_fold", "\u0623\u062d\u0645\u062f", "\u0627\u062d\u0645\u0640\u0640\u062f", 1.0),
        ("arabic_fold", "", "\u200b\u0640", 0.0),
    ],
)
def test_options_loosen_one_thing_each(
    metric: Callable[..., Metric], row: Callable[..., Row], option: str, output: str, expected: str, value: float
) -> None:
    """Each option makes its own pairs equal, and never a blank answer right."""
    assert metric("exact_match", **{option: True}).score(row(output, [expected])).value == value
    if value:
        plain = metric("exact_match").score(row(output, [expected])).value
        assert plain == float(output == expected)


def test_any_reference_may_match(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """One of several right answers is enough."""
    assert metric("exact_match").score(row("paris", ["Lutetia", "Paris"])).value == 1.0


def test_an_agent_error_is_incorrect(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """A failed agent is in the total even if its text would match, and skipped without reference."""
    score = metric("exact_match").score(row("paris", ["Paris"], failed=True))
    assert (score.value, score.passed, score.reason) == (0.0, False, "agent_error")
    assert metric("exact_match").score(row("paris", failed=True)).status is ScoreStatus.SKIPPED
