"""What a call counted: what the service says where that can be true, else an estimate of our own.

A service may leave its usage out, or say what cannot be: negative numbers, texts, 0 for a request that was read, 1 for
one of 4 KB, 2⁶⁴ − 1 after an underflow. A spend cap rests on these numbers, so the estimate is on the safe side:

    input  = ⌈bytes of the request / 2⌉ + 500      tokens of two bytes, and what the protocol puts around them
    output = max_tokens                            thoughts that the reply does not show are paid for too

It is never more than what was set aside for the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay_judge.model import Tokens

if TYPE_CHECKING:
    from assay.providers.messages import Reply
    from assay_judge.model import Prompt

_FRAME_TOKENS = 2_000
"""More than what a protocol puts around a request: roles, and the verdict's schema."""
_LIKELY_FRAME_TOKENS = 500
_BYTES_PER_TOKEN = 2
_RANDOM_BYTES = 32
_SECOND_TURN_BYTES = 500
_MOST_REQUEST_CHARS, _MOST_REPLY_CHARS = 20, 8
"""More characters than these per token, in a request with its long rubric and in a short reply, no tokenizer reads."""
_MOST_WRITTEN = 200_000
"""More than any model writes for one reply with its thoughts, which some services do not count in max_tokens."""
_SLACK = 4
"""How many times the most that we expect is accepted: services may add instructions of their own."""


def usable_tokens(reply: Reply, prompt: Prompt, max_tokens: int) -> Tokens:
    """Return what a call counted.

    Args:
        reply: With the usage that the service reports, if it reports any.
        prompt: What it was sent.
        max_tokens: Most tokens of the reply.
    """
    said = reply.tokens
    if said is not None and said.input is not None and said.output is not None:
        tokens = Tokens(said.input, said.output, said.cache_read or 0, said.cache_write or 0, said.reasoning or 0)
        if _is_possible(tokens, prompt, max_tokens) and not _is_too_few(tokens, prompt, reply.text):
            return tokens
    read = -(-_size(prompt) // _BYTES_PER_TOKEN) + _LIKELY_FRAME_TOKENS
    return Tokens(read, max_tokens, estimated=True)


def most_input(prompt: Prompt) -> int:
    """Return the most tokens that a request can have: none is shorter than a byte."""
    return _size(prompt) + _FRAME_TOKENS


def most_input_like(answered: Tokens, prompt: Prompt) -> int:
    """Return the most tokens that a lost request can have, of which another attempt was answered.

    Attempts differ in the random numbers of their markers and ids, of 32 bytes each, and in the sentence of a second
    turn.

    Args:
        answered: What the other attempt counted.
        prompt: What the other attempt was sent.
    """
    random_numbers = prompt.user.count("<<") + 2  # the material itself holds no such brackets
    return min(most_input(prompt), answered.input + _RANDOM_BYTES * random_numbers + _SECOND_TURN_BYTES)


def _is_possible(said: Tokens, prompt: Prompt, max_tokens: int) -> bool:
    most_written = max(_SLACK * max_tokens, _MOST_WRITTEN)
    return 0 < said.input <= _SLACK * most_input(prompt) and 0 < said.output <= most_written


def _is_too_few(said: Tokens, prompt: Prompt, text: str) -> bool:
    chars = sum(map(len, (prompt.system, prompt.call, prompt.user)))
    return said.input < chars // _MOST_REQUEST_CHARS or said.output < len(text) // _MOST_REPLY_CHARS


def _size(prompt: Prompt) -> int:
    return sum(len(part.encode()) for part in (prompt.system, prompt.call, prompt.user))
