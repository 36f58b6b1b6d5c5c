"""Checks of an answer that need no judge: whether it is empty, and flags for readers of its verdict.

Only an empty answer gets its verdict here. Punctuation can be a correct answer (`%`), and so can a verbatim passage, so
all other results are flags beside the judge's verdict.
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
"""All flags, in the order of their listing."""

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
"""Passages longer than an answer by this factor are not compared with it: folding shortens texts by less."""


@dataclass(frozen=True, slots=True)
class Precheck:
    """The result of the precheck.

    Args:
        flags: Members of FLAGS, without duplicates.
        is_empty: Whether the answer is empty and gets the lowest score of every rubric.
    """

    flags: tuple[str, ...] = ()
    is_empty: bool = False


async def precheck_off_loop(material: Material) -> Precheck:
    """Run `precheck`, in a thread if the material is long, so that it does not block the event loop."""
    return await asyncio.to_thread(precheck, material) if material.is_long else precheck(material)


def precheck(material: Material) -> Precheck:
    """Check an answer, or both answers of a comparison.

    `is_empty` is false if the reference is empty too, or if two answers are compared.
    """
    answers = [material.answer] if material.second is None else [material.answer, material.second]
    hits = {flag for answer in answers for flag in _flags(answer, material)}
    flags = tuple(flag for flag in FLAGS if flag in hits)
    is_empty = EMPTY in hits and material.second is None
    if is_empty and material.reference is not None and is_blank(material.reference):
        is_empty = False
    return Precheck(flags, is_empty)


def _flags(answer: str, material: Material) -> set[str]:
    if is_blank(answer):
        return {EMPTY}
    scanned = answer[:_SCANNED_CHARS]
    flags = {
        ADDRESSES_JUDGE: _addresses_judge(scanned),
        HIDDEN_CHARACTERS: hides_characters(scanned),
    }
    if len(answer) <= _SCANNED_CHARS:
        flags[_likeness(answer, material)] = True
    return {flag for flag, holds in flags.items() if flag and holds}


def _addresses_judge(text: str) -> bool:
    if holds_turn_markers(text):
        return True
    plain = plain_form(text)
    return _TO_JUDGE.search(plain) is not None or demands_score(plain)


def _likeness(answer: str, material: Material) -> str:
    """Return the flag of an answer that is a copy or only punctuation; empty for neither."""
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
