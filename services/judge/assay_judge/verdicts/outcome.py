"""The outcome of a request: a valid verdict, or the reason why it is missing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from assay_judge.calls.usage import CallUsage

if TYPE_CHECKING:
    from assay_judge.verdicts.parser import JudgeVerdict


class Status(StrEnum):
    """The status of a verdict; only valid verdicts count."""

    VALID = "valid"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one request.

    Args:
        status: The status of the verdict.
        verdict: The verdict; None if it is missing.
        reason: Why the verdict is missing, as a stable code.
        message: The reason as a sentence; untrusted text.
        usage: Tokens and cost; empty for a verdict from the cache.
        saved: The usage of the first call, for a verdict from the cache or from another request's call.
        temperature: The temperature that was sent; None for none.
        model: The model's own name.
        cached: Whether the verdict is from the cache or from another request's call.
        flags: The flags of the precheck; see precheck.FLAGS.
        by_rule: Whether an empty answer got the lowest score without a call of the judge.
        key: The cache key of the verdict.
        fingerprint: Identifies the judge with its rubric.
        batched: Whether the verdict came through the batch API.
        retry_after_s: When to retry a pending verdict, in seconds; 0 if it is not pending.
        needed: The maximum cost of the next call, in billionths of a dollar, if the allowance is too small; else 0.
        needed_tokens: The most tokens that the request may take, if its token allowance is too small; else 0.
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
        """Return the outcome for a request that cost nothing: the usage moves to `saved`."""
        return dataclasses.replace(self, usage=CallUsage(), saved=self.usage, cached=self.verdict is not None)
