"""Formula: the built-in composites in its words have the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.metrics.test_metric_formula import FAILED, row_of, scored

from assay.metrics.combined_score import combined_score
from assay.metrics.core.score import JudgeEvidence, Metric, Row
from assay.metrics.rows.row_scores import score_row
from assay.metrics.satisfaction import satisfaction
from assay.model.answers.agent_response import AgentResponse, Source, Usage
from assay.model.case import Case, Turn

SATISFACTION = (
    "0 if status_error else "
    "clamp(0.5 * semantic_similarity + 0.3 * has_events + 0.2 * max(0, 1 - latency_ms / 5000), 0, 1)"
)
COMBINED = "hit_rate ** alpha * judge_score ** gamma / (total_tokens / 1000) ** beta"


@pytest.mark.parametrize(
    ("similarity", "events", "latency_ms", "expected"),
    [
        (0.9, 1, 1000.0, 0.91),
        (0.9, 1, 5000.0, 0.75),
        (0.9, 1, 7000.0, 0.75),
        (0.9, 0, 0.0, 0.65),
        (0.8, 2, 2500.0, 0.8),
        (-0.1, 0, 6000.0, 0.0),
        (None, 1, 100.0, None),
        (0.9, 1, None, None),
    ],
)
def test_satisfaction_as_a_formula(
    metric: Callable[..., Metric],
    similarity: float | None,
    events: int,
    latency_ms: float | None,
    expected: float | None,
) -> None:
    """The built-in composite, written out, has the same values to the last bit; missing parts skip the row."""
    response = AgentResponse(text="x", retrieved=(Source(title="E"),) * events, latency_ms=latency_ms)
    score = metric("formula", formula=SATISFACTION).score(row_of(response, scored("semantic_similarity", similarity)))
    assert score.value == (None if expected is None else pytest.approx(expected, abs=1e-12))
    if similarity is not None and latency_ms is not None:
        assert score.value == satisfaction(similarity, bool(events), latency_ms)
    failed = row_of(FAILED, scored("semantic_similarity", None, "agent_error"))
    assert metric("formula", formula=SATISFACTION).score(failed).value == 0.0


@pytest.mark.parametrize(
    ("hit", "judge", "tokens", "expected"),
    [
        (1, 0.85, 2500, 0.4956309111),
        (1, 1, 1000, 1.0),
        (1, 0.85, 1000, 0.7836612789),
        (0.5, 0.8, 2000, 0.1264911064),
        (1, 0.9, 250, 1.7076299365),
        (0, 0.9, 800, 0.0),
        (1, 0.9, 0, None),
        (None, 0.9, 800, None),
        (1, None, 800, None),
    ],
)
def test_combined_score_as_a_formula(
    metric: Callable[..., Metric], hit: float | None, judge: float | None, tokens: int, expected: float | None
) -> None:
    """The built-in composite with its exponents as numbers of one's own; no tokens means not counted."""
    built = metric("formula", formula=COMBINED, parameters={"alpha": 2.0, "gamma": 1.5, "beta": 0.5})
    row = row_of(AgentResponse(usage=Usage(total_tokens=tokens)), scored("hit_rate", hit), scored("judge_score", judge))
    score = built.score(row)
    assert score.value == (None if expected is None else pytest.approx(expected, abs=1e-9))
    if hit is not None and judge is not None:
        assert score.value == combined_score(hit, judge, tokens)


LATENCIES = st.one_of(st.none(), st.floats(0, 20_000), st.sampled_from([0.0, 5000.0, 5000.000001]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    vectors=st.tuples(*[st.tuples(st.floats(-1, 1), st.floats(-1, 1)).filter(any)] * 2),
    events=st.sampled_from([None, 0, 1, 3]),
    latency_ms=LATENCIES,
    failed=st.booleans(),
    references=st.sampled_from([("right",), ()]),
)
def test_satisfaction_and_its_formula_agree_on_every_row(
    metric: Callable[..., Metric],
    row: Callable[..., Row],
    vectors: Any,
    events: int | None,
    latency_ms: float | None,
    failed: bool,
    references: tuple[str, ...],
) -> None:
    """On any row, the metric and the formula have the same value or none."""
    given_row = row("text", references, events=events, latency_ms=latency_ms, failed=failed, vectors=vectors)
    formula = metric("formula", formula=SATISFACTION)
    _, built_in, own = score_row([metric("semantic_similarity"), metric("satisfaction"), formula], given_row)
    assert (own.value, own.status) == (built_in.value, built_in.status)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sources=st.lists(st.sampled_from(["S", "T"]), max_size=3),
    expected=st.sampled_from([("S",), ()]),
    overall=st.one_of(st.none(), st.floats(0, 1)),
    tokens=st.one_of(st.none(), st.integers(0, 10_000_000)),
    exponents=st.tuples(st.floats(0, 4), st.floats(0, 4), st.floats(0, 2)),
)
def test_combined_score_and_its_formula_agree_on_every_row(
    metric: Callable[..., Metric],
    sources: list[str],
    expected: tuple[str, ...],
    overall: float | None,
    tokens: int | None,
    exponents: tuple[float, float, float],
) -> None:
    """With any exponents, the metric and the formula have the same value or none."""
    named = dict(zip(("alpha", "gamma", "beta"), exponents, strict=True))
    verdict = {"reasoning": "r", "accuracy": overall, "completeness": overall, "relevance": overall}
    given_row = Row(
        Case("case", (Turn("question", references=("right",), expected_sources=expected),)),
        AgentResponse(
            text="x",
            sources=tuple(Source(title=name) for name in sources),
            usage=None if tokens is None else Usage(total_tokens=tokens),
        ),
        verdicts={} if overall is None else {"structured": JudgeEvidence(verdict)},
    )
    chosen = [
        metric("hit_rate"),
        metric("judge_score"),
        metric("combined_score", **named),
        metric("formula", formula=COMBINED, parameters=named),
    ]
    *_, built_in, own = score_row(chosen, given_row)
    assert (own.value is None) is (built_in.value is None)
    if own.value is not None and built_in.value is not None:
        assert own.value == pytest.approx(built_in.value, rel=1e-12)
        assert math.isfinite(own.value)
