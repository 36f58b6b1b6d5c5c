"""Text of values, differences and p-values, with as many decimals as the intervals justify."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.comparison.model import ComparisonVerdict

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
    """Number format of a metric.

    Args:
        decimals: Decimals of all values.
    """

    decimals: int

    def value(self, value: float | None) -> str:
        """Format a value; a dash for None."""
        return self._text(value, "")

    def difference(self, value: float | None) -> str:
        """Format a difference with its sign; a dash for None."""
        return self._text(value, "+")

    def _text(self, value: float | None, sign: str) -> str:
        if value is None:
            return NONE
        if abs(value) >= _LARGE:
            return f"{value:{sign}.4g}"
        return _without_sign_of_zero(f"{value:{sign},.{self.decimals}f}")

    def interval(self, interval: tuple[float, float] | None, *, signed: bool = False) -> str:
        """Format an interval in brackets; empty for None."""
        if interval is None:
            return ""
        low, high = (self.difference(end) if signed else self.value(end) for end in interval)
        return f"[{low}, {high}]"

    def estimate(self, estimate: Estimate | None) -> str:
        """Format a value with its interval."""
        if estimate is None:
            return NONE
        return f"{self.value(estimate.value)} {self.interval(estimate.interval)}".rstrip()

    def change(self, metric: MetricComparison | WorstCase) -> str:
        """Return the difference of two runs with its interval; after planned looks, the unbiased estimate."""
        estimate = getattr(metric, "median_unbiased", None)
        text = self.difference(metric.difference if estimate is None else estimate)
        return f"{text} {self.interval(metric.interval, signed=True)}".rstrip()


def _without_sign_of_zero(text: str) -> str:
    return text if any(digit in "123456789" for digit in text) else text.lstrip("+-")


def figures_of(report: ComparisonReport, metric: str) -> Figures:
    """Return the number format of a metric."""
    least = _LEAST_DECIMALS.get(report.units.get(metric, ""), 2)
    spread = min(_spreads(report.comparison, metric), default=0.0)
    if not spread:
        return Figures(least)
    return Figures(min(max(1 - math.floor(math.log10(spread) + _ROUNDING), least), _MOST_DECIMALS))


def run_value(report: ComparisonReport, metric: str, estimate: Estimate) -> str:
    """Return a metric's value over all cases of a run, with their number if the runs have values of different cases."""
    text = figures_of(report, metric).estimate(estimate)
    counts = {variant.metrics[metric].case_count for variant in report.comparison.variants}
    return text if len(counts) == 1 or estimate.value is None else f"{text}, n {estimate.case_count:,}"


def _spreads(comparison: Comparison, metric: str) -> Iterator[float]:
    """Yield the sizes that the decimals of a metric must show: half-widths of intervals, else differences or values."""
    comparisons = [pair.metric(metric) for pair in comparison.pairs]
    for metric_of_pair in comparisons:
        width = (
            metric_of_pair.interval.high - metric_of_pair.interval.low if metric_of_pair.interval is not None else 0.0
        )
        if width > _ROUNDING * abs(metric_of_pair.difference or 1.0):
            yield width / 2
        elif metric_of_pair.difference:
            yield abs(metric_of_pair.difference)
    if all(not metric_of_pair.difference for metric_of_pair in comparisons):
        values = [variant.metrics[metric].value for variant in comparison.variants]
        yield from (abs(value) / 10 for value in values if value)


def p_text(p: float | None) -> str:
    """Format a p-value; a dash for None."""
    if p is None:
        return NONE
    if p < _SMALLEST_P:
        return f"<{_SMALLEST_P:g}"
    return f"{p:.2f}" if p >= 0.0995 else f"{p:.4f}"


def p_phrase(p: float | None) -> str:
    """Return a p-value for a sentence, such as "p 0.0386" or "p < 0.0001"."""
    return "p " + p_text(p).replace("<", "< ")


def tested_text(metric: MetricComparison, alpha: float) -> str:
    """Return the p-value of a metric for a sentence: the raw one, and the adjusted one if it differs."""
    raw = "p " + raw_p_text(metric, alpha).replace("<", "< ")
    if metric.p_adjusted is None or metric.p_adjusted == metric.p:
        return raw
    return f"{raw}, adjusted {p_text(metric.p_adjusted)}"


def raw_p_text(metric: MetricComparison, alpha: float) -> str:
    """Return the raw p-value of a metric, with its simulation error if another seed might lead to another verdict."""
    if metric.p is None or not metric.p_error:
        return p_text(metric.p)
    decisive = metric.p if metric.p_adjusted is None else metric.p_adjusted
    is_near = abs(decisive - alpha) * metric.p < _NEAR_ERRORS * metric.p_error * decisive
    return f"{metric.p:.4f} ± {metric.p_error:.4f}" if is_near else p_text(metric.p)


def level_text(alpha: float) -> str:
    """Return the level of intervals, such as "95%"."""
    return f"{100 * (1 - alpha):.4g}%"


def metric_text(report: ComparisonReport, metric: str) -> str:
    """Return the name of a metric, untrusted, with its unit if the name does not contain it."""
    unit = report.units.get(metric, "")
    return f"{metric} ({unit})" if unit in _SHOWN_UNITS else metric


def verdict_text(metric: MetricComparison, a: str, b: str) -> str:
    """Return the verdict of a metric's test in two words.

    Args:
        metric: The metric.
        a: What the first run is called.
        b: What the second is called.
    """
    return {
        ComparisonVerdict.A_BETTER: f"{a} better",
        ComparisonVerdict.B_BETTER: f"{b} better",
        ComparisonVerdict.EQUIVALENT: "equivalent",
        ComparisonVerdict.INCONCLUSIVE: "inconclusive",
        ComparisonVerdict.NO_DATA: "no data",
        ComparisonVerdict.WITHHELD: "no verdict",
    }[metric.verdict]
