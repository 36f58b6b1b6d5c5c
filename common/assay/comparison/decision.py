"""What a comparison means for a pipeline: the exit status of `assay compare`, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.comparison.model import FailOn, Verdict
from assay.records import dataclass
from assay.statistics.thresholds import exceeds, text_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.comparison.model import Comparison, MetricComparison, PairComparison

NO_REGRESSION, FAILED, NOT_COMPARABLE, UNDECIDED = 0, 1, 3, 4
_WORDS = {
    NO_REGRESSION: "no regression",
    FAILED: "undecided",
    NOT_COMPARABLE: "not to be compared",
    UNDECIDED: "undecided",
}
_UNDECIDED = frozenset({Verdict.INCONCLUSIVE, Verdict.NO_DATA, Verdict.WITHHELD})


@dataclass(frozen=True, slots=True)
class DecisionRules:
    """What makes a comparison fail.

    Args:
        fail_on: Which verdicts of the primary metric.
        max_drop: The largest drop of the primary metric against the baseline, in its unit, whatever the p-value and
            `fail_on`; None for no such limit.
        strict: Whether anything undecided fails.
        allow_mismatch: Whether runs that must not be compared give figures and 0.
    """

    fail_on: FailOn = FailOn.REGRESSION
    max_drop: float | None = None
    strict: bool = False
    allow_mismatch: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What a comparison comes to.

    Args:
        exit_status: 0 no regression, 1 a failure by the rules, 3 not to be compared or no data, 4 undecided under
            strict rules.
        reasons: Why, each a sentence.
        is_regression: Whether a run is worse than the first; a failure without it is that nothing is decided.
    """

    exit_status: int
    reasons: tuple[str, ...]
    is_regression: bool = False

    @property
    def word(self) -> str:
        """The decision in a word or a few, such as "regression"."""
        return "regression" if self.is_regression else _WORDS[self.exit_status]


def decide(comparison: Comparison, rules: DecisionRules) -> Decision:
    """Return the exit status of a comparison: every run against the first, by the primary metric."""
    if comparison.mismatches and not rules.allow_mismatch:
        return Decision(NOT_COMPARABLE, tuple(one.message for one in comparison.mismatches))
    against = [pair for pair in comparison.pairs if pair.a == comparison.variants[0].label]
    primaries = [(pair, pair.metric(comparison.primary)) for pair in against]
    worse = [reason for pair, one in primaries for reason in _regressions(pair, one, rules)]
    unknown = [
        f"whether {one.metric} of {pair.b} differs from that of {pair.a} is not decided"
        for pair, one in primaries
        if rules.fail_on is FailOn.INCONCLUSIVE and one.verdict is Verdict.INCONCLUSIVE
    ]
    if worse or unknown:
        return Decision(FAILED, (*worse, *unknown), is_regression=bool(worse))
    missing = [
        f"{pair.b} and {pair.a} cannot be compared by {one.metric}: {one.reason}"
        for pair, one in primaries
        if one.verdict is Verdict.NO_DATA
    ]
    if missing:
        return Decision(NOT_COMPARABLE, tuple(missing))
    if rules.strict:
        open_ones = [
            f"{one.metric} of {pair.b} against {pair.a} is {one.verdict.value.replace('_', ' ')}"
            for pair, one in primaries
            if one.verdict in _UNDECIDED
        ]
        if open_ones:
            return Decision(UNDECIDED, tuple(open_ones))
    return Decision(NO_REGRESSION, ())


def _regressions(pair: PairComparison, one: MetricComparison, rules: DecisionRules) -> Iterator[str]:
    if one.difference is not None and rules.max_drop is not None:
        drop = -one.difference if one.higher_is_better else one.difference
        if exceeds(drop, rules.max_drop):
            shown = text_apart(drop, [rules.max_drop])
            yield (
                f"{one.metric} of {pair.b} is {shown} worse than that of {pair.a}, more than the allowed "
                f"{rules.max_drop:g}"
            )
    if rules.fail_on is not FailOn.NEVER and one.verdict is Verdict.A_BETTER:
        yield f"{one.metric} of {pair.b} is significantly worse than that of {pair.a}"
