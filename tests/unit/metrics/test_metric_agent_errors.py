"""An agent that failed: what every metric makes of its row, and that nothing it left behind can help it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from assay.metrics import METRICS
from assay.metrics.core.row_verdict import row_verdict
from assay.metrics.core.score import JudgeEvidence, Metric, Row
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Interrupt,
    Source,
    ToolCall,
    Usage,
)
from assay.model.case import Assertion, Case, ExpectedTool, Turn
from assay.model.run import Score, ScoreStatus

NOTHING = {"error": AgentError(AgentErrorKind.TIMEOUT, "no answer within 30 s")}
LEFTOVERS: dict[str, Any] = {
    **NOTHING,
    "text": "right",
    "output": {"answer": 1},
    "sql": "SELECT 1 FROM t",
    "data_rows": 2,
    "sources": (Source(title="S"),),
    "retrieved": (Source(title="E"),),
    "tool_calls": (ToolCall("search"),),
    "latency_ms": 10.0,
    "usage": Usage(input_tokens=100, output_tokens=50, cost_usd=0.01),
}
TURN = Turn("q", references=("right",), expected_sources=("S",), expected_tools=(ExpectedTool("search"),))
CASE = Case("case", (TURN,), assertions=(Assertion("contains", "right"),), expected={"expected_table": "t"})
VERDICTS = {
    "quality": JudgeEvidence({"reasoning": "r", "score": 5}),
    "structured": JudgeEvidence({"reasoning": "r", "accuracy": 1, "completeness": 1, "relevance": 1}),
}

NOT_SCORED = (ScoreStatus.ERROR, None, False)
NO_VERDICT = (ScoreStatus.ERROR, None, None)
SKIPPED = (ScoreStatus.SKIPPED, None, None)
WRONG = (ScoreStatus.SCORED, 0.0, False)
ZERO = (ScoreStatus.SCORED, 0.0, None)

TABLE: dict[str, tuple[Any, Any]] = {
    # kind: (with nothing in the answer, with everything in it)
    "semantic_similarity": (NOT_SCORED, NOT_SCORED),
    "rouge": (NO_VERDICT, NO_VERDICT),
    "exact_match": (WRONG, WRONG),
    "contains": (WRONG, WRONG),
    "regex": (WRONG, WRONG),
    "json_schema": (WRONG, WRONG),
    "assertions": (WRONG, WRONG),
    "tool_calls": (WRONG, (ScoreStatus.SCORED, 1.0, False)),
    "retrieval_accuracy": (WRONG, (ScoreStatus.SCORED, 1.0, True)),
    "generation_fidelity": (WRONG, WRONG),
    "sources": (WRONG, WRONG),
    "hit_rate": (WRONG, (ScoreStatus.SCORED, 1.0, True)),
    "mrr": (ZERO, (ScoreStatus.SCORED, 1.0, None)),
    "quality": (NOT_SCORED, NOT_SCORED),
    "judge_score": (NOT_SCORED, NOT_SCORED),
    "combined_score": (NO_VERDICT, NO_VERDICT),
    "consistency": (NO_VERDICT, NO_VERDICT),
    "coverage": (ZERO, ZERO),
    "satisfaction": (ZERO, ZERO),
    "latency": (NO_VERDICT, NO_VERDICT),
    "tokens": (SKIPPED, (ScoreStatus.SCORED, 150.0, None)),
    "cost": (SKIPPED, (ScoreStatus.SCORED, 0.01, None)),
    "formula": (NO_VERDICT, NO_VERDICT),
    "python": (NO_VERDICT, NO_VERDICT),
}


def failed(answer: dict[str, Any]) -> Row:
    """The row of an agent that failed, with a case and verdicts that lack nothing."""
    judged = {"judge_score": Score("judge_score", ScoreStatus.SCORED, value=1.0)}
    return Row(CASE, AgentResponse(status=AgentStatus.ERROR, **answer), verdicts=VERDICTS, scores=judged)


def interrupted(row: Row) -> Row:
    """The same row, whose agent waits for a person."""
    response = dataclasses.replace(row.response, status=AgentStatus.INTERRUPTED, error=None, interrupts=(Interrupt(),))
    return dataclasses.replace(row, response=response)


def test_the_table_is_complete() -> None:
    """Every kind of metric says what it makes of a failed agent."""
    assert set(TABLE) == set(METRICS)


@pytest.mark.parametrize("kind", sorted(TABLE))
def test_a_failed_agent(metric: Callable[..., Metric], kind: str) -> None:
    """A failed agent is unscored, wrong, or scored by its row, never an error of ours, and the row fails."""
    built = metric(kind, **METRICS[kind].info.example)
    for answer, expected in zip((NOTHING, LEFTOVERS), TABLE[kind], strict=True):
        score = built.score(failed(answer))
        assert (score.status, score.value, score.passed) == expected
        assert built.score(interrupted(failed(answer))) == score, "an agent that waits for a person has failed"
        if score.status is ScoreStatus.ERROR or score.passed is False:
            assert score.reason == "agent_error"
        assert row_verdict(AgentStatus.ERROR, [score]) is False
        assert row_verdict(AgentStatus.INTERRUPTED, [score]) is False


@pytest.mark.parametrize("kind", sorted(TABLE))
def test_a_failed_agent_is_no_failure_of_our_own(
    metric: Callable[..., Metric], fold: Callable[..., Any], kind: str
) -> None:
    """Such rows count as errors at most; a gate on the metric stays decidable."""
    summary = fold(metric(kind, **METRICS[kind].info.example), [failed(NOTHING), failed(LEFTOVERS)])
    assert summary.own_error_count == 0
    assert summary.scored_count + summary.skipped_count + summary.error_count == 2
