"""What an answer can have used: a number beyond that was not measured, and counts in no sum, quota or figure.

The answer keeps what was reported. Metrics name it an error, as they do with a time below 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.answers.response_limits import MAX_TOKENS

if TYPE_CHECKING:
    from assay.model.answers.agent_response import Usage

MAX_COST_USD = 1_000_000.0
"""The most that one answer costs, in US dollars."""


def possible_tokens(count: int | None) -> int | None:
    """Return a number of tokens; None where no answer can have as many."""
    return count if count is not None and 0 <= count <= MAX_TOKENS else None


def possible_cost(cost_usd: float | None) -> float | None:
    """Return a cost in US dollars; None where no answer can cost that: it is negative, too large or no number."""
    return cost_usd if cost_usd is not None and 0 <= cost_usd <= MAX_COST_USD else None


def counted_parts(usage: Usage | None) -> tuple[int | None, int | None]:
    """Return the input and output tokens of an answer; None for both where both are 0: the service did not count.

    A service that counts nothing reports 0, and no answer of a model takes no tokens.
    """
    if usage is None or not (usage.input_tokens or usage.output_tokens):
        return None, None
    return usage.input_tokens, usage.output_tokens


def counted_tokens(usage: Usage) -> int:
    """Return the tokens of an answer that count as used: its total, or else what is known of input and output."""
    total = possible_tokens(usage.total_tokens)
    if total is not None:
        return total
    return (possible_tokens(usage.input_tokens) or 0) + (possible_tokens(usage.output_tokens) or 0)
