"""How large a case may be: the same for whoever reads a dataset and for whoever stores it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from assay.answer_limits import AnswerTooLargeError, check_bounds
from assay.answers import MalformedAnswerError, response_to_json
from assay.cases import case_to_json

if TYPE_CHECKING:
    from assay.cases import Case

__all__ = ["MAX_CASE_BYTES", "excess"]

MAX_CASE_BYTES = 1024 * 1024
"""Largest case as JSON, its recorded answer aside: with an answer, its row must fit in one message."""


def excess(case: Case) -> str:
    """Return what of a case is too large, or the empty text.

    A recorded answer has the limits of an agent's.
    """
    if case.recorded is not None:
        try:
            check_bounds(response_to_json(case.recorded))
        except AnswerTooLargeError as problem:
            return f"{problem}: shorten it"
        except MalformedAnswerError as problem:
            return f"its recorded answer is malformed: {problem}"
        case = dataclasses.replace(case, recorded=None)
    size = len(json.dumps(case_to_json(case), ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size <= MAX_CASE_BYTES:
        return ""
    return f"is larger than {MAX_CASE_BYTES // 1024**2} MiB: shorten it, or leave fields out"
