"""Folding of text and finding phrases as words."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.text.folding import contains_word, fold

SORRY = "\u0639\u0630\u0631\u0627"
ARABIC = "".join(chr(code) for code in (*range(0x0621, 0x063B), *range(0x0641, 0x064B)))
MARKS = "\u0640\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652\u0670\u200e\u200f\u202a\u202e\u2067\u061c\u200b\ufeff"


@pytest.mark.parametrize(
    ("text", "folded", "has_word"),
    [
        ("\u0639\u0630\u0631\u0627\u064b", SORRY, True),
        ("\u0639\u0630\u0631\u064b\u0627", SORRY, True),
        ("\u0639\u0640\u0630\u0631\u0627", SORRY, True),
        ("\ufecb\ufeac\ufead\ufe8d", SORRY, True),
        ("\u0648\u0639\u0630\u0631\u0627\u064b \u0639\u0644\u0649 \u0630\u0644\u0643",
         "\u0648\u0639\u0630\u0631\u0627 \u0639\u0644\u0649 \u0630\u0644\u0643", True),
        ("\u0639\u0630\u0631\u0627\u0621", "\u0639\u0630\u0631\u0627\u0621", False),
        ("\u0646\u0639\u062a\u0630\u0631", "\u0646\u0639\u062a\u0630\u0631", False),
    ],
    ids=["tanwin-after", "tanwin-before", "tatweel", "presentation-forms", "particle", "other-word", "other-verb"],
)  # fmt: skip
def test_spellings_of_sorry_fold_together_and_other_words_do_not(text: str, folded: str, has_word: bool) -> None:
    """Each spelling of one Arabic word is found as that word, and only it."""
    assert fold(text) == folded
    assert contains_word(fold(text), SORRY) is has_word


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Couldn\u2019t", "couldn't"),
        ("a\u00b4b \u02bc\uff07\u2018\u201b", "a'b ''''"),
        ("\uff21\uff22\uff23", "abc"),
        ("  A \t\n b\u00a0c ", "a b c"),
        ("Stra\u00dfe", "strasse"),
        ("so\u00adft\u200b", "soft"),
        ("\u0623\u0625\u0622\u0671", "\u0627" * 4),
        ("\u0627\u0653\u0627\u0654", "\u0627" * 2),
        ("\u0645\u062f\u0631\u0633\u0629 \u0639\u0644\u0649", "\u0645\u062f\u0631\u0633\u0629 \u0639\u0644\u0649"),
        ("", ""),
    ],
)
def test_look_alikes_fold_to_one_form(text: str, folded: str) -> None:
    """Apostrophes, widths, spacing, case, hidden marks and alefs are unified; teh marbuta and maqsura stay."""
    assert fold(text) == folded


@given(st.text())
def test_folding_twice_changes_nothing(text: str) -> None:
    """fold is idempotent on any text."""
    assert fold(fold(text)) == fold(text)


@given(st.text(ARABIC + " abc", max_size=20), st.lists(st.tuples(st.integers(0, 20), st.sampled_from(MARKS))))
def test_marks_never_change_a_folded_text(text: str, marks: list[tuple[int, str]]) -> None:
    """Diacritics, tatweel, bidi and zero-width marks may stand anywhere without effect."""
    text = unicodedata.normalize("NFC", text)
    marked = list(text)
    for position, mark in marks:
        marked.insert(min(position, len(marked)), mark)
    assert fold("".join(marked)) == fold(text)


@pytest.mark.parametrize(
    ("text", "phrase", "particles", "hits"),
    [
        ("well, i think so", "I think", "", True),
        ("i thinker", "i think", "", False),
        ("xi think", "i think", "", False),
        ("i'm not sure.", "I\u2019m not sure", "", True),
        ("wi think", "i think", "w", False),
        ("\u0644\u0639\u0630\u0631\u0627", SORRY, "\u0648\u0641", False),
        ("\u0641\u0639\u0630\u0631\u0627", SORRY, "\u0648\u0641", True),
        ("\u0648\u0641\u0639\u0630\u0631\u0627", SORRY, "\u0648\u0641", False),
        ("a+b (c)", "(c)", "", True),
    ],
)
def test_a_phrase_counts_only_as_whole_words(text: str, phrase: str, particles: str, hits: bool) -> None:
    """Word borders hold, and one particle may be attached to an Arabic phrase only."""
    assert contains_word(text, phrase, particles=particles) is hits
