"""Normalised field names, for comparison."""

from __future__ import annotations

import re
import unicodedata

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENDS = " \t\r\n:*.?؟\ufeff\u200b\u200e\u200f"  # marks that people and tools put around a column's name


def folded(name: str) -> str:
    """Return a field name for comparison: `Expected-Answer`, `expectedAnswer` and `expected answer:` are equal.

    Case and accents are ignored, in every script.
    """
    plain = _HUMP.sub("_", name).lower()
    if not plain.isascii():
        letters = unicodedata.normalize("NFKD", plain).casefold().replace("ı", "i")
        plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return plain.strip(_ENDS).replace("-", "_").replace(" ", "_")
