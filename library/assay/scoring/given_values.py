"""Answers and references passed to `assay.score`: texts, numbers, arrays, mappings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal
from typing import Any

from assay.errors import Problem
from assay.model.answers.agent_response import AgentResponse, clean_text, response_to_json
from assay.parsing.names import kind_of


def read_answer(answer: object, problems: list[Problem]) -> dict[str, Any]:
    """Return the fields of an answer; report values that are not answers.

    Args:
        answer: A text, a number, a mapping with the fields of an answer, or an answer.
        problems: Receives what is wrong.
    """
    if isinstance(answer, AgentResponse):
        return response_to_json(answer)
    if isinstance(answer, Mapping):
        return dict(answer)
    text = _text(_plain(answer))
    if text is None:
        problems.append(Problem(f"must be a string, a number or a mapping, not {_kind(answer)}", "answer"))
    # As in a run: what no store takes is replaced in an answer, and refused in a case.
    return {"text": clean_text(text or "")}


def read_references(reference: object, problems: list[Problem]) -> list[str] | None:
    """Return the references as texts, None if there are none; report values that are not references.

    Args:
        reference: A text or a number, or a list, set or array of them.
        problems: Receives what is wrong.
    """
    given = _plain(reference)
    if given is None:
        return None
    is_list = isinstance(given, Sequence | Set) and not isinstance(given, str | bytes | bytearray | memoryview)
    items: list[object] = list(given) if is_list else [given]  # type: ignore[call-overload]  # it is a list or a set
    texts = []
    for index, item in enumerate(items):
        text = _text(_plain(item))
        if text is None:
            where = f"reference[{index}]" if is_list else "reference"
            problems.append(Problem(f"must be a string or a number, or a list of these, not {_kind(item)}", where))
        else:
            texts.append(text)
    return texts


def _plain(value: object) -> object:
    """Return a number or array of numpy, or a data frame's column, as a Python value."""
    convert = getattr(value, "tolist", None)
    return convert() if callable(convert) and not isinstance(value, type | memoryview) else value


def _text(value: object) -> str | None:
    """Return a text, number or boolean as a text; None for anything else."""
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, int | float | Decimal) and (isinstance(value, int) or math.isfinite(value)):
            return str(value)
    except ValueError:
        pass  # more digits than Python writes
    return None


def _kind(value: object) -> str:
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        return f"{value}: leave it out where there is none"
    return kind_of(value)
