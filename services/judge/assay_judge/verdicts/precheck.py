"""What can be seen of an answer without a judge: that it is empty, and what a reader of its verdict should know.

Only an empty answer has its verdict here. Punctuation can be a right answer (`%`), and so can a passage word for word,
so whatever else is seen is a flag beside the judge's own verdict.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.text.equality import is_blank
from assay.text.folding import fold
from assay_judge.verdicts.demands import demands_score, plain_form
from assay_judge.verdicts.sanitizer import hides_characters, holds_turn_markers

if TYPE_CHECKING:
    from assay_judge.model import Material

EMPTY = "empty_answer"
PUNCTUATION = "punctuation_only"
COPIES_QUESTION = "copies_question"
COPIES_PROMPT = "copies_prompt"
ADDRESSES_JUDGE = "addresses_judge"
HIDDEN_CHARACTERS = "hidden_characters"

FLAGS = (EMPTY, PUNCTUATION, COPIES_QUESTION, COPIES_PROMPT, ADDRESSES_JUDGE, HIDDEN_CHARACTERS)
"""All flags, in the order in which they are listed."""

_TO_JUDGE = re.compile(
    r"verdict_id|overall_score"
    r"|<<\s*(?:end of )?(?:question|criterion|reference|answer|passage|turn|first answer|second answer)\b"
    r"|\{\s*[\"'“”„](?:score|reasoning|accuracy|winner|verdict)\b"
    r"|\b(?:ignore|disregard|forget)\b.{0,40}\b(?:instructions?|rubrics?|above|previous|prior|prompts?)\b"
    r"|\b(?:grader|judge|evaluator|grading system)\b.{0,60}\b(?:score|give|rate|rating|award|output|mark)\b"
    r"|\b(?:give|award|output|assign|rate)\b.{0,40}\b(?:maximum|highest|full|perfect|top)\b.{0,20}"
    r"\b(?:score|mark|marks|rating|grade)\b",
    re.IGNORECASE | re.DOTALL,
)
_SCANNED_CHARS = 50_000
_COPY_FACTOR = 4
"""Passages this much longer than an answer are not compared with it: folding shortens a text, but not so far."""


@dataclass(frozen=True, slots=True)
class Precheck:
    """What is seen of an answer without a judge.

    Args:
        flags: Of FLAGS, without doubles.
        is_empty: Whether it deserves the lowest score of every rubric, because it holds nothing to judge.
    """

    flags: tuple[str, ...] = ()
    is_empty: bool = False


async def precheck_off_loop(material: Material) -> Precheck:
    """Return what `precheck` returns; long material is checked in a thread, so that other verdicts move meanwhile."""
    return await asyncio.to_thread(precheck, material) if material.is_long else precheck(material)


def precheck(material: Material) -> Precheck:
    """Return what is seen of an answer, or of either of two.

    An empty answer is decided here unless the reference is empty too, or two answers are compared.
    """
    answers = [material.answer] if material.second is None else [material.answer, material.second]
    found = {flag for answer in answers for flag in _flags(answer, material)}
    flags = tuple(flag for flag in FLAGS if flag in found)
    is_empty = EMPTY in found and material.second is None
    if is_empty and material.reference is not None and is_blank(material.reference):
        is_empty = False
    return Precheck(flags, is_empty)


def _flags(answer: str, material: Material) -> set[str]:
    if is_blank(answer):
        return {EMPTY}
    scanned = answer[:_SCANNED_CHARS]
    found = {
        ADDRESSES_JUDGE: _addresses_judge(scanned),
        HIDDEN_CHARACTERS: hides_characters(scanned),
    }
    if len(answer) <= _SCANNED_CHARS:
        found[_likeness(answer, material)] = True
    return {flag for flag, holds in found.items() if flag and holds}


def _addresses_judge(text: str) -> bool:
    if holds_turn_markers(text):
        return True
    plain = plain_form(text)
    return _TO_JUDGE.search(plain) is not None or demands_score(plain)


def _likeness(answer: str, material: Material) -> str:
    """Return what an answer is a copy of, or that it is punctuation; empty for neither."""
    if all(unicodedata.category(character)[0] in "PZC" for character in answer):
        return PUNCTUATION
    longest = _COPY_FACTOR * len(answer)
    question_fits = len(material.question) <= longest
    contexts_fit = 0 < sum(map(len, material.contexts)) <= longest
    if not question_fits and not contexts_fit:
        return ""
    folded, question = fold(answer), fold(material.question) if question_fits else ""
    if question and folded == question:
        return COPIES_QUESTION
    passages = " ".join(filter(None, map(fold, material.contexts))) if contexts_fit else ""
    return COPIES_PROMPT if passages and folded in (passages, f"{question} {passages}") else ""
