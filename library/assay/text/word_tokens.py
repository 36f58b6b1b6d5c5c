"""The words of a text in any script, which word-overlap metrics compare.

On ASCII text these are the tokens of the usual ROUGE tokenizer: runs of a-z and 0-9 in lower case. That tokenizer drops
all letters of other scripts: an Arabic text would have no words, and a mixed text only its numbers.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from assay.text.folding import unify_letters
from assay.text.porter_stemmer import stem

_ASCII_SEPARATORS = {code: " " for code in range(128) if not chr(code).isalnum()}
_LONGEST_UNSTEMMED = 3
_LONGEST_REMEMBERED = 60
_UNSPACED = (
    range(0x0E00, 0x0F00),  # Thai, Lao
    range(0x1000, 0x10A0), range(0xA9E0, 0xAA00), range(0xAA60, 0xAA80),  # Myanmar
    range(0x1780, 0x1800),  # Khmer
    range(0x3005, 0x3008), range(0x3021, 0x302A), range(0x3038, 0x303D),  # Han signs and numbers
    range(0x3041, 0x3100), range(0x31F0, 0x3200), range(0x1AFF0, 0x1B170),  # Hiragana, Katakana
    range(0x3400, 0x4DC0), range(0x4E00, 0xA000), range(0xF900, 0xFB00), range(0x20000, 0x33480),  # Han
)  # fmt: skip


def tokenize(text: str, *, stemmed: bool = True) -> list[str]:
    """Return the words of a text, in order.

    Compatibility forms, case, alef variants and the digits of every script are unified; Arabic diacritics,
    tatweel and hidden marks are left out. A word is a run of letters, numbers and marks; in scripts that
    are written without spaces (Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar) it is one character with
    its marks.

    Args:
        text: Any text.
        stemmed: Whether ASCII words of more than three characters are reduced to their stems.
    """
    words = text.lower().translate(_ASCII_SEPARATORS).split() if text.isascii() else _words(text)
    if not stemmed or not words:
        return words
    reduce = _remembered if max(map(len, words)) <= _LONGEST_REMEMBERED else _stemmed
    return list(map(reduce, words))


@lru_cache(maxsize=65536)
def _remembered(word: str) -> str:
    return _stemmed(word)


def _stemmed(word: str) -> str:
    return stem(word) if len(word) > _LONGEST_UNSTEMMED and word.isascii() else word


def _words(text: str) -> list[str]:
    text = unify_letters(unicodedata.normalize("NFKC", text)).lower()
    return [word for run in text.translate(_CHARACTERS).split() for word in _unspaced_apart(run)]


def _unspaced_apart(run: str) -> list[str]:
    """Return the words of a run in which only the first character may be of an unspaced script."""
    if run.isascii() or not _is_unspaced(run[0]):
        return [run]
    end = 1
    while end < len(run) and unicodedata.category(run[end]).startswith("M"):
        end += 1
    return [word for word in (run[:end], run[end:]) if word]


def _is_unspaced(char: str) -> bool:
    return any(ord(char) in block for block in _UNSPACED)


class _Characters(dict[int, str]):
    """A translation table that is filled as texts come, with at most one entry per character."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if category == "Nd":
            became = str(unicodedata.decimal(char))
        elif category[0] == "M":
            became = char
        elif category[0] in "LN":
            became = f" {char}" if _is_unspaced(char) else char
        else:
            became = " "
        self[code] = became
        return became


_CHARACTERS = _Characters()
