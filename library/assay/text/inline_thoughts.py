"""Thoughts before an answer, such as `<think>…</think>`, that a service left in the text.

A service that knows a model's template returns thoughts separately; Ollama, vLLM without a reasoning parser and
gateways do not. Thoughts are recognised only at the beginning of a text, so a text may mention such a tag later.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_TAGS = (
    "think", "thinking", "thought", "thoughts", "reasoning", "reasoning_content", "scratchpad", "inner_monologue",
    "antthinking", "seed:think", "longcat_think",
)  # fmt: skip
_ENDS = {
    **{f"<{tag}>": f"</{tag}>" for tag in _TAGS},
    "[think]": "[/think]",  # Mistral
    "◁think▷": "◁/think▷",  # Kimi
    "<|start_thinking|>": "<|end_thinking|>",  # Cohere
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|channel>thought": "<channel|>",  # Gemma
    "<unused94>thought": "<unused95>",  # MedGemma
}
"""The marks around a block of thoughts, in lower case."""


def _tolerant(marks: Iterable[str]) -> str:
    """Return a pattern for marks; a tag may have spaces before its end, and an opening tag may have attributes."""
    tag_end = r"(?:\s[^<>]{0,200})?>"
    return "|".join(re.escape(mark[:-1]) + tag_end if mark.strip("</>") in _TAGS else re.escape(mark) for mark in marks)


_OPENING = re.compile(_tolerant(_ENDS), re.IGNORECASE)
_CLOSING = re.compile(_tolerant(_ENDS.values()), re.IGNORECASE)
_CLOSING_OF = {begin: re.compile(_tolerant([end]), re.IGNORECASE) for begin, end in _ENDS.items()}
_TAG_REST = re.compile(r"\s[^<>]*>$")
_TURN = re.compile(r"<\|im_start\|>assistant\s*")
_RESPONSE = re.compile(r"<\|(?:start_response|begin_of_solution)\|>", re.IGNORECASE)
_RESPONSE_END = re.compile(r"<\|(?:end_response|end_of_solution)\|>\s*\Z", re.IGNORECASE)
"""The marks of Cohere's and OpenThoughts models around the answer that follows the thoughts."""
_QUOTES = tuple("`'\"“”‘’«»")
_NO_THOUGHTS = re.compile(r"[{\[]|```|<(?!/)")
"""Beginnings of JSON, markup and code, in which a tag is content."""
_MARK = re.compile(r"[<\[◁]|assistantfinal")
"""A part of every mark of thoughts; most texts contain none."""
_MOST_CLOSINGS = 20

# gpt-oss: <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>
_CHANNEL = "<|channel|>"
_CHANNEL_NAME = re.compile(r"\s*(analysis|commentary|final)")
_CHANNEL_END = re.compile(r"<\|(?:end|return|call|start)\|>")
_BARE_CHANNELS = re.compile(r"analysis(?=\S)(.*?)assistantfinal", re.DOTALL)
"""The same without special tokens, which some servers omit."""


def split_thoughts(text: str) -> tuple[str, str]:
    """Return the thoughts at the beginning of a text, and the rest; ("", text) without thoughts.

    Several blocks are joined, and each ends as early as possible. A block without an end takes the whole text. An end
    whose beginning was part of the prompt ends thoughts too, unless the text quotes it.

    Args:
        text: What a model wrote.
    """
    if _MARK.search(text) is None:
        return "", text
    begun = text.lstrip("\ufeff\u200b\u2060\xa0 \t\r\n")
    thoughts, rest = _channels(begun.removeprefix(turn[0]) if (turn := _TURN.match(begun)) else begun)
    while (block := _block(rest)) is not None:
        thoughts.append(block[0])
        rest = block[1].lstrip()
    # The end of a nested block ends the thoughts only if no other end follows.
    is_open = not thoughts or _OPENING.search(thoughts[-1]) is not None
    if is_open and (block := _unopened_block(rest)) is not None:
        thoughts, rest = [*thoughts, block[0]], block[1].lstrip()
    if thoughts and (mark := _RESPONSE.match(rest)) is not None:
        rest = _RESPONSE_END.sub("", rest[mark.end() :])
    return ("\n".join(filter(None, map(str.strip, thoughts))), rest) if thoughts else ("", text)


def _block(text: str) -> tuple[str, str] | None:
    """Return the block at the beginning of a text and the rest; None if there is no block."""
    begins = _OPENING.match(text)
    if begins is None:
        return None
    mark = _TAG_REST.sub(">", begins[0]).lower()
    ends = _CLOSING_OF[mark].search(text, begins.end())
    if ends is None:
        return text[begins.end() :], ""
    return text[begins.end() : ends.start()], text[ends.end() :]


def _unopened_block(text: str) -> tuple[str, str] | None:
    """Return the texts before and after an end that has no beginning; None if there is no such end."""
    if _NO_THOUGHTS.match(text):
        return None
    place, is_in_code = 0, False
    first = _OPENING.search(text)
    for ends in islice(_CLOSING.finditer(text, 0, len(text) if first is None else first.start()), _MOST_CLOSINGS):
        before, after = text[: ends.start()], text[ends.end() : ends.end() + 1]
        is_in_code ^= text.count("```", place, ends.start()) % 2 == 1
        place = ends.start()
        is_quoted = before.endswith(_QUOTES) or after in _QUOTES
        # A sentence that mentions the tag has a space before it and more text in the same line.
        is_apart = not before[-1:].isspace() or before.rstrip(" \t").endswith("\n") or after in ("\n", "\r")
        if is_apart and not is_quoted and not is_in_code:
            return before, text[ends.end() :]
    return None


def _channels(text: str) -> tuple[list[str], str]:
    """Return the thoughts of a text that comes in channels, and its answer; ([], text) of any other text."""
    if (bare := _BARE_CHANNELS.match(text)) is not None:
        return [bare[1]], text[bare.end() :].lstrip()
    if not text.removeprefix("<|start|>assistant").startswith(_CHANNEL):
        return [], text
    thoughts: list[str] = []
    answers: list[str] = []
    for part in text.split(_CHANNEL)[1:]:
        name = _CHANNEL_NAME.match(part)
        if name is None:
            return [], text
        header, mark, body = part.partition("<|message|>")
        body = _CHANNEL_END.split(body if mark else header[name.end() :], maxsplit=1)[0]
        (answers if name[1] == "final" else thoughts).append(body)
    return thoughts or [""], "".join(answers).strip()
