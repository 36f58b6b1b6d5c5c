"""What can be said about an answer without a judge: that it says nothing, or that it talks to the judge."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.metrics.text_folding import fold

if TYPE_CHECKING:
    from assay_judge.prompting import Material

__all__ = ["Look", "look_at"]

EMPTY = "empty_answer"
PUNCTUATION = "punctuation_only"
COPIES_QUESTION = "copies_question"
COPIES_PROMPT = "copies_prompt"
ADDRESSES_JUDGE = "addresses_judge"

_SENTENCES = {
    EMPTY: "The answer is empty.",
    PUNCTUATION: "The answer holds no letter, no digit and no symbol.",
    COPIES_QUESTION: "The answer is the question, word by word.",
    COPIES_PROMPT: "The answer is made of what the agent was given, word by word.",
}
_TO_JUDGE = re.compile(
    r"verdict_id|overall_score|<<\s*(?:end of )?(?:question|reference|answer|passage|first answer|second answer)\b"
    r"|\{\s*[\"'](?:score|reasoning|accuracy|winner|verdict)\b"
    r"|\b(?:ignore|disregard|forget)\b.{0,40}\b(?:instructions?|rubrics?|above|previous|prior|prompts?)\b"
    r"|\b(?:grader|judge|evaluator|grading system)\b.{0,60}\b(?:score|give|rate|rating|award|output|mark)\b"
    r"|\b(?:give|award|output|assign|rate)\b.{0,40}\b(?:maximum|highest|full|perfect|top)\b.{0,20}"
    r"\b(?:score|mark|marks|rating|grade)\b"
    r"|<\|[^|<>\n]{1,60}\|>|\[/?INST\]",
    re.IGNORECASE | re.DOTALL,
)
_LOOKED_AT_CHARS = 50_000


@dataclass(frozen=True, slots=True)
class Look:
    """What a first look at an answer shows.

    Args:
        flags: Stable words.
        verdict: Why it deserves the lowest score without asking anyone; empty where a judge is to be asked.
    """

    flags: tuple[str, ...] = ()
    verdict: str = ""


def look_at(material: Material) -> Look:
    """Return what is odd about an answer, or about either of two.

    An answer without any content deserves the lowest score by whatever rubric, unless the reference has none either.
    A copy of the question or of what the agent was given deserves it where there is a reference that differs.
    """
    answers = [material.answer] if material.second is None else [material.answer, material.second]
    flags: list[str] = []
    for answer in answers:
        flags += [flag for flag in (_trivial(answer, material), _addressed(answer)) if flag and flag not in flags]
    if material.second is not None or not flags or flags[0] not in _SENTENCES:
        return Look(tuple(flags))
    trivial = flags[0]
    reference = None if material.reference is None else fold(material.reference)
    if reference is not None and reference == fold(material.answer):
        return Look(tuple(flags))
    if trivial in (COPIES_QUESTION, COPIES_PROMPT) and not reference:
        return Look(tuple(flags))
    return Look(tuple(flags), _SENTENCES[trivial])


def _trivial(answer: str, material: Material) -> str:
    folded = fold(answer)
    if not folded:
        return EMPTY
    if all(unicodedata.category(character)[0] in "PZC" for character in folded):
        return PUNCTUATION
    if folded == fold(material.question):
        return COPIES_QUESTION
    given = [material.question, *material.contexts]
    if material.contexts and folded in (fold(" ".join(given)), fold(" ".join(material.contexts))):
        return COPIES_PROMPT
    return ""


def _addressed(answer: str) -> str:
    return ADDRESSES_JUDGE if _TO_JUDGE.search(answer[:_LOOKED_AT_CHARS]) else ""
