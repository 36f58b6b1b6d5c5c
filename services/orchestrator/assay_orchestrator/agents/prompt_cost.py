"""What a call of a provider's model may cost at most, and what it has cost."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from assay.identity.quotas import NANO, nano_from_usd
from assay.providers.prices import cost_of
from assay_orchestrator.store.teams.allotments import Amount

if TYPE_CHECKING:
    from assay.model.model_price import ModelPrice
    from assay.providers.messages import Reply
    from assay.specs.prompt_options import PromptOptions
    from assay_orchestrator.agents.prompt_template import Conversation

_FRAME_TOKENS = 2_000
"""More than what a protocol puts around a request."""


def most_of(conversation: Conversation, options: PromptOptions, price: ModelPrice | None) -> Amount:
    """Return the most that a call can take: no token is shorter than a byte, all may be written to the cache.

    Args:
        conversation: What is sent.
        options: How it is sent.
        price: What the model costs; None where that is not known, so that the call takes tokens alone.
    """
    sent = [conversation.system, [[each.role, each.content] for each in conversation.messages], dict(options.extra)]
    read = len(json.dumps(sent, ensure_ascii=False).encode()) + _FRAME_TOKENS
    written = options.max_tokens
    if price is None:
        return Amount(tokens=read + written)
    cached = read if price.cache_write > 1 else 0
    return Amount(math.ceil(price.dollars(read, written, cache_write=cached) * NANO), read + written)


def cost_of_reply(reply: Reply, price: ModelPrice | None, most: Amount) -> Amount:
    """Return what a call took; as much as was set aside for it where the service does not say it."""
    tokens = reply.tokens
    if tokens is None:
        return most
    total = tokens.total
    if not total:
        if tokens.input is None or tokens.output is None or not (tokens.input or tokens.output):
            return most
        total = tokens.input + tokens.output
    if price is None:
        return Amount(tokens=total)
    dollars = cost_of(price, tokens)
    return Amount(most.nano_usd if dollars is None else nano_from_usd(dollars), total)
