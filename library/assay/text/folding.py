"""Text folding before a phrase search: it unifies spelling variants and keeps different words apart."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_APOSTROPHES = dict.fromkeys((0x2018, 0x2019, 0x201B, 0x02BC, 0xFF07, 0x00B4), "'")
_ARABIC_MARK_RANGES = ((0x0610, 0x061A), (0x064B, 0x065F), (0x0670, 0x0670), (0x06D6, 0x06ED),
                       (0x0898, 0x089F), (0x08CA, 0x08FF))  # fmt: skip
_DELETED = {
    0x0640: None,  # tatweel
    **{
        code: None
        for first, last in _ARABIC_MARK_RANGES
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)) == "Mn"
    },
    **dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))),  # bidi
    **dict.fromkeys((*range(0x200B, 0x200E), 0x2060, 0xFEFF, 0x00AD)),  # zero width, soft hyphen
}
_ALEFS = dict.fromkeys((0x0622, 0x0623, 0x0625, 0x0671), "\u0627")
_LETTERS = {**_DELETED, **_ALEFS}
_PARTICLES = "وفبكل"


def without_marks(text: str) -> str:
    """Return the text without tatweel, Arabic diacritics, bidi controls, zero-width marks and soft hyphens."""
    return text if text.isascii() else text.translate(_DELETED)


def unify_letters(text: str) -> str:
    """Return the text without the marks that `without_marks` deletes, with every alef as a bare alef."""
    return text if text.isascii() else text.translate(_LETTERS)


def fold(text: str) -> str:
    """Return the text with look-alikes, presentation forms, marks, case and spacing unified.

    Arabic diacritics, tatweel, bidi and zero-width marks are deleted, alef variants become bare alef; teh
    marbuta and alef maqsura stay. Idempotent.
    """
    if text.isascii():
        return " ".join(text.casefold().split())
    text = unicodedata.normalize("NFKC", text.translate(_APOSTROPHES))
    text = text.translate(_LETTERS).casefold()
    # Case folding decomposes some letters and yields look-alikes; unifying again makes fold idempotent.
    text = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES)
    return " ".join(text.split())


def contains_word(folded: str, phrase: str, *, particles: str = _PARTICLES) -> bool:
    """Return whether a folded text contains a phrase as whole words.

    Args:
        folded: A text that `fold` returned.
        phrase: The phrase, not folded.
        particles: Letters, one of which may be attached before an Arabic phrase.
    """
    words, pattern = _word_pattern(phrase, particles)
    # Most phrases are absent, which a plain search finds ten times faster than the pattern.
    return words in folded and pattern.search(folded) is not None


def containment_work(text: str, phrases: Sequence[str], *, as_words: bool = True) -> int:
    """Return an upper bound of the work of searching a text for phrases; see `row_work`.

    A phrase as words may match nearly whole at every place of a hostile text.
    """
    chars = sum(map(len, phrases))
    return (len(text) + 20) * (len(phrases) + (chars // 10 if as_words else 0)) + 50 * chars


@lru_cache(maxsize=512)
def _word_pattern(phrase: str, particles: str) -> tuple[str, re.Pattern[str]]:
    folded = fold(phrase)
    prefix = f"[{particles}]?" if particles and "\u0600" <= folded[:1] <= "\u06ff" else ""
    return folded, re.compile(rf"(?<!\w){prefix}{re.escape(folded)}(?!\w)")
