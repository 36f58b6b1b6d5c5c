"""Porter's stemmer for English, with the amendments behind published ROUGE scores.

Source: M. F. Porter, "An algorithm for suffix stripping", 1980. The amendments are those of the stemmer that the usual
ROUGE package calls: a few irregular forms, words of one or two letters unchanged, y after a vowel kept ("enjoy"), short
words in -ies and -ied ("dies" gives "die"), -bli for -abli, -fulli, -logi, and a stem of one vowel and one consonant
counted as short.
"""

from __future__ import annotations

import re

_IRREGULAR = {
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news", "howe": "howe",
    "innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing", "cannings": "canning",
    "canning": "canning", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip

_KINDS = {code: "v" if chr(code) in "aeiou" else "c" for code in range(128) if chr(code) != "y"}
_YS = re.compile("(^|[cv])(y+)")

# Suffixes stand longest first where one ends another; the first that fits decides.
_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"),
)  # fmt: skip
_STEP_3 = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


def stem(word: str) -> str:
    """Return the stem of a word of ASCII letters in lower case and digits."""
    if word in _IRREGULAR or len(word) <= 2:
        return _IRREGULAR.get(word, word)
    word = _final_y(_past_and_participle(_plural(word)))
    word = _replace(_double_suffix(word), _STEP_3)
    return _final_double_l(_final_e(_single_suffix(word)))


def _shape(word: str) -> str:
    """Return the word with each letter as c (consonant) or v (vowel); y is a vowel after a consonant."""
    shape = word.translate(_KINDS)
    return _YS.sub(_kinds_of_ys, shape) if "y" in shape else shape


def _kinds_of_ys(run: re.Match[str]) -> str:
    before, count = run[1], len(run[2])
    return before + ("vc" if before == "c" else "cv") * (count // 2) + ("v" if before == "c" else "c") * (count % 2)


def _measure(word: str) -> int:
    """Return the number of times a vowel is followed by a consonant: Porter's m."""
    return _shape(word).count("vc")


def _is_short(word: str) -> bool:
    """Return whether a stem ends in consonant, vowel, consonant other than w, x, y; or is a vowel and a consonant."""
    shape = _shape(word)
    return shape == "vc" or (shape.endswith("cvc") and word[-1] not in "wxy")


def _ends_doubled(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _shape(word).endswith("c")


def _plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past_and_participle(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    rest = next((word.removesuffix(suffix) for suffix in ("ed", "ing") if word.endswith(suffix)), word)
    if rest == word or "v" not in _shape(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _ends_doubled(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _is_short(rest) else rest


def _final_y(word: str) -> str:
    rest = word[:-1]
    return rest + "i" if word.endswith("y") and len(rest) > 1 and _shape(rest).endswith("c") else word


def _double_suffix(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _double_suffix(word[:-2])
    if word.endswith("logi"):  # its l belongs to the stem, so that "geo-logi" counts as long enough
        return word[:-1] if _measure(word[:-3]) > 0 else word
    return _replace(word, _STEP_2)


def _replace(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for suffix, replacement in rules:
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            return rest + replacement if _measure(rest) > 0 else word
    return word


def _single_suffix(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            goes = _measure(rest) > 1 and (suffix != "ion" or rest[-1] in "st")
            return rest if goes else word
    return word


def _final_e(word: str) -> str:
    rest = word[:-1]
    if not word.endswith("e"):
        return word
    measure = _measure(rest)
    return rest if measure > 1 or (measure == 1 and not _is_short(rest)) else word


def _final_double_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
