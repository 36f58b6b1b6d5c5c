"""The maximum cost of a call of a provider's model, and its actual cost."""

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
"""More than a protocol adds to a request."""


def most_of(conversation: Conversation, options: PromptOptions, price: ModelPrice | None) -> Amount:
    """Return the most that a call can use: no token is shorter than a byte, and all may be written to the cache.

    Args:
        conversation: The messages to send.
        options: The options of the call.
        price: The price of the model; None if unknown, so that only tokens are counted.
    """
    sent = [
        conversation.system,
        [[message.role, message.content] for message in conversation.messages],
        dict(options.extra),
    ]
    read = len(json.dumps(sent, ensure_ascii=False).encode()) + _FRAME_TOKENS
    written = options.max_tokens
    if price is None:
        return Amount(tokens=read + written)
    cached = read if price.cache_write > 1 else 0
    return Amount(math.ceil(price.dollars(read, written, cache_write=cached) * NANO), read + written)


def cost_of_reply(reply: Reply, price: ModelPrice | None, most: Amount) -> Amount:
    """Return the usage of a call; if the service does not report it, the reserved amount."""
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
