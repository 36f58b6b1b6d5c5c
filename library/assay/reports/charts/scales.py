"""Axes: positions of values, ticks at round values, and formatted values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.reports.words.metric_text import seconds_text, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORT_S = 0.1


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear axis.

    Args:
        low: Value at the start.
        high: Value at the end, above low.
        start: Position of low on the sheet.
        end: Position of high.
    """

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value, clamped to the ends."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, most: int) -> Sequence[float]:
    """Return at most `most` equidistant round values from low to high."""
    step = round_up((high - low) / max(most - 1, 1))
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def round_up(value: float) -> float:
    """Round a value above 0 up to 1, 2, 2.5, 5 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next((factor * power for factor in (1, 2, 2.5, 5) if value <= factor * power * (1 + 1e-9)), 10 * power)


def axis_end(value: float) -> float:
    """Return a round end for an axis from 0: a value above 0, or slightly more."""
    step = round_up(value / 5)
    return math.ceil(value / step - 1e-9) * step


@dataclass(frozen=True, slots=True)
class Numbers:
    """Number format of a metric in a chart.

    Args:
        unit: Unit of the metric.
        greatest: Largest shown value; short times are formatted in milliseconds.
    """

    unit: str
    greatest: float

    def text(self, value: float | None) -> str:
        """Format a value as in reports, but short times in milliseconds unless the value is far above the others."""
        if value is not None and self.unit == "s" and self.greatest < _SHORT_S and abs(value) < 1:
            return f"{value * 1000:.2f} ms"
        if value is not None and self.unit == "" and abs(value) >= 1e6:
            return f"{value:.4g}"
        return value_text(self.unit, value)

    def tick(self, value: float) -> str:
        """Return a round value without further digits."""
        if self.unit == "%":
            return f"{value * 100:.4g}%"
        if self.unit == "s":
            return f"{value * 1000:.4g} ms" if self.greatest < _SHORT_S else f"{value:.4g} s"
        if 1e6 <= abs(value) < 1e9:
            return f"{value / 1e6:.4g}M"
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"


def time_text(value_s: float | None, greatest_s: float) -> str:
    """Format a time in seconds, or in milliseconds if the longest time of the chart is short; a dash for None."""
    return seconds_text(None) if value_s is None else Numbers("s", greatest_s).text(value_s)
