"""The tokens of a call: the service's usage if it is plausible, or else an estimate.

A service may omit its usage or report impossible numbers: negative ones, texts, 0 for a request that was read, 1 for a
request of 4 KB, 2⁶⁴ − 1 after an underflow. A spend cap depends on these numbers, so the estimate is on the safe side:

    input  = ⌈bytes of the request / 2⌉ + 500      tokens of two bytes, and the protocol's frame
    output = max_tokens                            hidden thoughts are paid for too

The estimate never exceeds the reservation of the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay_judge.model import Tokens

if TYPE_CHECKING:
    from assay.providers.messages import Reply
    from assay_judge.model import Prompt

_FRAME_TOKENS = 2_000
"""An upper bound of the protocol's frame around a request: roles, and the verdict's schema."""
_LIKELY_FRAME_TOKENS = 500
_BYTES_PER_TOKEN = 2
_RANDOM_BYTES = 32
_SECOND_TURN_BYTES = 500
_MOST_REQUEST_CHARS, _MOST_REPLY_CHARS = 20, 8
"""No tokenizer reads more characters per token, in a request with its long rubric or in a short reply."""
_MOST_WRITTEN = 200_000
"""More than any model writes per reply, including thoughts, which some services do not count in max_tokens."""
_SLACK = 4
"""The factor by which usage may exceed our maximum: services may add instructions of their own."""


def usable_tokens(reply: Reply, prompt: Prompt, max_tokens: int) -> Tokens:
    """Return the tokens of a call.

    Args:
        reply: The reply, with the usage that the service reports.
        prompt: The prompt of the call.
        max_tokens: Most tokens of the reply.
    """
    usage = reply.tokens
    if usage is not None and usage.input is not None and usage.output is not None:
        tokens = Tokens(usage.input, usage.output, usage.cache_read or 0, usage.cache_write or 0, usage.reasoning or 0)
        if _is_possible(tokens, prompt, max_tokens) and not _is_too_few(tokens, prompt, reply.text):
            return tokens
    read = -(-_size(prompt) // _BYTES_PER_TOKEN) + _LIKELY_FRAME_TOKENS
    return Tokens(read, max_tokens, estimated=True)


def most_input(prompt: Prompt) -> int:
    """Return the most tokens that a request can have, as no token is shorter than a byte."""
    return _size(prompt) + _FRAME_TOKENS


def most_input_like(answered: Tokens, prompt: Prompt) -> int:
    """Return the most tokens that a lost request can have, given the answer to another attempt.

    Attempts differ only in the random numbers of their markers and ids, of 32 bytes each, and in the sentence of a
    second turn.

    Args:
        answered: The tokens of the other attempt.
        prompt: The prompt of the other attempt.
    """
    random_numbers = prompt.user.count("<<") + 2  # escaped material contains no such brackets
    return min(most_input(prompt), answered.input + _RANDOM_BYTES * random_numbers + _SECOND_TURN_BYTES)


def _is_possible(tokens: Tokens, prompt: Prompt, max_tokens: int) -> bool:
    most_written = max(_SLACK * max_tokens, _MOST_WRITTEN)
    return 0 < tokens.input <= _SLACK * most_input(prompt) and 0 < tokens.output <= most_written


def _is_too_few(tokens: Tokens, prompt: Prompt, text: str) -> bool:
    chars = sum(map(len, (prompt.system, prompt.call, prompt.user)))
    return tokens.input < chars // _MOST_REQUEST_CHARS or tokens.output < len(text) // _MOST_REPLY_CHARS


def _size(prompt: Prompt) -> int:
    return sum(len(part.encode()) for part in (prompt.system, prompt.call, prompt.user))
