"""The summary of a run's canaries: rates of wrong verdicts, and whether the run's judge can be trusted."""

from __future__ import annotations

from typing import Any

from assay.records import dataclass
from assay.statistics.intervals import wilson
from assay.statistics.thresholds import exceeds

LIMIT = 0.1
"""Largest rate of wrong verdicts on canaries with which a run is still believed."""

KNOWN_BAD, KNOWN_GOOD, INJECTION, MASTER_KEY, EMPTY = "known_bad", "known_good", "injection", "master_key", "empty"
KINDS = (KNOWN_BAD, KNOWN_GOOD, INJECTION, MASTER_KEY, EMPTY)
"""In the order in which a run uses them."""


@dataclass(frozen=True, slots=True)
class CanaryTally:
    """Canaries of one kind.

    Args:
        kind: One of KINDS.
        count: Those with a valid verdict.
        wrong: Those of them that passed and must fail, or failed and must pass.
    """

    kind: str
    count: int
    wrong: int


@dataclass(frozen=True, slots=True)
class CanarySummary:
    """What a judge said of a run's canaries.

    Args:
        kinds: By kind, in the order of KINDS; only those that the run had.
        undecided: Canaries without a valid verdict.
        cost_usd: What they cost; None where none of them has a price.
    """

    kinds: tuple[CanaryTally, ...] = ()
    undecided: int = 0
    cost_usd: float | None = None

    @property
    def count(self) -> int:
        """All canaries that were asked about."""
        return self.undecided + sum(each.count for each in self.kinds)

    @property
    def false_passes(self) -> tuple[int, int]:
        """Those that must fail and passed, and all that must fail."""
        return self._counted(should_pass=False)

    @property
    def false_fails(self) -> tuple[int, int]:
        """Those that must pass and failed, and all that must pass."""
        return self._counted(should_pass=True)

    @property
    def is_untrusted(self) -> bool:
        """Whether either rate is above the limit."""
        return any(n and exceeds(wrong / n, LIMIT) for wrong, n in (self.false_passes, self.false_fails))

    @property
    def sentence(self) -> str:
        """What is to be made of it, for people."""
        parts = [
            f"{wrong} of {n} answers that must {must} {did}"
            for must, did, (wrong, n) in (("fail", "passed", self.false_passes), ("pass", "failed", self.false_fails))
            if n
        ]
        if not parts:
            return "the judge was not tested: no canary has a valid verdict"
        said = "; ".join(parts)
        if self.is_untrusted:
            return f"do not trust these verdicts: {said}. Calibrate the judge, or take another one"
        return f"the judge stood its test: {said}"

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "count": self.count,
            "undecided": self.undecided,
            "false_pass": _rate(*self.false_passes),
            "false_fail": _rate(*self.false_fails),
            "kinds": {each.kind: {"count": each.count, "wrong": each.wrong} for each in self.kinds},
            "cost_usd": self.cost_usd,
            "limit": LIMIT,
            "untrusted": self.is_untrusted,
            "sentence": self.sentence,
        }

    def _counted(self, *, should_pass: bool) -> tuple[int, int]:
        chosen = [each for each in self.kinds if (each.kind == KNOWN_GOOD) is should_pass]
        return sum(each.wrong for each in chosen), sum(each.count for each in chosen)


def _rate(wrong: int, n: int) -> dict[str, Any]:
    interval = wilson(wrong, n)
    return {
        "rate": wrong / n if n else None,
        "count": wrong,
        "n": n,
        "interval": None if interval is None else list(interval),
    }
