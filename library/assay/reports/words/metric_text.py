"""Text of metric values and reasons."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.metrics import METRICS
from assay.metrics.core.explanations import reason_sentence, score_message
from assay.model.run import ScoreStatus
from assay.statistics.thresholds import TOLERANCE
from assay.text.unsafe_text import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.model.run import MetricSummary, RowResult, RunSpec, Score

_SMALL, _LARGE = 0.00005, 1e9  # values between have four decimals
RULES = {"at_least": "≥", "more_than": ">", "at_most": "≤"}
_MOST_REASONS = 3  # of a metric that was not computed; the rows hold all
_MOST_KEPT = 100
_MOST_REASON_CHARS = 300


def units_of(settings: RunSpec) -> dict[str, str]:
    """Return the unit of each metric of a run, by name."""
    return {metric.name: METRICS[metric.kind].info.unit for metric in settings.metrics}


def value_text(unit: str, value: float | None) -> str:
    """Format a metric's value in its unit; a dash for None."""
    if value is None:
        return "-"
    match unit:
        case "%":
            return f"{value:.1%}"
        case "s":
            return seconds_text(value)
        case "tokens":
            return f"{value:,.0f}"
        case "USD":
            return f"{value:.4g}"
    return number_text(value)


def number_text(value: float) -> str:
    """Format a value without a unit: four decimals, or four significant digits for very small and very large values."""
    size = abs(value)
    if size >= _LARGE or TOLERANCE < size < _SMALL:
        return f"{value:.4g}"
    return f"{value:.4f}"


def bound_text(unit: str, bound: float) -> str:
    """Format a threshold or goal in its metric's unit, with all its digits."""
    share = unit == "%"
    return f"{bound * 100 if share else bound:.10g}{'%' if share else ' s' if unit == 's' else ''}"


def threshold_text(result: Mapping[str, Any]) -> str:
    """Return the threshold of a metric in a report's head, and whether it is met; empty without one."""
    if result["threshold"] is None:
        return ""
    without = "not computed" if result["value"] is None else "no verdict"
    met = {True: "reached", False: "missed", None: without}[result["meets_threshold"]]
    return f"{RULES[result['rule']]} {bound_text(result.get('unit', ''), result['threshold'])} {met}"


def seconds_text(value: float | None) -> str:
    """Format a time in seconds; a dash for None."""
    return "-" if value is None else f"{value:.2f} s"


def latency_s(latency: Mapping[str, Any], figure: str) -> float | None:
    """Return a figure of the latency in a report's head, such as "p95", in seconds; None without one."""
    value: float | None = latency[f"{figure}_ms"]
    return None if value is None else value / 1000


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun, e.g. "1 row" or "1,200 rows"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def partial_text(finished: int, total: int) -> str:
    """Return the note at the top of every report of an unfinished run."""
    return f"PARTIAL: {finished:,} of {count_text(total, 'row')}"


def reason_text(score: Score) -> str:
    """Return why a score has no value, untrusted: its message, or its reason in words."""
    is_said = score.status is not ScoreStatus.ERROR or "function" in score.detail
    return score_message(score) if is_said else reason_sentence(score.reason)


_TOLD_ELSEWHERE = ("agent_error", "aggregate_only")
"""Reasons that are not counted: others report them, or, for consistency, the repeats of a case share one value."""


class Uncomputed:
    """Counts the reasons why metrics have no value on rows."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, ScoreStatus], Counter[str]] = {}
        self.partial: dict[str, int] = {}
        """By metric, the number of rows without a value that were read, if these are not all of them."""

    def take(self, row: RowResult, *, only: str | None = None) -> None:
        """Add a row; with `only`, just the score of that metric."""
        for score in row.scores:
            if only not in (None, score.metric):
                continue
            if score.value is None and score.reason and score.reason not in _TOLD_ELSEWHERE:
                reasons = self._reasons.setdefault((score.metric, score.status), Counter())
                reason = reason_text(score)[:_MOST_REASON_CHARS]
                # A function may raise a different text on every row, and memory must not grow with them.
                is_kept = reason in reasons or len(reasons) < _MOST_KEPT
                reasons[reason if is_kept else reason_sentence(score.reason)] += 1

    def lines(self, metrics: Iterable[MetricSummary]) -> list[str]:
        """Return for each metric the numbers of rows on which it was skipped or failed, by reason."""
        lines = []
        for metric in metrics:
            rows = metric.scored_count + metric.skipped_count + metric.error_count
            for label, status in (("skipped", ScoreStatus.SKIPPED), ("errors", ScoreStatus.ERROR)):
                if reasons := self._reasons.get((metric.metric, status)):
                    taken = self.partial.get(metric.metric)
                    uncomputed = reasons.total()
                    if taken is not None:
                        uncomputed = metric.skipped_count if status is ScoreStatus.SKIPPED else metric.error_count
                    of_first = "" if taken is None else f" (of the first {taken:,} without a value)"
                    lines.append(
                        f"{label}  {clean(metric.metric)} on {uncomputed:,} of {count_text(rows, 'row')}: "
                        f"{_listed(reasons)}{of_first}"
                    )
        return lines


def _listed(reasons: Counter[str]) -> str:
    shown = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]  # rows come in any order
    if len(reasons) == 1:
        return shorten(shown[0][0], None)
    more = f", and {len(reasons) - len(shown)} more reasons" if len(reasons) > len(shown) else ""
    return ", ".join(f"{shorten(reason, None)} ({count:,})" for reason, count in shown) + more
