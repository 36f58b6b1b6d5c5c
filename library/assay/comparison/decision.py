"""The decision of a comparison for a pipeline: the exit status of `assay compare`, with its reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from assay.comparison.allowed_drop import AllowedDrop, allowed_drop, drop_notes, not_excluded, too_large
from assay.comparison.model import ComparisonVerdict, FailOn, Reason, Side
from assay.comparison.run_names import run_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.comparison.model import Comparison, MetricComparison, PairComparison

NO_REGRESSION, FAILED, NOT_COMPARABLE, UNDECIDED = 0, 1, 3, 4
_OPEN_WORDS = {ComparisonVerdict.INCONCLUSIVE: "inconclusive", ComparisonVerdict.WITHHELD: "without a verdict"}


@dataclass(frozen=True, slots=True)
class DecisionRules:
    """The rules by which a comparison fails.

    Args:
        fail_on: The verdicts of the primary metric that fail.
        max_drop: The largest drop of the primary metric against the baseline, in its unit, whatever the p-value and
            `fail_on`; None for no limit.
        max_drop_test: Whether a larger drop must be excluded: the one-sided bound of 1 - alpha must be below it.
        strict: Whether an undecided comparison fails.
        allow_mismatch: Whether runs that must not be compared give figures and status 0.
    """

    fail_on: FailOn = FailOn.REGRESSION
    max_drop: float | None = None
    max_drop_test: bool = False
    strict: bool = False
    allow_mismatch: bool = False


class DecisionOutcome(StrEnum):
    """The outcome of a comparison."""

    NO_REGRESSION = "no_regression"
    REGRESSION = "regression"
    UNDECIDED = "undecided"
    NOT_COMPARABLE = "not_comparable"
    """The runs must not be compared, or too few cases have a value."""


_WORDS = {
    DecisionOutcome.NO_REGRESSION: "no regression",
    DecisionOutcome.REGRESSION: "regression",
    DecisionOutcome.UNDECIDED: "undecided",
    DecisionOutcome.NOT_COMPARABLE: "not to be compared",
}


@dataclass(frozen=True, slots=True)
class ComparisonDecision:
    """The decision of a comparison.

    Args:
        outcome: The outcome.
        exit_status: 0 no regression, 1 a failure by the rules, 3 not to be compared or no data, 4 undecided under
            strict rules.
        reasons: Sentences; with status 0, they name what is undecided.
        otherwise: The status under other rules, such as "4 with --strict"; empty if no rule was lenient.
        drops: With `max_drop`, the drop of each run with a difference.
    """

    outcome: DecisionOutcome
    exit_status: int
    reasons: tuple[str, ...] = ()
    otherwise: str = ""
    drops: tuple[AllowedDrop, ...] = ()

    @property
    def word(self) -> str:
        """The decision in a few words, such as "regression"."""
        return _WORDS[self.outcome]

    @property
    def sentence(self) -> str:
        """The decision with its exit status and reasons."""
        status = f"exit status {self.exit_status}" + (f"; {self.otherwise}" if self.otherwise else "")
        return self._with_reasons(f"{self.word} ({status})")

    def part_of_run(self, verdict: str, exit_status: int) -> str:
        """Return the decision as a part of a run's verdict, without its own status.

        Args:
            verdict: The verdict of the run itself, such as "FAIL".
            exit_status: The exit status of that verdict.
        """
        sentence = self._with_reasons(self.word)
        return f"{sentence} (the run itself: {verdict}, exit status {exit_status})" if exit_status else sentence

    def _with_reasons(self, sentence: str) -> str:
        return f"{sentence}: {'; '.join(self.reasons)}" if self.reasons else sentence


def not_comparable(reasons: tuple[str, ...]) -> ComparisonDecision:
    """Return the decision on runs that cannot be compared."""
    return ComparisonDecision(DecisionOutcome.NOT_COMPARABLE, NOT_COMPARABLE, reasons)


def decide(comparison: Comparison, rules: DecisionRules, *, of_run: bool = False) -> ComparisonDecision:
    """Return the exit status of a comparison: every run against the first, by the primary metric.

    Args:
        comparison: The figures.
        rules: The rules by which it fails.
        of_run: Whether a run that ended is compared with its baseline; the reasons then name the runs so.
    """
    if comparison.mismatches and not rules.allow_mismatch:
        return not_comparable(tuple(mismatch.message for mismatch in comparison.mismatches))
    names = run_names(comparison.variants, of_run=of_run)
    against = comparison.baseline_pairs
    primaries = [(names[pair.b.label], names[pair.a.label], pair.metric(comparison.primary)) for pair in against]
    drops = [allowed_drop(pair.b, pair.metric(comparison.primary), rules.max_drop) for pair in against]
    erring = [sentence for pair in against if (sentence := erring_text(pair, names[pair.a.label], names[pair.b.label]))]
    decision = _decided(comparison, primaries, drops, erring, rules)
    known = {drop.label: drop for drop in drops if drop is not None}
    notes = drop_notes(list(known.values()), [names[label] for label in known], is_tested=rules.max_drop_test)
    return replace(decision, reasons=(*decision.reasons, *notes), drops=tuple(known.values()))


def _decided(
    comparison: Comparison,
    primaries: Sequence[tuple[str, str, MetricComparison]],
    drops: Sequence[AllowedDrop | None],
    erring: Sequence[str],
    rules: DecisionRules,
) -> ComparisonDecision:
    worse = [
        reason for primary, drop in zip(primaries, drops, strict=True) for reason in _regressions(*primary, drop, rules)
    ]
    if rules.fail_on is FailOn.REGRESSION and not comparison.filtered:
        worse += erring
    unknown = [
        f"whether {metric.metric} of {b} differs from that of {a} is not decided"
        for b, a, metric in primaries
        if rules.fail_on is FailOn.INCONCLUSIVE and metric.verdict is ComparisonVerdict.INCONCLUSIVE
    ]
    if rules.max_drop_test:
        alpha = comparison.settings.alpha
        tested = zip(primaries, drops, strict=True)
        unknown += [reason for primary, drop in tested for reason in not_excluded(*primary, drop, alpha)]
    if worse or unknown:
        outcome = DecisionOutcome.REGRESSION if worse else DecisionOutcome.UNDECIDED
        return ComparisonDecision(outcome, FAILED, (*worse, *unknown))
    missing = [
        f"{b} and {a} cannot be compared by {metric.metric}: {metric.message}"
        for b, a, metric in primaries
        if metric.verdict is ComparisonVerdict.NO_DATA
    ]
    if missing:
        return not_comparable(tuple(missing))
    allowed = tuple(
        _worse_text(b, a, metric) for b, a, metric in primaries if metric.verdict is ComparisonVerdict.A_BETTER
    )
    open_ones = tuple(
        f"{metric.metric} of {b} against {a} is {_OPEN_WORDS[metric.verdict]} "
        f"({short_reason(metric, comparison.settings.alpha)})"
        for b, a, metric in primaries
        if metric.verdict in _OPEN_WORDS
    )
    if open_ones and rules.strict:
        outcome = DecisionOutcome.REGRESSION if allowed else DecisionOutcome.UNDECIDED
        return ComparisonDecision(outcome, UNDECIDED, (*allowed, *open_ones))
    if allowed:
        reasons = (*allowed, *open_ones)
        return ComparisonDecision(DecisionOutcome.REGRESSION, NO_REGRESSION, reasons, "1 without --fail-on never")
    if comparison.mismatches:
        return ComparisonDecision(DecisionOutcome.UNDECIDED, NO_REGRESSION, open_ones, "3 without --allow-mismatch")
    if open_ones:
        return ComparisonDecision(DecisionOutcome.UNDECIDED, NO_REGRESSION, open_ones, "4 with --strict")
    return ComparisonDecision(DecisionOutcome.NO_REGRESSION, NO_REGRESSION)


def short_reason(metric: MetricComparison, alpha: float) -> str:
    """Return in a few words why a metric decides nothing."""
    words: dict[str, str] = {
        Reason.TOO_FEW_DIFFERING: "too few cases differ",
        Reason.TOO_FEW_CLUSTERS: "too few clusters differ",
        Reason.AGENT_ERRORS: "errors",
        Reason.NOT_SIGNIFICANT: f"p not below {alpha:g}",
        Reason.NOT_SIGNIFICANT_ADJUSTED: f"adjusted p not below {alpha:g}",
    }
    return words.get(metric.reason, metric.message)


def _regressions(
    b: str, a: str, metric: MetricComparison, drop: AllowedDrop | None, rules: DecisionRules
) -> Iterator[str]:
    yield from too_large(b, a, metric, drop)
    if rules.fail_on is not FailOn.NEVER and metric.verdict is ComparisonVerdict.A_BETTER:
        yield _worse_text(b, a, metric)


def erring_text(pair: PairComparison, a: str, b: str) -> str:
    """Return a sentence if the agent of the second run fails significantly more often; otherwise the empty text.

    Args:
        pair: The two runs.
        a: The name of the first.
        b: The name of the second.
    """
    errors = pair.errors
    if errors is None or errors.worse is not Side.B:
        return ""
    cases = pair.common_case_count - pair.changed_case_count
    return (
        f"{b} fails significantly more often than {a}: agent errors on {errors.b_case_count:,} of {cases:,} cases "
        f"against {errors.a_case_count:,}"
    )


def _worse_text(b: str, a: str, metric: MetricComparison) -> str:
    return f"{metric.metric} of {b} is significantly worse than that of {a}"
