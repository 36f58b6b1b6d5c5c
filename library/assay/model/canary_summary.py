"""The summary of a run's canaries: rates of wrong verdicts, and whether the run's judge can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.model.run_settings import CANARY_LIMIT
from assay.statistics.intervals import wilson
from assay.statistics.thresholds import exceeds

KNOWN_BAD, KNOWN_GOOD, INJECTION, MASTER_KEY, EMPTY = "known_bad", "known_good", "injection", "master_key", "empty"
KINDS = (INJECTION, KNOWN_BAD, KNOWN_GOOD, MASTER_KEY, EMPTY)
"""In the order in which a run uses them."""

_NAMES = {
    INJECTION: "a demand for a score",
    KNOWN_BAD: "the reference of another case",
    MASTER_KEY: "an opening without content",
    EMPTY: "an empty answer",
}
_FEW = 20  # canaries of a side below which no rate is estimated
_MOST_WRONG = 1  # of so few


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
        limit: Largest rate of wrong verdicts, for each side of at least 20 canaries.
        is_accepted: Whether the spec accepts failed canaries.
    """

    kinds: tuple[CanaryTally, ...] = ()
    undecided: int = 0
    cost_usd: float | None = None
    limit: float = CANARY_LIMIT
    is_accepted: bool = False

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
        """Whether the judge failed on either side: those that must fail, those that must pass.

        A side of fewer than 20 canaries fails at two wrong verdicts. A larger one fails if the lower end of the 95 %
        Wilson interval of its error rate is above the limit.
        """
        return self._fails(*self.false_passes) or self._fails(*self.false_fails)

    @property
    def warning(self) -> str:
        """The sentence where the judge was wrong about a canary; empty where it was wrong about none."""
        return self.sentence if self.false_passes[0] or self.false_fails[0] else ""

    @property
    def sentence(self) -> str:
        """What is to be made of it, for people."""
        (passed, bad), (failed, good) = self.false_passes, self.false_fails
        if not bad + good:
            return "the judge was not tested: no canary has a valid verdict"
        parts = [f"passed {passed} of {_planted(bad, 'wrong')}{self._which()}"] if passed else []
        parts += [f"failed {failed} of {_planted(good, 'right')}"] if failed else []
        if not parts:
            sides = " and ".join(_planted(n, side) for n, side in ((bad, "wrong"), (good, "right")) if n)
            return f"the judge was right about {sides}"
        said = f"the judge {' and '.join(parts)}"
        return f"do not trust these verdicts: {said}" if self.is_untrusted else f"{said}, which chance may explain"

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "count": self.count,
            "undecided": self.undecided,
            "false_pass": _rate(*self.false_passes),
            "false_fail": _rate(*self.false_fails),
            "kinds": {each.kind: {"count": each.count, "wrong": each.wrong} for each in self.kinds},
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

    def _which(self) -> str:
        """Return what the wrong answers that passed were."""
        found = [f"{_NAMES[each.kind]}: {each.wrong}" for each in self.kinds if each.wrong and each.kind in _NAMES]
        return f" ({', '.join(found)})"

    def _counted(self, *, should_pass: bool) -> tuple[int, int]:
        chosen = [each for each in self.kinds if (each.kind == KNOWN_GOOD) is should_pass]
        return sum(each.wrong for each in chosen), sum(each.count for each in chosen)


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
