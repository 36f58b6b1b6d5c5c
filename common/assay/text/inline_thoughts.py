"""Thoughts that a model writes before its answer, such as `<think>…</think>`, where the service left them in the text.

A service that knows a model's template returns thoughts apart; Ollama, vLLM without a reasoning parser and gateways do
not. Thoughts are recognised at the beginning of a text alone: a text that mentions such a tag later keeps it.
"""

from __future__ import annotations

import re
from itertools import islice

_ENDS = {
    **{f"<{tag}>": f"</{tag}>" for tag in ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")},
    "[think]": "[/think]",  # Mistral
    "◁think▷": "◁/think▷",  # Kimi
    "<|start_thinking|>": "<|end_thinking|>",  # Cohere
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|channel>thought": "<channel|>",  # Gemma
}
"""How a block of thoughts begins and ends, in lower case."""
_OPENING = re.compile("|".join(map(re.escape, _ENDS)), re.IGNORECASE)
_CLOSING = re.compile("|".join(map(re.escape, _ENDS.values())), re.IGNORECASE)
_QUOTES = tuple("`'\"“”‘’«»")
_NO_THOUGHTS = re.compile(r"[{\[]|```|<(?!/)")
"""Beginnings of JSON, markup and code: a tag in them is a part of it."""
_MOST_CLOSINGS = 20

# gpt-oss: <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>
_CHANNEL = "<|channel|>"
_CHANNEL_NAME = re.compile(r"\s*(analysis|commentary|final)")
_CHANNEL_END = re.compile(r"<\|(?:end|return|call|start)\|>")
_BARE_CHANNELS = re.compile(r"analysis(?=\S)(.*?)assistantfinal", re.DOTALL)
"""The same where the special tokens were left out of the text."""


def split_thoughts(text: str) -> tuple[str, str]:
    """Return the thoughts at the beginning of a text, and the rest; ("", text) where it begins with none.

    Several blocks are taken together, and each ends where it first can. A block that does not end is the whole text. An
    ending whose beginning stood in the prompt ends thoughts too, unless the text quotes it.

    Args:
        text: What a model wrote.
    """
    begun = text.lstrip("\ufeff \t\r\n")
    thoughts, rest = _channels(begun)
    while (block := _block(rest)) is not None:
        thoughts.append(block[0])
        rest = block[1].lstrip()
    if not thoughts and (block := _unopened_block(rest)) is not None:
        thoughts, rest = [block[0]], block[1].lstrip()
    return ("\n".join(filter(None, map(str.strip, thoughts))), rest) if thoughts else ("", text)


def _block(text: str) -> tuple[str, str] | None:
    """Return the block that a text begins with, and what follows it; None where it begins with none."""
    begins = _OPENING.match(text)
    if begins is None:
        return None
    ends = re.compile(re.escape(_ENDS[begins[0].lower()]), re.IGNORECASE).search(text, begins.end())
    if ends is None:
        return text[begins.end() :], ""
    return text[begins.end() : ends.start()], text[ends.end() :]


def _unopened_block(text: str) -> tuple[str, str] | None:
    """Return what stands before an ending without a beginning, and what follows it; None where there is none."""
    if _NO_THOUGHTS.match(text):
        return None
    place, is_in_code = 0, False
    first = _OPENING.search(text)
    for ends in islice(_CLOSING.finditer(text, 0, len(text) if first is None else first.start()), _MOST_CLOSINGS):
        before, after = text[: ends.start()], text[ends.end() : ends.end() + 1]
        is_in_code ^= text.count("```", place, ends.start()) % 2 == 1
        place = ends.start()
        is_quoted = before.endswith(_QUOTES) or after in _QUOTES
        # A sentence that mentions the tag has a space before it and goes on in the same line.
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
