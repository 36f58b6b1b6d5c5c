"""Cost: the cost of the agent's answer in US dollars.

    cost = cost_usd as the agent reported it, else
           (plain · p_in + cache_read · p_in · r + cache_write · p_in · w + output · p_out) / 10^6

Prices are per million tokens. Cached tokens are part of input_tokens, so plain = input_tokens - cache_read -
cache_write. Without a reported cost and without prices or tokens the row is skipped, never 0: usage of 0 input and
0 output tokens was not counted. A cost that is
negative or above a million dollars is an error. An agent error costs what it reports. The aggregate is the mean;
the detail has the sum. A threshold is the most that a row may cost, and that the mean may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.metrics.core.uncounted_tokens import why_uncounted
from assay.model.answers.possible_usage import counted_parts, possible_cost
from assay.model.model_price import ModelPrice
from assay.model.run import Score

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.answers.agent_response import Usage

INFO = MetricInfo(
    "cost",
    "Cost",
    "What the agent's answer cost, in US dollars.",
    (
        Parameter("input_price", "number", None, "US dollars per million input tokens.", 0.0),
        Parameter("output_price", "number", None, "US dollars per million output tokens.", 0.0),
        Parameter("cache_read_ratio", "number", 0.1, "Price of a token read from a cache, by the input price.", 0.0),
        Parameter("cache_write_ratio", "number", 1.25, "Price of a token written to a cache, likewise.", 0.0),
        Parameter("threshold", "number", None, "Most that a row may cost, and the run's mean.", 0.0),
    ),
    reads=("tokens",),
    values="from 0, in US dollars",
    rule="at_most",
    unit="USD",
    example={"input_price": 1.0, "output_price": 5.0},
    stats=("total_usd",),
)


_MISPLACED = "the answer has cost_usd beside usage, and it is read as usage.cost_usd"


def cost_usd(
    usage: Usage,
    input_price: float,
    output_price: float,
    *,
    cache_read_ratio: float = 0.1,
    cache_write_ratio: float = 1.25,
) -> float | None:
    """Return the cost of an answer in US dollars; None if its tokens are unknown or contradictory.

    Args:
        usage: Tokens; the cached ones are part of the input.
        input_price: Per million tokens.
        output_price: Per million tokens.
        cache_read_ratio: Price of a token read from a cache, by the input price.
        cache_write_ratio: Price of a token written to one, by the input price.
    """
    input_tokens, output_tokens = counted_parts(usage)
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    if input_tokens is None or output_tokens is None or input_tokens < read + written:
        return None
    price = ModelPrice(input_price, output_price, cache_read_ratio, cache_write_ratio)
    return float(price.dollars(input_tokens, output_tokens, cache_read=read, cache_write=written))


class _Fold(MeanFold):
    def detail(self, value: float | None) -> dict[str, Any]:
        return {"total_usd": self.values.total if self.values.count else None}


class Cost(ThresholdMetric):
    """Parameters: the prices and ratios, `threshold` (on each row and on the mean)."""

    info = INFO
    fold_class = _Fold

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._input_price: float | None = parameters["input_price"]
        self._output_price: float | None = parameters["output_price"]
        self._ratios = {ratio: parameters[ratio] for ratio in ("cache_read_ratio", "cache_write_ratio")}

    def score(self, row: Row) -> Score:
        """Return the row's cost."""
        usage = row.response.usage
        if usage is None:
            return self._without_cost("no_tokens", row)
        value, source = usage.cost_usd, "reported"
        if value == 0 and usage.input_tokens == usage.output_tokens == 0:
            return self._without_cost("no_tokens", row)  # counted nothing, so it cost nothing that is known
        if value is None:
            if self._input_price is None or self._output_price is None:
                return self._without_cost("no_price", row)
            value, source = cost_usd(usage, self._input_price, self._output_price, **self._ratios), "prices"
        if value is None:
            return self._without_cost("no_tokens", row)
        detail: dict[str, Any] = {"version": self.version, "source": source}
        if possible_cost(value) is None:
            return self._not_computed("invalid_cost", detail)
        return self._scored_by_threshold(value, detail)

    def _without_cost(self, reason: str, row: Row) -> Score:
        """Return the score of a row without a cost; its message mentions a reported cost that is not read."""
        message = why_uncounted(row.response, parts=True) if reason == "no_tokens" else ""
        if "cost_usd" in row.response.metadata:
            message = f"{reason.replace('_', ' ')}: {_MISPLACED}"
        return self._skipped(reason, message=message)
