"""The verdicts of a comparison: adjusted p-values, and the verdict of each metric or the reason why it has none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assay.comparison.detectable import with_power
from assay.comparison.metric_pairs import NoVerdict, too_few
from assay.comparison.model import Adjustment, ComparisonVerdict, Reason, WorstCase
from assay.comparison.stopped import with_stopping
from assay.model.interval import Interval
from assay.statistics.adjustment import benjamini_hochberg, holm
from assay.statistics.equivalence import LEAST_CASES
from assay.statistics.sequential import Evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.metric_pairs import PairedValues, Tested
    from assay.comparison.model import ComparisonSettings, ErrorComparison, MetricComparison
    from assay.comparison.stopping_outcome import StoppingOutcome

CONSTANT = "constant"
"""The note of a metric whose differences are all 0, so that there is nothing to test."""
AS_PRIMARY = "as_primary"
"""The note of a metric whose values are all those of the primary metric, so that it is no separate test."""
_BETTER = (ComparisonVerdict.A_BETTER, ComparisonVerdict.B_BETTER)
_NOT_ADJUSTED = NoVerdict(
    Reason.NOT_ADJUSTED, "only the pairs with the first run decide: this p-value is not adjusted for other tests"
)


class Families:
    """Adjusts p-values in two families, the primary metric and all others, over the pairs that decide.

    A metric whose differences are all 0 tests nothing, and a metric whose values are all those of the primary metric
    repeats its test: neither is in a family.

    Args:
        tested: The metrics of each pair of runs, the primary metric first.
        values: Their values.
        settings: The settings of the comparison.
    """

    def __init__(
        self, tested: Sequence[MetricComparison], values: Sequence[PairedValues], settings: ComparisonSettings
    ) -> None:
        self._adjust = holm if settings.adjust is Adjustment.HOLM else benjamini_hochberg
        self._alpha = settings.alpha
        self._p = [metric.p for metric in tested]
        self._is_primary = [metric.is_primary for metric in tested]
        self.notes: list[tuple[str, ...]] = []
        self._tests: list[int] = []  # the test of each metric: its own or that of the primary metric
        families: dict[bool, list[int]] = {True: [], False: []}
        primary = 0
        for at, (metric, value) in enumerate(zip(tested, values, strict=True)):
            primary = at if metric.is_primary else primary
            is_constant = bool(len(value.a)) and not value.differences.any()
            is_same = not metric.is_primary and value.equals(values[primary])
            self.notes.append((CONSTANT,) * is_constant + (AS_PRIMARY,) * is_same)
            self._tests.append(primary if is_same else at)
            if metric.decides and metric.p is not None and not is_constant and not is_same:
                families[metric.is_primary].append(at)
        self._families = {at: family for family in families.values() for at in family}
        self._adjusted = {
            at: p
            for family in families.values()
            for at, p in zip(family, self._adjust([self._p[at] or 0.0 for at in family]), strict=True)
        }

    def is_primary(self, at: int) -> bool:
        """Whether a metric is the primary one, or has all of its values."""
        return self._is_primary[self._tests[at]]

    def size(self, at: int) -> int:
        """Return the number of tests that a p-value is adjusted for."""
        return len(self._families.get(self._tests[at], ())) or 1

    def adjusted(self, at: int) -> float | None:
        """Return the adjusted p-value of a deciding metric; None if it has none."""
        test = self._tests[at]
        return self._adjusted.get(test, self._p[test])

    def adjusted_with(self, at: int, p: float) -> float:
        """Return the adjusted p-value that a metric would have with another raw p-value."""
        test = self._tests[at]
        family = self._families.get(test)
        if family is None:
            return p
        return self._adjust([p if member == test else self._p[member] or 0.0 for member in family])[family.index(test)]

    def can_decide(self, at: int, least: float) -> bool:
        """Whether a metric would be significant with its smallest possible raw p-value.

        Args:
            at: The metric.
            least: The smallest p-value that its differing cases, or clusters, can give.
        """
        if least >= self._alpha or least * self.size(at) < self._alpha:  # without the other p-values
            return least < self._alpha
        return self.adjusted_with(at, least) < self._alpha


def decided(
    tested: Sequence[Tested],
    values: Sequence[PairedValues],
    settings: ComparisonSettings,
    stopping: StoppingOutcome | None,
    names: Sequence[tuple[str, str]],
) -> list[MetricComparison]:
    """Return the metrics with adjusted p-values and verdicts.

    If runs stop early by a rule, the rule decides on the primary metric instead of the p-value, which is not adjusted
    for the looks.

    Args:
        tested: The metrics of each pair of runs, the primary metric first.
        values: Their values.
        settings: The settings of the comparison.
        stopping: The outcome of the rule; None without a rule.
        names: The names of both runs of each metric, for messages.
    """
    families = Families([metric.found for metric in tested], values, settings)
    decisions = [
        _Decision(
            at, metric, values[at], families, settings, stopping if families.is_primary(at) else None, names[at]
        ).comparison()
        for at, metric in enumerate(tested)
    ]
    if stopping is not None:  # a rule that stops early has a different power than the test over all cases
        return decisions
    return [with_power(metric, values[at], settings, families.size(at)) for at, metric in enumerate(decisions)]


@dataclass(frozen=True, slots=True)
class _Decision:
    """The decision on one metric of two runs."""

    at: int
    tested: Tested
    values: PairedValues
    families: Families
    settings: ComparisonSettings
    stopping: StoppingOutcome | None
    names: tuple[str, str]

    def comparison(self) -> MetricComparison:
        """Return the metric with its verdict or the reason why it has none."""
        metric = self.tested.found
        noted = replace(metric, notes=(*metric.notes, *self.families.notes[self.at]))
        if noted.decides:
            noted = replace(noted, p_adjusted=self.families.adjusted(self.at))
        noted = with_stopping(noted, self.stopping, self.values, self.settings)
        noted = replace(noted, one_sided=self._one_sided(noted))
        missing = too_few(self.values)
        claim = ComparisonVerdict.INCONCLUSIVE if missing else self._claim(noted)
        worst = self._worst(noted, claim)
        noted = replace(noted, worst_case=worst)
        if missing:
            return _without(noted, ComparisonVerdict.NO_DATA, missing)
        if self.values.withheld is not None:
            return _without(noted, ComparisonVerdict.WITHHELD, self.values.withheld)
        if not noted.decides:
            return _without(noted, ComparisonVerdict.WITHHELD, _NOT_ADJUSTED)
        if claim is ComparisonVerdict.INCONCLUSIVE:
            return _without(noted, claim, self._inconclusive(noted))
        errors = self.values.errors
        if errors is not None and errors.differ and (worst is None or not worst.holds):
            return _without(noted, ComparisonVerdict.WITHHELD, self._erring(errors, worst))
        return replace(noted, verdict=claim)

    def _one_sided(self, metric: MetricComparison) -> Interval | None:
        """Return the one-sided bounds of a metric; if errors differ, also over the worst values in their place."""
        errors, lowest, highest = self.values.errors, self.tested.lowest, self.tested.highest
        if errors is None or not errors.differ:
            return metric.one_sided
        ends = [compared.one_sided if compared is not None else None for compared in (metric, lowest, highest)]
        known = [end for end in ends if end is not None]
        return (
            Interval(min(end.low for end in known), max(end.high for end in known)) if len(known) == len(ends) else None
        )

    def _claim(self, metric: MetricComparison) -> ComparisonVerdict:
        """Return the verdict by the complete cases."""
        if self.stopping is not None and self.stopping.has_decided:
            return self.stopping.verdict
        if self.stopping is None and metric.p_adjusted is not None and metric.p_adjusted < self.settings.alpha:
            return _better(metric)
        return ComparisonVerdict.EQUIVALENT if self._is_within(metric) else ComparisonVerdict.INCONCLUSIVE

    def _is_within(self, metric: MetricComparison) -> bool:
        margin, inner = self.settings.margin if metric.is_primary else None, metric.equivalence_interval
        return margin is not None and inner is not None and -margin < inner.low and inner.high < margin

    def _worst(self, metric: MetricComparison, claim: ComparisonVerdict) -> WorstCase | None:
        """Return the worst figures for a claim; without a claim, the worst for the run that seems better.

        If the runs seem equal, these are the more distant figures; None if both are equally distant.
        """
        lowest, highest = self.tested.lowest, self.tested.highest
        if lowest is None or highest is None:
            return None
        farthest = max(lowest, highest, key=lambda extreme: abs(extreme.difference or 0.0))
        if claim is ComparisonVerdict.EQUIVALENT:
            return self._worst_case(farthest, holds=self._is_within(lowest) and self._is_within(highest))
        if claim in _BETTER:
            is_larger = (claim is ComparisonVerdict.B_BETTER) is metric.higher_is_better
        elif metric.difference:
            is_larger = metric.difference > 0
        else:
            is_equal = abs(lowest.difference or 0.0) == abs(highest.difference or 0.0)
            return None if is_equal else self._worst_case(farthest, holds=False)
        shown = lowest if is_larger else highest
        return self._worst_case(shown, holds=claim in _BETTER and _better(shown) is claim and self._is_certain(shown))

    def _is_certain(self, metric: MetricComparison) -> bool:
        """Whether the figures of the worst values are significant; at any look, if a rule stops early."""
        if metric.p is None:
            return False
        if self.stopping is None:
            return self.families.adjusted_with(self.at, metric.p) < self.settings.alpha
        values = self.values.lowest if metric is self.tested.lowest else self.values.highest
        assert values is not None, "figures have values"
        width = self.values.bounds[1] - self.values.bounds[0]
        evidence = Evidence(len(values.a))
        evidence.take([min(max(difference / width, -1.0), 1.0) for difference in values.differences.tolist()])
        return evidence.p <= self.stopping.alpha

    def _worst_case(self, metric: MetricComparison, *, holds: bool) -> WorstCase | None:
        if metric.difference is None:
            return None
        return WorstCase(metric.pair_count, self._replaced(), metric.difference, metric.interval, metric.p, holds)

    def _replaced(self) -> int:
        errors = self.values.errors
        return 0 if errors is None else errors.a_case_count + errors.b_only_case_count

    def _inconclusive(self, metric: MetricComparison) -> NoVerdict:
        """Return why nothing is decided."""
        reason = self._insignificant(metric)
        is_asked = metric.is_primary and self.settings.margin is not None and self.stopping is None
        if not is_asked or metric.equivalence_interval is not None or reason.reason is Reason.NO_SCALE:
            return reason
        units = "cases" if self.values.clusters is None else "clusters"
        return replace(reason, message=f"{reason.message}; fewer than {LEAST_CASES} {units} never show equivalence")

    def _insignificant(self, metric: MetricComparison) -> NoVerdict:
        alpha = f"{self.settings.alpha:g}"
        if self.stopping is not None:
            message = f"{self.stopping.rule} decided nothing in {self.stopping.planned_case_count:,} planned cases"
            return NoVerdict(Reason.RULE_UNDECIDED, message)
        count = self.families.size(self.at)
        tests = f" after the adjustment for {count} tests" if count > 1 else ""
        if metric.is_primary and self.settings.margin is not None and not self.values.has_scale:
            message = (
                "its values have no least and greatest value, without which no margin shows that runs are equivalent"
            )
            return NoVerdict(Reason.NO_SCALE, f"the p-value is not below {alpha}{tests}, and {message}")
        is_drawn = metric.p_error is not None  # with so many units that only the number of draws bounds it
        if (
            not is_drawn
            and metric.min_attainable_p is not None
            and not self.families.can_decide(self.at, metric.min_attainable_p)
        ):
            return self._too_few_units(metric, f"can be below {alpha}{tests}")
        if metric.p is not None and metric.p < self.settings.alpha:
            return NoVerdict(Reason.NOT_SIGNIFICANT_ADJUSTED, f"the p-value is not below {alpha}{tests}")
        return NoVerdict(Reason.NOT_SIGNIFICANT, f"the p-value is not below {alpha}")

    def _too_few_units(self, metric: MetricComparison, tail: str) -> NoVerdict:
        differing = sum(map(bool, self.values.units))
        reason, units = Reason.TOO_FEW_DIFFERING, "1 case" if differing == 1 else f"{differing} cases"
        if self.values.clusters is not None:
            reason, units = Reason.TOO_FEW_CLUSTERS, f"{differing} of {metric.cluster_count} clusters"
        if not differing:
            return NoVerdict(reason, "no case came out differently")
        return NoVerdict(reason, f"{units} came out differently: with so few, no p-value {tail}")

    def _erring(self, errors: ErrorComparison, worst: WorstCase | None) -> NoVerdict:
        """Return why errors withhold the verdict by the complete cases."""
        most, other = sorted(zip((-errors.a_case_count, -errors.b_case_count), self.names, strict=True))
        count = len(self.values.a) + self.values.dropped_case_count
        message = (
            f"because of errors {most[1]} has no value on {-most[0]:,} of {count:,} cases, {other[1]} on {-other[0]:,}"
        )
        tail = "the metric has no worst value to take their place"
        if worst is not None:
            tail = "with the worst values in their place the verdict would be another one"
        return NoVerdict(Reason.AGENT_ERRORS, f"{message}; {tail}")


def _better(metric: MetricComparison) -> ComparisonVerdict:
    if not metric.difference:
        return ComparisonVerdict.INCONCLUSIVE
    is_b = (metric.difference > 0) is metric.higher_is_better
    return ComparisonVerdict.B_BETTER if is_b else ComparisonVerdict.A_BETTER


def _without(metric: MetricComparison, verdict: ComparisonVerdict, why: NoVerdict) -> MetricComparison:
    return replace(metric, verdict=verdict, reason=why.reason.value, message=why.message)
