"""Judgements: what a judge said about an answer, read from the detail of a score."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KEYS = frozenset({"status", "judge", "model", "rubric", "fingerprint", "scores", "cached", "by_rule", "flags"})
"""The entries of every stored verdict."""


class JudgementStatus(StrEnum):
    """Whether a judge's verdict counts."""

    VALID = "valid"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of one judge on one answer.

    Args:
        judge: The judge, e.g. "openai:gpt-4o-mini".
        model: The model as the provider names it, or empty.
        rubric: The rubric.
        fingerprint: Fingerprint of judge and rubric.
        status: Whether the verdict counts.
        reasoning: The judge's reasoning, or empty.
        scores: Scores by criterion.
        value: The metric's value by this judge of a jury; None without a jury or a valid verdict.
        turn_index: The judged turn of a conversation, from 0; None for a single question or the whole conversation.
        is_cached: Whether the verdict came from the cache.
        is_by_rule: Whether a rule decided without a call of the judge.
        flags: Flags of the answer, such as "punctuation_only".
    """

    judge: str
    model: str
    rubric: str
    fingerprint: str
    status: JudgementStatus
    reasoning: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    value: float | None = None
    turn_index: int | None = None
    is_cached: bool = False
    is_by_rule: bool = False
    flags: tuple[str, ...] = ()


def judgements_of(detail: Mapping[str, Any]) -> tuple[Judgement, ...]:
    """Return the judgements in the detail of a score, by turn and in the order of a jury; empty without a judge."""
    return tuple(_judgements(detail, None)) if "verdict" in detail or "jury" in detail or "turns" in detail else ()


def _judgements(detail: Mapping[str, Any], turn_index: int | None) -> Iterator[Judgement]:
    turns = detail.get("turns")
    for turn in turns if isinstance(turns, list) else ():
        if isinstance(turn, dict) and isinstance(of_turn := turn.get("detail"), dict):
            yield from _judgements(of_turn, turn.get("turn_index"))
    jury = detail.get("jury")
    for part in jury if isinstance(jury, list) else (detail,):
        verdict = part.get("verdict") if isinstance(part, dict) else None
        if isinstance(verdict, dict) and verdict.keys() >= _KEYS:
            yield Judgement(
                judge=verdict["judge"],
                model=verdict["model"],
                rubric=verdict["rubric"],
                fingerprint=verdict["fingerprint"],
                status=JudgementStatus(verdict["status"]),
                reasoning=part.get("reasoning") or "",
                scores=verdict["scores"],
                value=part.get("value") if part is not detail else None,
                turn_index=turn_index,
                is_cached=bool(verdict["cached"]),
                is_by_rule=bool(verdict["by_rule"]),
                flags=tuple(verdict["flags"]),
            )
