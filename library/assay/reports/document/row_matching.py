"""Filters on rows of a document, with the rules of the filters on stored rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.filters.matching import matches
from assay.filters.row_text import parse_row_filter
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.run import CaseResult, Score, ScoreStatus, TurnResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def row_predicate(where: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a predicate for rows that match a filter; the empty filter matches all.

    Raises:
        InvalidInputError: The filter is invalid.
    """
    if not where:
        return lambda row: True
    wanted = parse_row_filter(where, where="--where")
    return lambda row: matches(wanted, _result(row))


def _result(row: Mapping[str, Any]) -> CaseResult:
    return CaseResult(
        case_id=row["case_id"],
        case_index=0,
        repeat_index=row["repeat"],
        category=row["category"] or "",
        status=AgentStatus(row["status"]),
        passed=row["passed"],
        scores=[
            Score(name, ScoreStatus(score["status"]), score["value"], score["passed"])
            for name, score in row["scores"].items()
        ],
        latency_ms=row["latency_ms"],
        reason=row["reason"] or "",
        response=_response(row["answer"]),
        input=row["question"] or "",
        tags=tuple(row["tags"]),
        turns=[TurnResult(turn["question"] or "", (), _response(turn["answer"])) for turn in row.get("turns") or ()],
    )


def _response(answer: str | None) -> AgentResponse | None:
    return None if answer is None else AgentResponse(AgentStatus.SUCCESS, answer)
