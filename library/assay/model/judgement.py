"""Judgements: what a judge said about an answer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class JudgementStatus(StrEnum):
    """Whether a judge's verdict counts."""

    VALID = "valid"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class JudgementCall:
    """One call of a judge.

    Args:
        outcome: "replied", or a stable word for why there is no reply, such as "http_429".
        input_tokens: Input tokens; None if unknown.
        output_tokens: Output tokens, reasoning included; None if unknown.
        cost_usd: Cost; the maximum if the outcome is unknown, None without a price.
        latency_ms: Duration; None in a batch.
        is_estimated: Whether tokens and cost are the judge service's estimate.
    """

    outcome: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    latency_ms: float | None = None
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of one judge on one answer.

    Args:
        judge: The judge, e.g. "openai:gpt-4o-mini".
        model: The model as the provider names it, or empty.
        rubric: The rubric.
        fingerprint: Fingerprint of judge and rubric; empty for a recorded verdict.
        status: Whether the verdict counts.
        reason: Why it does not count: a stable word such as "invalid_verdict", or empty.
        message: Why it does not count, as a sentence, or empty.
        reasoning: The judge's reasoning, or empty.
        scores: Scores by criterion.
        value: The metric's value by this judge of a jury; None without a jury or a valid verdict.
        turn_index: The judged turn of a conversation, from 0; None for a single question or the whole conversation.
        check_index: The judged check of the case, from 0; None if the metric itself is judged.
        is_cached: Whether the verdict came from the cache.
        is_by_rule: Whether a rule decided without a call of the judge.
        is_batched: Whether the verdict came through the provider's batch API.
        is_recorded: Whether the verdict was recorded and came with the case.
        flags: Flags of the answer, such as "punctuation_only".
        key: SHA-256 of everything that the verdict depends on; empty if no verdict was requested.
        temperature: Sampling temperature; None if none was sent.
        call_count: Number of calls for the verdict.
        input_tokens: Input tokens of all calls; None if unknown.
        output_tokens: Output tokens of all calls, reasoning included; None if unknown.
        cost_usd: Cost of the verdict; None without a price.
        is_estimated: Whether tokens and cost are the judge service's estimate.
        saved_tokens: Original tokens of a cached verdict; None if unknown.
        saved_usd: Original cost of a cached verdict; None if unknown.
        refused_parameters: Parameters that the model refuses and that were not sent.
        calls: The calls for the verdict, oldest first.
    """

    judge: str
    rubric: str
    status: JudgementStatus
    model: str = ""
    fingerprint: str = ""
    reason: str = ""
    message: str = ""
    reasoning: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    value: float | None = None
    turn_index: int | None = None
    check_index: int | None = None
    is_cached: bool = False
    is_by_rule: bool = False
    is_batched: bool = False
    is_recorded: bool = False
    flags: tuple[str, ...] = ()
    key: str = ""
    temperature: float | None = None
    call_count: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    is_estimated: bool = False
    saved_tokens: int | None = None
    saved_usd: float | None = None
    refused_parameters: tuple[str, ...] = ()
    calls: tuple[JudgementCall, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether the verdict counts."""
        return self.status is JudgementStatus.VALID

    @property
    def paid_usd(self) -> float | None:
        """The cost that this run paid for the verdict; None for a cached verdict, or without a price."""
        return None if self.is_cached else self.cost_usd


_STATUSES = {status.value: status for status in JudgementStatus}
_SHAPED = ("judge", "rubric", "status", "scores", "flags", "refused_parameters", "calls")
_PLAIN = tuple(entry.name for entry in dataclasses.fields(Judgement) if entry.name not in _SHAPED)
_OF_CALL = tuple(entry.name for entry in dataclasses.fields(JudgementCall))


def judgement_to_json(judgement: Judgement) -> dict[str, Any]:
    """Return the judgement as a JSON object without absent, empty and false fields."""
    document: dict[str, Any] = {
        "judge": judgement.judge,
        "rubric": judgement.rubric,
        "status": judgement.status.value,
        **_present(judgement, _PLAIN),
    }
    if judgement.scores:
        document["scores"] = dict(judgement.scores)
    if judgement.flags:
        document["flags"] = list(judgement.flags)
    if judgement.refused_parameters:
        document["refused_parameters"] = list(judgement.refused_parameters)
    if judgement.calls:
        document["calls"] = [_present(call, _OF_CALL) for call in judgement.calls]
    return document


def judgement_from_json(document: Mapping[str, Any]) -> Judgement:
    """Return the judgement that `judgement_to_json` wrote."""
    sequences = {
        "flags": tuple(document.get("flags", ())),
        "refused_parameters": tuple(document.get("refused_parameters", ())),
        "calls": tuple(JudgementCall(**call) for call in document.get("calls", ())),
    }
    return Judgement(**{**document, **sequences, "status": _STATUSES[document["status"]]})


def _present(part: Judgement | JudgementCall, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields that are neither absent nor empty nor false; a number 0 is kept."""
    return {
        name: value
        for name in names
        if (value := getattr(part, name)) is not None and value is not False and value != ""
    }
