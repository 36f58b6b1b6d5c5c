"""Arabic as people type it: one spelling for searching, numbers in words, and counted nouns for answers."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["NUMBER", "NUMBER_WORDS", "UNIT", "Text", "amount", "counted", "fold", "number"]

_UNIFIED = str.maketrans("آأإٱىة٫", "اااايه.")
_UNREAD = ("Mn", "Cf", "Cc", "Cs")  # vowel signs, direction marks and joiners, control characters, half characters
NUMBER_WORDS = {
    "واحد": 1, "واحده": 1, "اثنين": 2, "اثنتين": 2, "ثلاث": 3, "ثلاثه": 3, "اربع": 4, "اربعه": 4, "خمس": 5, "خمسه": 5,
    "ست": 6, "سته": 6, "سبع": 7, "سبعه": 7, "ثمان": 8, "ثماني": 8, "ثمانيه": 8, "تسع": 9, "تسعه": 9, "عشر": 10,
    "عشره": 10, "عشرين": 20, "ثلاثين": 30, "اربعين": 40, "خمسين": 50, "ستين": 60, "سبعين": 70, "ثمانين": 80,
    "تسعين": 90, "مئه": 100, "مائه": 100, "نصف": 0.5, "ربع": 0.25,
}  # fmt: skip
_UNITS = {
    "الف": 1e3, "الاف": 1e3, "الفين": 2e3, "مليون": 1e6, "ملايين": 1e6, "مليوني": 2e6, "مليونين": 2e6,
    "مليار": 1e9, "مليارات": 1e9, "مليارين": 2e9,
}  # fmt: skip
NUMBER = r"\d{1,15}(?:\.\d+)?|" + "|".join(sorted(NUMBER_WORDS, key=len, reverse=True))
UNIT = "|".join(sorted(_UNITS, key=len, reverse=True))
# What may be attached to the front of a word: a conjunction, a preposition, the article.
_ATTACHED = r"(?<!\w)[وف]?(?:بال|كال|ال|لل|[بلك])?"


def fold(text: str) -> str:
    """Return a text in one spelling: no marks, one alef, one yeh, heh for teh marbuta, ASCII digits."""
    text = unicodedata.normalize("NFKC", text).replace("ـ", "")
    text = "".join(char for char in text if char.isspace() or unicodedata.category(char) not in _UNREAD)
    text = text.translate(_UNIFIED).casefold()
    text = re.sub(r"\d", lambda digit: str(unicodedata.digit(digit[0])), text)
    return " ".join(re.sub(r"(?<=\d)[,،٬](?=\d{3}(?!\d))", "", text).split())


class Text:
    """A folded question, from which what has been understood is taken away."""

    def __init__(self, question: str) -> None:
        self.rest = fold(question)

    def has(self, words: str) -> bool:
        """Return whether one of some words (a pattern, without articles) stands in what is left."""
        return self._search(words) is not None

    def take(self, words: str) -> re.Match[str] | None:
        """Return the first match and take it out, so that nothing else is read into it."""
        found = self._search(words)
        if found is not None:
            self.rest = f"{self.rest[: found.start()]} | {self.rest[found.end() :]}"
        return found

    def _search(self, words: str) -> re.Match[str] | None:
        return re.search(rf"{_ATTACHED}(?:{words})(?!\w)", self.rest)


def number(word: str) -> float:
    """Return the number that digits or a word stand for."""
    return NUMBER_WORDS[word] if word in NUMBER_WORDS else float(word)


def amount(count: str | None, unit: str | None) -> float:
    """Return an amount such as ("50", "مليون"); without a count it is one unit."""
    return (number(count) if count else 1.0) * (_UNITS[unit] if unit else 1.0)


def counted(count: int, one: str, two: str, few: str, many: str) -> str:
    """Return a number with its noun as Arabic grammar wants it.

    Args:
        count: How many, from 0.
        one: The noun alone, singular ("مناقصة").
        two: The dual ("مناقصتان").
        few: The plural after 3 to 10 ("مناقصات").
        many: The accusative singular after 11 to 99 ("مناقصة", "مشروعاً").
    """
    if count == 2:
        return f"{two} (2)"
    last = count % 100
    noun = few if 3 <= last <= 10 else many if last >= 11 else one
    return f"{count:,} {noun}"
