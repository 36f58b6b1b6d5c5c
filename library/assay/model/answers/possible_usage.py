"""Bounds on the usage of an answer; a number beyond them is not a measurement and enters no sum, quota or figure.

The answer keeps the reported number. Metrics report it as an error, like a negative time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.answers.response_limits import MAX_TOKENS

if TYPE_CHECKING:
    from assay.model.answers.agent_response import Usage

MAX_COST_USD = 1_000_000.0
"""The highest possible cost of an answer, in US dollars."""


def possible_tokens(count: int | None) -> int | None:
    """Return a token count; None if it exceeds what an answer can use."""
    return count if count is not None and 0 <= count <= MAX_TOKENS else None


def possible_cost(cost_usd: float | None) -> float | None:
    """Return a cost in US dollars; None if it is negative, too large or not a number."""
    return cost_usd if cost_usd is not None and 0 <= cost_usd <= MAX_COST_USD else None


def counted_parts(usage: Usage | None) -> tuple[int | None, int | None]:
    """Return the input and output tokens of an answer; None for both if both are 0.

    A service that does not count reports 0; no model's answer takes zero tokens.
    """
    if usage is None or not (usage.input_tokens or usage.output_tokens):
        return None, None
    return usage.input_tokens, usage.output_tokens


def counted_tokens(usage: Usage) -> int:
    """Return the tokens that an answer used: its total, or else the known input and output."""
    total = possible_tokens(usage.total_tokens)
    if total is not None:
        return total
    return (possible_tokens(usage.input_tokens) or 0) + (possible_tokens(usage.output_tokens) or 0)
