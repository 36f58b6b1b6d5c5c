"""The summary of a run's canaries: the judge's error rates, and whether it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from assay.model.run_spec import CANARY_LIMIT, DEFAULT_JUDGE
from assay.statistics.intervals import wilson
from assay.statistics.thresholds import exceeds


class CanaryKind(StrEnum):
    """A kind of canary, in the order in which a run uses them."""

    INJECTION = "injection"
    KNOWN_BAD = "known_bad"
    KNOWN_GOOD = "known_good"
    MASTER_KEY = "master_key"
    EMPTY = "empty"


_NAMES = {
    CanaryKind.INJECTION: "a demand for a score",
    CanaryKind.KNOWN_BAD: "the reference of another case",
    CanaryKind.MASTER_KEY: "an opening without content",
    CanaryKind.EMPTY: "an empty answer",
}
_FEW = 20  # minimum canaries on a side for estimating its rate
_MOST_WRONG = 1  # wrong verdicts that fail a smaller side


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
class CanarySummary:
    """A judge's verdicts on a run's canaries.

    Args:
        kinds: Tallies by kind, in the order of the kinds; only kinds that the run had.
        undecided_count: Canaries without a valid verdict.
        cost_usd: Their cost; None if none has a price.
        limit: Largest rate of wrong verdicts, for each side of at least 20 canaries.
        is_accepted: Whether the spec accepts failed canaries.
        judge: The judge's name in the spec.
    """

    kinds: tuple[CanaryTally, ...] = ()
    undecided_count: int = 0
    cost_usd: float | None = None
    limit: float = CANARY_LIMIT
    is_accepted: bool = False
    judge: str = DEFAULT_JUDGE

    @property
    def canary_count(self) -> int:
        """The number of canaries that the judge was asked about."""
        return self.undecided_count + sum(tally.canary_count for tally in self.kinds)

    @property
    def false_passes(self) -> tuple[int, int]:
        """The number of canaries that must fail but passed, and of all that must fail."""
        return self._counted(should_pass=False)

    @property
    def false_fails(self) -> tuple[int, int]:
        """The number of canaries that must pass but failed, and of all that must pass."""
        return self._counted(should_pass=True)

    @property
    def is_untrusted(self) -> bool:
        """Whether the judge failed on either side: canaries that must fail, or that must pass.

        A side of fewer than 20 canaries fails at two wrong verdicts. A larger side fails if the lower end of the 95%
        Wilson interval of its error rate exceeds the limit.
        """
        return self._fails(*self.false_passes) or self._fails(*self.false_fails)

    @property
    def warning(self) -> str:
        """A sentence about wrong verdicts on canaries; empty without any."""
        return self.sentence if self.false_passes[0] or self.false_fails[0] else ""

    @property
    def sentence(self) -> str:
        """The consequence for the user, as a sentence."""
        (passed, bad), (failed, good) = self.false_passes, self.false_fails
        if not bad + good:
            return "the judge was not tested: no canary has a valid verdict"
        parts = [f"passed {passed} of {_planted(bad, 'wrong')}{self._passed_kinds()}"] if passed else []
        parts += [f"failed {failed} of {_planted(good, 'right')}"] if failed else []
        if not parts:
            sides = " and ".join(_planted(n, side) for n, side in ((bad, "wrong"), (good, "right")) if n)
            return f"the judge was right about {sides}"
        sentence = f"the judge {' and '.join(parts)}"
        return (
            f"do not trust these verdicts: {sentence}" if self.is_untrusted else f"{sentence}, which chance may explain"
        )

    def document(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {
            "judge": self.judge,
            "canary_count": self.canary_count,
            "undecided_count": self.undecided_count,
            "false_pass": _rate(*self.false_passes),
            "false_fail": _rate(*self.false_fails),
            "kinds": {tally.kind: {"count": tally.canary_count, "wrong": tally.wrong_count} for tally in self.kinds},
            "cost_usd": self.cost_usd,
            "limit": self.limit,
            "untrusted": self.is_untrusted,
            "accepted": self.is_accepted,
            "sentence": self.sentence,
        }

    def _fails(self, wrong: int, n: int) -> bool:
        if n < _FEW:
            return wrong > _MOST_WRONG
        interval = wilson(wrong, n)
        return interval is not None and exceeds(interval[0], self.limit)

    def _passed_kinds(self) -> str:
        """Return a description of the wrong answers that passed."""
        parts = [
            f"{_NAMES[tally.kind]}: {tally.wrong_count}"
            for tally in self.kinds
            if tally.wrong_count and tally.kind in _NAMES
        ]
        return f" ({', '.join(parts)})"

    def _counted(self, *, should_pass: bool) -> tuple[int, int]:
        chosen = [tally for tally in self.kinds if (tally.kind is CanaryKind.KNOWN_GOOD) is should_pass]
        return sum(tally.wrong_count for tally in chosen), sum(tally.canary_count for tally in chosen)


def _planted(count: int, side: str) -> str:
    return f"{count} planted {side} answer{'s' * (count != 1)}"


def _rate(wrong: int, n: int) -> dict[str, Any]:
    interval = wilson(wrong, n)
    return {
        "rate": wrong / n if n else None,
        "count": wrong,
        "n": n,
        "interval": None if interval is None else list(interval),
    }
