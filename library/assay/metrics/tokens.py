"""Tokens: the tokens that the agent used for a question, input and output together.

    tokens = total_tokens, or input_tokens + output_tokens where both are known

Cached and reasoning tokens are parts of input and output and are not added again. An answer without usage is
skipped, and so is one of 0 tokens: that means not counted, not free. More than 10^12 are an error. An agent error
counts where its usage is known. The aggregate is the mean; the detail has the sums. A threshold is the most tokens
with which a row passes, and the most that the mean may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.combined_score import tokens_used
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.metrics.core.uncounted_tokens import why_uncounted
from assay.model.answers.possible_usage import counted_parts, possible_tokens
from assay.model.run import Score

if TYPE_CHECKING:
    from assay.metrics.core.score import Row
    from assay.model.run import RowResult

INFO = MetricInfo(
    "tokens",
    "Tokens",
    "Tokens that the agent used for a question.",
    (Parameter("threshold", "number", None, "Most tokens of a row, and of the run's mean.", 0.0),),
    reads=("tokens",),
    values="above 0",
    rule="at_most",
    unit="tokens",
    stats=(
        "avg_num_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
    ),
)
_BUCKETS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


class _Fold(MeanFold):
    def __init__(self, metric: ThresholdMetric) -> None:
        super().__init__(metric)
        self._sums: dict[str, int] = {}
        self._total = 0

    def add(self, row: RowResult, score: Score) -> None:
        super().add(row, score)
        if score.value is None:
            return
        self._total += int(score.value)
        for name in _BUCKETS:
            if name in score.detail:
                self._sums[name] = self._sums.get(name, 0) + int(score.detail[name])

    def detail(self, value: float | None) -> dict[str, Any]:
        return {
            "avg_num_tokens": value,
            "total_tokens": self._total if self.values.count else None,
            **{name: self._sums.get(name) for name in _BUCKETS},
        }


class Tokens(ThresholdMetric):
    """Parameters: `threshold` (on each row and on the mean)."""

    info = INFO
    fold_class = _Fold

    def score(self, row: Row) -> Score:
        """Return the row's tokens."""
        usage = row.response.usage
        total = tokens_used(usage)
        if usage is None or total is None:
            return self._skipped("no_tokens", message=why_uncounted(row.response))
        input_tokens, output_tokens = counted_parts(usage)
        counts = {name: getattr(usage, name) for name in _BUCKETS} | {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
        }
        known = {name: count for name, count in counts.items() if count is not None}
        detail = {"version": self.version, **known}
        if possible_tokens(total) is None:
            return self._not_computed("invalid_tokens", detail)
        return self._scored_by_threshold(total, detail)
