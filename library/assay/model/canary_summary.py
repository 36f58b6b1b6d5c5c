"""The summary of a run's canaries: the judge's error rates, and whether it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from assay.model.interval import Interval
from assay.model.run_spec import CANARY_LIMIT, DEFAULT_JUDGE


class CanaryKind(StrEnum):
    """A kind of canary, in the order in which a run uses them."""

    INJECTION = "injection"
    KNOWN_BAD = "known_bad"
    KNOWN_GOOD = "known_good"
    MASTER_KEY = "master_key"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class CanaryTally:
    """The verdicts on canaries of one kind.

    Args:
        kind: Their kind.
        canary_count: Canaries with a valid verdict.
        wrong_count: Canaries that passed and must fail, or failed and must pass.
    """

    kind: CanaryKind
    canary_count: int
    wrong_count: int


@dataclass(frozen=True, slots=True)
class CanaryRate:
    """The rate of wrong verdicts on one side of the canaries: those that must fail, or those that must pass.

    Args:
        wrong_count: Wrong verdicts.
        canary_count: Canaries of the side with a valid verdict.
        rate: Wrong verdicts divided by canaries; None without canaries.
        interval: The 95% interval of the rate; None without canaries.
    """

    wrong_count: int = 0
    canary_count: int = 0
    rate: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class CanarySummary:
    """A judge's verdicts on a run's canaries.

    Args:
        kinds: Tallies by kind, in the order of the kinds; only kinds that the run had.
        undecided_count: Canaries without a valid verdict.
        cost_usd: Their cost; None if none has a price.
        limit: Largest rate of wrong verdicts, for each side of at least 20 canaries.
        is_accepted: Whether the spec accepts failed canaries.
        judge: The judge's name in the spec.
        canary_count: All canaries, including those without a valid verdict.
        false_pass: Canaries that must fail, and those of them that passed.
        false_fail: Canaries that must pass, and those of them that failed.
        is_untrusted: Whether the judge failed on either side.
        message: The consequence for the user, as a sentence.
    """

    kinds: tuple[CanaryTally, ...] = ()
    undecided_count: int = 0
    cost_usd: float | None = None
    limit: float = CANARY_LIMIT
    is_accepted: bool = False
    judge: str = DEFAULT_JUDGE
    canary_count: int = 0
    false_pass: CanaryRate = field(default_factory=CanaryRate)
    false_fail: CanaryRate = field(default_factory=CanaryRate)
    is_untrusted: bool = False
    message: str = ""

    @property
    def has_wrong_verdicts(self) -> bool:
        """Whether the judge was wrong about a canary."""
        return bool(self.false_pass.wrong_count or self.false_fail.wrong_count)
