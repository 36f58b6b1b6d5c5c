"""Values, differences and p-values of a comparison as text, each metric with as many decimals as its interval bears."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.comparison.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.comparison.model import Comparison, Estimate, MetricComparison, WorstCase
    from assay.reports.comparison.document.comparison_report import ComparisonReport

_MOST_DECIMALS = 8
_LARGE = 1e15  # values from here on have four digits
_LEAST_DECIMALS = {"tokens": 0}
_SHOWN_UNITS = frozenset({"s", "USD"})
_SMALLEST_P = 0.0001
_NEAR_ERRORS = 5
"""Within so many of its standard errors of the level, a p-value is shown with the error."""
_ROUNDING = 1e-6
"""Intervals narrower than this share of the difference are those of equal differences."""
NONE = "–"


@dataclass(frozen=True, slots=True)
class Figures:
    """How the values of one metric are written.

    Args:
        decimals: Of all its values.
    """

    decimals: int

    def value(self, value: float | None) -> str:
        """Return a value; a dash where there is none."""
        return self._text(value, "")

    def difference(self, value: float | None) -> str:
        """Return a difference with its sign; a dash where there is none."""
        return self._text(value, "+")

    def _text(self, value: float | None, sign: str) -> str:
        if value is None:
            return NONE
        if abs(value) >= _LARGE:
            return f"{value:{sign}.4g}"
        return _without_sign_of_zero(f"{value:{sign},.{self.decimals}f}")

    def interval(self, interval: tuple[float, float] | None, *, signed: bool = False) -> str:
        """Return an interval in brackets; the empty text where there is none."""
        if interval is None:
            return ""
        low, high = (self.difference(end) if signed else self.value(end) for end in interval)
        return f"[{low}, {high}]"

    def estimate(self, estimate: Estimate | None) -> str:
        """Return a value with its interval."""
        if estimate is None:
            return NONE
        return f"{self.value(estimate.value)} {self.interval(estimate.interval)}".rstrip()

    def change(self, one: MetricComparison | WorstCase) -> str:
        """Return the difference of two runs with its interval; after planned looks, what they estimate."""
        estimate = getattr(one, "median_unbiased", None)
        said = self.difference(one.difference if estimate is None else estimate)
        return f"{said} {self.interval(one.interval, signed=True)}".rstrip()


def _without_sign_of_zero(text: str) -> str:
    return text if any(digit in "123456789" for digit in text) else text.lstrip("+-")


def figures_of(report: ComparisonReport, metric: str) -> Figures:
    """Return how the values of a metric are written."""
    least = _LEAST_DECIMALS.get(report.units.get(metric, ""), 2)
    spread = min(_spreads(report.comparison, metric), default=0.0)
    if not spread:
        return Figures(least)
    return Figures(min(max(1 - math.floor(math.log10(spread) + _ROUNDING), least), _MOST_DECIMALS))


def run_value(report: ComparisonReport, metric: str, estimate: Estimate) -> str:
    """Return the value of a metric over all cases of a run, with their number where runs have values of other ones."""
    text = figures_of(report, metric).estimate(estimate)
    counts = {one.metrics[metric].n for one in report.comparison.variants}
    return text if len(counts) == 1 or estimate.value is None else f"{text}, n {estimate.n:,}"


def _spreads(comparison: Comparison, metric: str) -> Iterator[float]:
    """Yield what the decimals of a metric have to show: half the width of intervals, else differences or values."""
    found = [pair.metric(metric) for pair in comparison.pairs]
    for one in found:
        width = one.interval[1] - one.interval[0] if one.interval is not None else 0.0
        if width > _ROUNDING * abs(one.difference or 1.0):
            yield width / 2
        elif one.difference:
            yield abs(one.difference)
    if all(not one.difference for one in found):
        values = [each.metrics[metric].value for each in comparison.variants]
        yield from (abs(value) / 10 for value in values if value)


def p_text(p: float | None) -> str:
    """Return a p-value; a dash where there is none."""
    if p is None:
        return NONE
    if p < _SMALLEST_P:
        return f"<{_SMALLEST_P:g}"
    return f"{p:.2f}" if p >= 0.0995 else f"{p:.4f}"


def p_phrase(p: float | None) -> str:
    """Return a p-value for a sentence, such as "p 0.0386" or "p < 0.0001"."""
    return "p " + p_text(p).replace("<", "< ")


def tested_text(one: MetricComparison, alpha: float) -> str:
    """Return the p-value of a metric for a sentence: the raw one, and the adjusted one where that differs."""
    raw = "p " + raw_p_text(one, alpha).replace("<", "< ")
    if one.p_adjusted is None or one.p_adjusted == one.p:
        return raw
    return f"{raw}, adjusted {p_text(one.p_adjusted)}"


def raw_p_text(one: MetricComparison, alpha: float) -> str:
    """Return the raw p-value of a metric, with its simulation error where another seed might decide otherwise."""
    if one.p is None or not one.p_error:
        return p_text(one.p)
    decisive = one.p if one.p_adjusted is None else one.p_adjusted
    is_near = abs(decisive - alpha) * one.p < _NEAR_ERRORS * one.p_error * decisive
    return f"{one.p:.4f} ± {one.p_error:.4f}" if is_near else p_text(one.p)


def level_text(alpha: float) -> str:
    """Return the level of intervals, such as "95%"."""
    return f"{100 * (1 - alpha):.4g}%"


def metric_text(report: ComparisonReport, metric: str) -> str:
    """Return the name of a metric, untrusted, with its unit where the name does not say it."""
    unit = report.units.get(metric, "")
    return f"{metric} ({unit})" if unit in _SHOWN_UNITS else metric


def verdict_text(one: MetricComparison, a: str, b: str) -> str:
    """Return what the test of a metric says, in two words.

    Args:
        one: The metric.
        a: What the first run is called.
        b: What the second is called.
    """
    return {
        Verdict.A_BETTER: f"{a} better",
        Verdict.B_BETTER: f"{b} better",
        Verdict.EQUIVALENT: "equivalent",
        Verdict.INCONCLUSIVE: "inconclusive",
        Verdict.NO_DATA: "no data",
        Verdict.WITHHELD: "no verdict",
    }[one.verdict]
