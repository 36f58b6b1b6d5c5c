"""Equality of texts, as every metric and check compares them.

    composed(s) = NFC(s) without invisible characters at its ends
    plain(s)    = composed(s) without white space at its ends

Invisible characters are those that Unicode calls default-ignorable. Two numbers are the same if their values are:
"42", "42.0" and "+42", but not "042", which is a name, nor "42%". docs/metrics/texts.md says which comparisons read
numbers.

Source: Unicode 15, UAX #15 (NFC) and UAX #44, Default_Ignorable_Code_Point.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import Any

_TAGS = range(0xE0020, 0xE0080)
_IGNORABLE_RANGES = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
_IGNORABLE = frozenset(code for first, last in _IGNORABLE_RANGES for code in range(first, last + 1))
# The tags at the end of 🏴 are what tells one region's flag from another's.
_RANGES = "".join(f"{chr(first)}-{chr(last)}" for first, last in _IGNORABLE_RANGES)
_VISIBLE = re.compile(f"[^\\s\\x00-\\x1f\\x7f-\\x9f{_RANGES}\\u2800]")  # U+2800: a letter of Braille without dots
_AT_ENDS = "".join(map(chr, sorted(_IGNORABLE - frozenset(_TAGS))))
_WHITE_SPACE = "".join(char for char in map(chr, range(0x3001)) if char.isspace())
_PLAIN_ENDS = _AT_ENDS + _WHITE_SPACE
_NUMBER = re.compile(r"([+-]?(?:(?:0|[1-9]\d*)(?:\.\d+)?|\.\d+)(?:e[+-]?\d{1,4})?)\s?(%?)", re.IGNORECASE)
_LONGEST_NUMBER = 400
_PUNCTUATED = re.compile(r"[^\w\s]+|_+")
_SIGNS = "-\u2010\u2011\u2013\u2212\ufe63\uff0d"
_OPERATORS = frozenset(_SIGNS + "/*:×÷+")
_PERCENTS = "%‰٪％"
_ASCII_SIGNS = str.maketrans("\u2212٪％", "-%%")


def composed(text: str) -> str:
    """Return a text in NFC, without invisible characters at its ends."""
    return text if text.isascii() else unicodedata.normalize("NFC", text).strip(_AT_ENDS)


def plain(text: str) -> str:
    """Return a text in NFC, without white space and invisible characters at its ends."""
    return text.strip() if text.isascii() else unicodedata.normalize("NFC", text).strip(_PLAIN_ENDS)


def folded_case(text: str) -> str:
    """Return a composed text in which upper and lower case are the same."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFC", composed(text).casefold())


def is_blank(text: str) -> bool:
    """Return whether a text has only white space, controls and invisible characters."""
    return _VISIBLE.search(text) is None


def number_in(text: str) -> tuple[Decimal, str] | None:
    """Return the value of a number and its percent sign, if any; None for a text that is no number."""
    text = plain(text)
    if not text or len(text) > _LONGEST_NUMBER:
        return None
    if not text.isascii():
        text = "".join(str(unicodedata.decimal(char, char)) for char in text).translate(_ASCII_SIGNS)
    match = _NUMBER.fullmatch(text)
    return (Decimal(match[1]), match[2]) if match else None


def same_text(first: str, second: str, *, numbers: bool = False) -> bool:
    """Return whether two texts are the same.

    Args:
        first: Any text.
        second: Any text.
        numbers: Whether numbers of equal value are the same, whatever their notation.
    """
    if first == second or plain(first) == plain(second):
        return True
    value = number_in(first) if numbers else None
    return value is not None and value == number_in(second)


def without_punctuation(text: str) -> str:
    """Return a text without its punctuation, except inside numbers.

    "(42)." becomes "42", and "don't" becomes "dont". 1.5, -5, 60%, 10:30 and 1/2 stay as they are: without their signs
    they would be other numbers.
    """

    def kept(run: re.Match[str]) -> str:
        start, end = run.span()
        return _kept_of(run[0], text[max(0, start - 2) : start], text[end : end + 2])

    return _PUNCTUATED.sub(kept, text).strip()


def _kept_of(run: str, before: str, after: str) -> str:
    """Return the part of a run of signs that belongs to a number.

    Args:
        run: Characters that are no letters, digits or spaces.
        before: The two characters before them, or fewer at the beginning.
        after: The two characters after them.
    """
    others = "".join(char for char in run if not unicodedata.category(char).startswith("P"))
    follows, precedes = before[-1:].isdecimal(), after[:1].isdecimal()
    if follows and precedes:
        return run
    if before[:1].isdecimal() and before[-1:].isspace() and (run[0] in _PERCENTS or _joins(run, after)):
        return run if _joins(run, after) else run[0]
    if follows and run[0] in _PERCENTS:
        return run[0] + others
    if precedes and (others or not before[-1:].isalnum()):
        point = run[-1] if run[-1] in ".," and run[-2:-1] not in (".", ",") else ""
        head = run[: len(run) - len(point)].rstrip(others)  # of currencies and the like
        return (head[-1:] if head[-1:] in _SIGNS + _PERCENTS else "") + others + point
    if precedes and run in _SIGNS and before[:1].isdecimal() and before[1:] in ("e", "E"):
        return run
    return others


def _joins(run: str, after: str) -> bool:
    return run in _OPERATORS and after[:1].isspace() and after[1:].isdecimal()


def json_equal(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal: texts are compared composed, 1 equals 1.0, and true differs from 1."""
    if isinstance(first, bool) is not isinstance(second, bool):
        return False
    if isinstance(first, str) and isinstance(second, str):
        return first == second or composed(first) == composed(second)
    if isinstance(first, dict) and isinstance(second, dict):
        first, second = _with_composed_keys(first), _with_composed_keys(second)
        return first.keys() == second.keys() and all(json_equal(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(json_equal, first, second))
    return bool(first == second)


def composed_json(value: Any) -> Any:
    """Return a JSON value with all of its texts and keys composed."""
    if isinstance(value, str):
        return composed(value)
    if isinstance(value, dict):
        return {key: composed_json(item) for key, item in _with_composed_keys(value).items()}
    if isinstance(value, list):
        return [composed_json(item) for item in value]
    return value


def _with_composed_keys(value: dict[str, Any]) -> dict[str, Any]:
    renamed = {composed(key): item for key, item in value.items()}
    return renamed if len(renamed) == len(value) else value  # two keys that differ only in their form stay apart
