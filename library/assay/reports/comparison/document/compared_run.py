"""The input of a comparison from a run's document: facts and scores of the cases, without texts."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from assay.comparison.cases import CaseScores
from assay.comparison.compare import ComparedRun
from assay.comparison.facts import facts_of
from assay.filters.matching import matches
from assay.filters.row_text import parse_row_filter
from assay.model.answers.agent_response import FAILED_STATUSES, AgentResponse, AgentStatus
from assay.model.answers.possible_usage import possible_cost, possible_tokens
from assay.model.run import RowResult, Score, ScoreStatus, TurnResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from assay.comparison.model import ComparisonSettings
    from assay.reports.document.report import Report

_DIGEST_BYTES = 12


def row_predicate(where: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a predicate for rows that match a filter; the empty filter matches all.

    Raises:
        InvalidInputError: The filter is invalid.
    """
    if not where:
        return lambda row: True
    wanted = parse_row_filter(where, where="--where")
    return lambda row: matches(wanted, _result(row))


def _result(row: Mapping[str, Any]) -> RowResult:
    return RowResult(
        case_id=row["case_id"],
        case_index=0,
        repeat=row["repeat"],
        category=row["category"] or "",
        status=AgentStatus(row["status"]),
        passed=row["passed"],
        scores=[
            Score(name, ScoreStatus(score["status"]), score["value"], score["passed"])
            for name, score in row["scores"].items()
        ],
        latency_ms=row["latency_ms"],
        message=row["message"] or "",
        response=_response(row["answer"]),
        input=row["question"] or "",
        tags=tuple(row["tags"]),
        turns=[TurnResult(turn["question"] or "", (), _response(turn["answer"])) for turn in row.get("turns") or ()],
    )


def _response(answer: str | None) -> AgentResponse | None:
    return None if answer is None else AgentResponse(AgentStatus.SUCCESS, answer)


def compared_run(report: Report, settings: ComparisonSettings) -> ComparedRun:
    """Return a run in the form that comparisons need.

    Raises:
        InvalidInputError: The filter of the settings is invalid.
    """
    facts = facts_of(report.head)
    names = tuple(facts.metrics)
    cases = CaseScores(names, settings.cluster or facts.cluster, facts.max_agent_errors)
    meets = row_predicate(settings.where)
    for row in report.rows():
        values = values_of(row, names)
        cases.take(
            row["case_id"],
            values,
            passed=row["passed"],
            status=AgentStatus(row["status"]),
            errors=_errors_of(row, values),
            repeat=row["repeat"],
            category=row["category"] or "",
            tags=row["tags"],
            content=content_of(row["question"], row["references"]),
            meets_filter=meets(row),
        )
    return ComparedRun(facts, cases)


def content_of(question: str | None, references: object) -> bytes:
    """Return a digest of a case's question and references."""
    return blake2b(repr((question or "", references)).encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).digest()


def values_of(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, float | None]:
    """Return the values of a row's metrics, and latency, tokens and cost even if the run has no metric of that name."""
    scores, implied = row["scores"], None
    values: dict[str, float | None] = {}
    for name in names:
        if name in scores:
            values[name] = scores[name]["value"]
        else:
            implied = implied_values(row) if implied is None else implied
            values[name] = implied.get(name)
    return values


def _errors_of(row: Mapping[str, Any], values: Mapping[str, float | None]) -> list[str]:
    """Return the metrics of a row whose value is missing because of an error, not because they skip the row."""
    scores, is_error = row["scores"], row["status"] in FAILED_STATUSES
    return [
        name
        for name, value in values.items()
        if value is None and (scores[name]["status"] == ScoreStatus.ERROR.value if name in scores else is_error)
    ]


def implied_values(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Return latency, tokens and cost of a row, by status, latency and the usage of its response.

    What no answer can have used is absent, as where the metric of that name is an error.
    """
    usage = (row.get("response") or {}).get("usage") or {}
    tokens = usage.get("total_tokens")
    if tokens is None and usage.get("input_tokens") is not None and usage.get("output_tokens") is not None:
        tokens = usage["input_tokens"] + usage["output_tokens"]
    latency_ms = row["latency_ms"] if row["status"] not in FAILED_STATUSES else None
    return {
        "latency": None if latency_ms is None or latency_ms < 0 else latency_ms / 1_000,
        "tokens": possible_tokens(tokens) or None,
        "cost": possible_cost(usage.get("cost_usd")),
    }
