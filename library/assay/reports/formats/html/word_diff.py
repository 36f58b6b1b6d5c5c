"""Word-by-word difference of two texts."""

from __future__ import annotations

import difflib
import re
from collections import Counter

_WORD = re.compile(
    r"\s+|[\u3040-\u30ff\u3400-\u9fff]|[.,;:!?()\"،؛؟。、]|[^\s.,;:!?()\"،؛؟。、\u3040-\u30ff\u3400-\u9fff]+"
)
"""A run of blanks, a sign of a script without blanks between words, a punctuation mark, or a word."""
_LINE = re.compile(r"[^\n]*\n|[^\n]+")

MAX_WORDS = 5_000
"""Longest text, in words, that is compared by words."""
_MAX_PAIRS = 200_000
"""Most pairs of equal words: difflib looks at each of them, so that a text of one repeated word would take minutes."""

Ranges = list[tuple[int, int]]


def differences(text: str, other: str) -> tuple[Ranges, Ranges] | None:
    """Return the ranges of each text that the other one does not have in that place.

    Texts of more than `MAX_WORDS` words are compared line by line.

    Returns:
        For each text the starts and ends of its ranges, counted in UTF-16 code units as JavaScript does; None where
        the texts repeat themselves too much to be compared.
    """
    for pattern in (_WORD, _LINE):
        parts, others = pattern.findall(text), pattern.findall(other)
        if max(len(parts), len(others)) <= MAX_WORDS and _pairs(parts, others) <= _MAX_PAIRS:
            return _ranges(parts, others)
    return None


def _pairs(parts: list[str], others: list[str]) -> int:
    counts = Counter(others)
    return sum(count * counts[part] for part, count in Counter(parts).items())


def _ranges(parts: list[str], others: list[str]) -> tuple[Ranges, Ranges]:
    places, other_places = _places(parts), _places(others)
    pair_of_ranges: tuple[Ranges, Ranges] = ([], [])
    for kind, start, end, other_start, other_end in difflib.SequenceMatcher(
        None, parts, others, autojunk=False
    ).get_opcodes():
        if kind != "equal":
            for ranges, at, first, last in (
                (pair_of_ranges[0], places, start, end),
                (pair_of_ranges[1], other_places, other_start, other_end),
            ):
                if first < last:
                    ranges.append((at[first], at[last]))
    return pair_of_ranges


def _places(parts: list[str]) -> list[int]:
    """Return where each part begins, and where the last one ends."""
    places = [0]
    for part in parts:
        wide = 0 if part.isascii() else sum(char > "\uffff" for char in part)
        places.append(places[-1] + len(part) + wide)
    return places
