"""What comes of a request for a verdict: a valid verdict, or why there is none."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from assay_judge.calls.usage import Tally

if TYPE_CHECKING:
    from assay_judge.verdicts.parser import JudgeVerdict

__all__ = ["Outcome", "Status"]


class Status(StrEnum):
    """Whether a verdict counts."""

    VALID = "valid"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request.

    Args:
        status: Whether there is a verdict.
        verdict: The verdict, where there is one.
        reason: Why there is none, one stable word.
        message: The same as a sentence; untrusted text.
        tally: What it has cost; empty for a verdict from the cache.
        saved: What a verdict from the cache, or from somebody else's call, took when it was asked for.
        temperature: The temperature that was sent; None where none was.
        model: The model as it names itself.
        cached: Whether the verdict is from the cache or from somebody else's call.
        flags: What the precheck has found in the answer; see precheck.FLAGS.
        by_rule: Whether no judge was asked because an empty answer has the lowest score by rule.
        key: What the verdict rests on.
        fingerprint: The judge with its rubric.
        batched: Whether the judge was asked through its batch API.
        retry_after_s: When to ask again for a verdict that is not there yet; 0 where there is nothing to wait for.
    """

    status: Status
    verdict: JudgeVerdict | None = None
    reason: str = ""
    message: str = ""
    tally: Tally = field(default_factory=Tally)
    temperature: float | None = None
    model: str = ""
    cached: bool = False
    flags: tuple[str, ...] = ()
    by_rule: bool = False
    key: str = ""
    fingerprint: str = ""
    batched: bool = False
    retry_after_s: float = 0.0
    saved: Tally = field(default_factory=Tally)

    def as_found(self) -> Outcome:
        """Return it as it is to those for whom the judge was not asked: it has cost them nothing."""
        return dataclasses.replace(self, tally=Tally(), saved=self.tally, cached=self.verdict is not None)
