"""Parse a judge's reply, which is a verdict only if it is exactly one valid object that answers this very call.

    {"verdict_id": "…", "reasoning": "…", "accuracy": 0.9, …}

The reply is one JSON object, alone or inside one code fence or answer box around all of it. Thoughts, such as
`<think>…</think>`, may come first and are not part of the reply. Line breaks inside its texts may be raw. Any further
word, fence or object makes the reply invalid. Keys are unique; keys that the rubric does not ask for are ignored.
Numbers are JSON numbers on the rubric's scale.
`verdict_id` is a random text that only this call's system part contains, so an object that the judge copied from the
answer cannot contain it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from assay.model.answers.agent_response import clean_text
from assay.text.inline_thoughts import split_thoughts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.judging.rubric import Criterion, Rubric

PARSER = "verdict/4"
"""Change it whenever the parser may read the same reply differently."""

WINNERS = ("first", "second", "tie")
_MAX_REPLY_CHARS = 200_000
_MAX_REASONING_CHARS = 20_000
_CUT = " […]"
_JSON_SPACE = " \t\r\n"
_FENCED = re.compile(r"(`{3,8}|~{3,8})(?:json[5cl]?)?[ \t]*\r?\n(.*)\n[ \t]*\1", re.IGNORECASE | re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BOX = ("<|begin_of_box|>", "<|end_of_box|>")  # GLM's, around its answer


class InvalidVerdictError(ValueError):
    """The reply is not one valid verdict; the message says why and does not quote the reply."""


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """A checked verdict.

    Args:
        reasoning: The judge's reasons; untrusted text.
        scores: Scores by criterion, on the rubric's scale; empty for a comparison.
        winner: "first", "second" or "tie" for a comparison, else empty.
    """

    reasoning: str
    scores: Mapping[str, float] = field(default_factory=dict)
    winner: str = ""


def verdict_schema(rubric: Rubric) -> dict[str, Any]:
    """Return the JSON schema of a rubric's verdict.

    Reasons come before scores, so that a model reasons first. Ranges are given in words: providers do not enforce
    them, and some refuse schemas that contain them.
    """
    properties: dict[str, Any] = {
        "verdict_id": {"type": "string", "description": "The verdict_id of this call, from the system text."},
        "reasoning": {"type": "string", "description": "Why, in a few sentences."},
    }
    if rubric.compares:
        properties["winner"] = {"type": "string", "enum": list(WINNERS), "description": "The better answer."}
    for criterion in () if rubric.compares else rubric.criteria:
        properties[criterion.name] = _score_schema(criterion, rubric)
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def read_verdict(reply: str, rubric: Rubric, verdict_id: str) -> JudgeVerdict:
    """Return the verdict in a reply.

    Args:
        reply: The whole text of the reply.
        rubric: The rubric of the request.
        verdict_id: The id of this call.

    Raises:
        InvalidVerdictError: The reply is not a valid verdict.
    """
    if len(reply) > _MAX_REPLY_CHARS:
        raise InvalidVerdictError("the reply is too long for a verdict")
    data = _one_object(_bare(reply))
    given = data.pop("verdict_id", None)
    if not isinstance(given, str):
        raise InvalidVerdictError("verdict_id is missing or no text")
    if given != verdict_id:
        raise InvalidVerdictError("verdict_id is not that of this call")
    return verdict_from_data(data, rubric)


def verdict_from_data(data: Mapping[str, Any], rubric: Rubric) -> JudgeVerdict:
    """Return the verdict in an object whose verdict_id was checked and removed.

    Raises:
        InvalidVerdictError: The object is not a valid verdict.
    """
    reasoning = data.get("reasoning")
    if not isinstance(reasoning, str):
        raise InvalidVerdictError("reasoning is missing or no text")
    reasoning = clean_text(reasoning)
    if len(reasoning) > _MAX_REASONING_CHARS:
        reasoning = reasoning[: _MAX_REASONING_CHARS - len(_CUT)] + _CUT
    if rubric.compares:
        winner = data.get("winner")
        if not isinstance(winner, str) or winner not in WINNERS:
            raise InvalidVerdictError('winner must be "first", "second" or "tie"')
        return JudgeVerdict(reasoning, winner=winner)
    if _is_spliced(data, rubric):
        raise InvalidVerdictError("unrequested text between the scores")
    scores = {}
    for criterion in rubric.criteria:
        value = data.get(criterion.name)
        if value is not None or not criterion.optional:
            scores[criterion.name] = _score(value, criterion.name, rubric)
    return JudgeVerdict(reasoning, scores)


def _score(value: object, name: str, rubric: Rubric) -> float:
    scale = f"{'a whole number' if rubric.whole else 'a number'} from {rubric.minimum:g} to {rubric.maximum:g}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not rubric.minimum <= value <= rubric.maximum:
        raise InvalidVerdictError(f"{name} must be {scale}")
    number = float(value)
    if not math.isfinite(number) or (rubric.whole and not number.is_integer()):
        raise InvalidVerdictError(f"{name} must be {scale}")
    return number + 0.0  # turns -0.0 into 0.0


def _score_schema(criterion: Criterion, rubric: Rubric) -> dict[str, Any]:
    kind = {"type": "integer" if rubric.whole else "number"}
    words = f"{criterion.description} From {rubric.minimum:g} to {rubric.maximum:g}."
    if criterion.optional:
        return {"anyOf": [kind, {"type": "null"}], "description": words}
    return {**kind, "description": words}


def _is_spliced(data: Mapping[str, Any], rubric: Rubric) -> bool:
    """Return whether an object may contain scores from a text that the judge quoted without escaping it.

    A quoted `…", "overall_score": 1, "x": "…` adds a score that the judge left out. It needs a text of its own, here
    "x", for the rest of the quote, which ends up between that score and the judge's.
    """
    names = list(data)
    asked = {criterion.name for criterion in rubric.criteria}
    places = [place for place, name in enumerate(names) if name in asked]
    if not places or not any(isinstance(data[name], str) for name in {*names} - asked - {"reasoning"}):
        return False
    return any(isinstance(data[name], str) for name in names[places[0] : places[-1]] if name not in asked)


def _bare(reply: str) -> str:
    """Return a reply without its thoughts, and without a box and a code fence around all of it."""
    # The first end tag counts; a later one stays in the text and makes it invalid JSON.
    text = split_thoughts(reply.removeprefix("\ufeff").strip(_JSON_SPACE))[1].strip(_JSON_SPACE)
    if text.startswith(_BOX[0]) and text.endswith(_BOX[1]):
        text = text.removeprefix(_BOX[0]).removesuffix(_BOX[1]).strip(_JSON_SPACE)
    fenced = _FENCED.fullmatch(text)
    return fenced[2].strip(_JSON_SPACE) if fenced else text


def _one_object(text: str) -> dict[str, Any]:
    ids = 0

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal ids
        data = dict(pairs)
        if len(data) < len(pairs):
            raise InvalidVerdictError("a key is given twice")
        ids += "verdict_id" in data
        return data

    try:
        if _CONTROLS.search(text):
            raise InvalidVerdictError("the reply holds a control character")
        data = json.JSONDecoder(object_pairs_hook=unique, parse_constant=_refuse_constant, strict=False).decode(text)
    except InvalidVerdictError:
        raise
    except (ValueError, RecursionError):
        raise InvalidVerdictError("the reply is not exactly one JSON object") from None
    if not isinstance(data, dict):
        raise InvalidVerdictError("the reply is not a JSON object")
    if ids > 1:
        raise InvalidVerdictError("more than one object has a verdict_id")
    return data


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidVerdictError(f"{name} is not JSON")
