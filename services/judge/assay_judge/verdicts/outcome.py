"""The outcome of a request: a valid verdict, or why there is none."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from assay_judge.calls.usage import CallUsage

if TYPE_CHECKING:
    from assay_judge.verdicts.parser import JudgeVerdict


class Status(StrEnum):
    """Whether a verdict counts."""

    VALID = "valid"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one request.

    Args:
        status: Whether there is a verdict.
        verdict: The verdict, where there is one.
        reason: Why there is none, one stable word.
        message: The same as a sentence; untrusted text.
        usage: What it has cost; empty for a verdict from the cache.
        saved: The usage of the first call, for a verdict from the cache or from another request's call.
        temperature: The temperature that was sent; None where none was.
        model: The model as it names itself.
        cached: Whether the verdict is from the cache or from another request's call.
        flags: What the precheck has found in the answer; see precheck.FLAGS.
        by_rule: Whether no judge was called because an empty answer has the lowest score by rule.
        key: What the verdict rests on.
        fingerprint: The judge with its rubric.
        batched: Whether the verdict came through the batch API.
        retry_after_s: When to retry a pending verdict, in seconds; 0 where none is pending.
        needed: What the next call may cost, in billionths of a dollar, where the allowance is too small for it; else 0.
        needed_tokens: How many tokens the request may take, where its token allowance is too small; else 0.
    """

    status: Status
    verdict: JudgeVerdict | None = None
    reason: str = ""
    message: str = ""
    usage: CallUsage = field(default_factory=CallUsage)
    temperature: float | None = None
    model: str = ""
    cached: bool = False
    flags: tuple[str, ...] = ()
    by_rule: bool = False
    key: str = ""
    fingerprint: str = ""
    batched: bool = False
    retry_after_s: float = 0.0
    saved: CallUsage = field(default_factory=CallUsage)
    needed: int = 0
    needed_tokens: int = 0

    def as_found(self) -> Outcome:
        """Return the outcome for a request that cost nothing: usage moves to `saved`."""
        return dataclasses.replace(self, usage=CallUsage(), saved=self.usage, cached=self.verdict is not None)
