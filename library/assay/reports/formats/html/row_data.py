"""Row data of the page: an entry for lists, and the texts shown when a case is opened."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any

from assay.filters.row_filter import RowOutcome
from assay.reports.document.row_outcome import outcome_of
from assay.reports.formats.html.word_diff import differences
from assay.reports.words.expected_text import expected_parts
from assay.text.unsafe_text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OUTCOMES = tuple(outcome.value for outcome in RowOutcome)
MAX_TEXT_CHARS = 20_000
"""The most characters of a text on the page; results.json has the whole text."""
MIN_TEXT_CHARS = 200
"""The number of characters to which texts of a large report are cut at most."""
_PREVIEW_CHARS = 140
_COMMAND = re.compile(r"#(?=#\w*\[)")
_MOST_STEPS_BACK = 32
_JOINER = "\u200d"
_VIRAMA = 9  # the combining class of signs that join two letters of an Indic script
_SKIN_TONES = range(0x1F3FB, 0x1F400)

Text = str | tuple[str, int]
"""A text; a cut one comes with its full length."""


def entry_of(row: Mapping[str, Any], metrics: Sequence[str]) -> list[Any]:
    """Return the data of a row that lists show and filters compare.

    Returns:
        Case, repeat, number of the outcome in `OUTCOMES`, category, tags, latency in ms, the value of each of the
        metrics, the beginning of the question, and the agent's status.
    """
    return [
        row["case_id"],
        row["repeat"],
        OUTCOMES.index(outcome_of(row)),
        row["category"],
        row["tags"],
        row["latency_ms"],
        [row["scores"].get(name, {}).get("value") for name in metrics],
        preview(row["question"]),
        row["status"],
    ]


def detail_of(row: Mapping[str, Any], max_bytes: int) -> str:
    """Return the texts and figures of an opened row as JSON.

    Args:
        row: A row of the document.
        max_bytes: The size to which texts are cut, though never below `MIN_TEXT_CHARS` each.
    """
    return fitted(lambda limit: _detail(row, limit), max_bytes)[1]


def fitted(document_of: Callable[[int], dict[str, Any]], max_bytes: int) -> tuple[dict[str, Any], str]:
    """Return a document whose texts are cut until its JSON fits into a size, and the JSON.

    Args:
        document_of: Returns the document with texts of at most a number of characters.
        max_bytes: The largest size of the JSON, though texts are never cut below `MIN_TEXT_CHARS`.
    """
    limit = MAX_TEXT_CHARS
    while True:
        document = document_of(limit)
        text = json.dumps(document, ensure_ascii=False)
        if limit <= MIN_TEXT_CHARS or len(text.encode("utf-8", "surrogatepass")) <= max_bytes:
            return document, text
        limit = max(limit // 2, MIN_TEXT_CHARS)


def preview(question: str) -> str:
    """Return the beginning of a question in one line."""
    line = " ".join(question[: 4 * _PREVIEW_CHARS].split())
    start, _ = cut_text(line, _PREVIEW_CHARS)
    return line if len(line) <= _PREVIEW_CHARS else start.rstrip() + "…"


def _detail(row: Mapping[str, Any], limit: int) -> dict[str, Any]:
    detail = {
        **_exchange(row, limit),
        "category": row["category"],
        "tags": row["tags"],
        "weight": row["weight"],
        "message": limited_text(row["message"], limit),
        "started_at": row.get("started_at"),
        "duration_ms": row.get("duration_ms"),
    }
    answer, references = row["answer"], row["references"]
    if outcome_of(row) is RowOutcome.FAILED and answer and references:
        # Marks refer to positions in the texts as shown, so the cut texts are compared.
        detail["differences"] = differences(cut_text(answer, limit)[0], cut_text(references[0], limit)[0])
    if row.get("turns"):
        of_turn = row["turns"][-1].get("expected") or {}
        of_case = {name: value for name, value in (row.get("expected") or {}).items() if name not in of_turn}
        detail["expected"] = _expected(of_case, limit)
        detail["turns"] = [{**_exchange(turn, limit), "left_out": turn.get("left_out", False)} for turn in row["turns"]]
    return detail


def _exchange(part: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return the data that rows and turns of conversations share."""
    return {
        "question": limited_text(part["question"], limit),
        "answer": limited_text(part["answer"], limit),
        "references": [limited_text(reference, limit) for reference in part["references"]],
        "expected": _expected(part.get("expected") or {}, limit),
        "status": part["status"],
        "latency_ms": part.get("latency_ms"),
        "scores": {name: _score(score, limit) for name, score in part["scores"].items()},
        "response": _response(part.get("response") or {}, limit),
    }


def _expected(expected: Mapping[str, Any], limit: int) -> list[tuple[str, Text | None]]:
    return [(name, limited_text(text, limit)) for name, text in expected_parts(expected)]


def _score(score: Mapping[str, Any], limit: int) -> dict[str, Any]:
    detail = score["detail"]
    judgements = score.get("judgements") or []
    reasoning = "\n".join(filter(None, (judgement.get("reasoning") for judgement in judgements)))
    rest = {key: value for key, value in detail.items() if key != "reasoning"}
    if judgements:
        rest["judgements"] = [
            {key: value for key, value in judgement.items() if key != "reasoning"} for judgement in judgements
        ]
    message = score["message"] or None
    return {
        "value": score["value"],
        "status": score["status"],
        "passed": score["passed"],
        "message": limited_text(message, limit),
        "reasoning": limited_text(reasoning or detail.get("reasoning"), limit),
        "detail": limited_text(rest, limit) if rest else None,
    }


def _response(response: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return the agent's response besides its text: lists as small tables, other values as texts."""
    document: dict[str, Any] = {}
    for name, value in response.items():
        match name:
            case "tool_calls" | "sources" | "retrieved" | "interrupts" if isinstance(value, list):
                document[name] = [{key: limited_text(part, limit) for key, part in item.items()} for item in value]
            case "attempts" if isinstance(value, list):
                document[name] = [{"latency_ms": item["latency_ms"], **_error(item["error"], limit)} for item in value]
            case "error":
                document[name] = _error(value, limit)
            case "usage":
                document[name] = value
            case _:
                document[name] = limited_text(value, limit)
    return document


def _error(error: Mapping[str, Any], limit: int) -> dict[str, Any]:
    return {key: limited_text(value, limit) for key, value in error.items()}


def limited_text(value: Any, limit: int) -> Text | None:
    """Return a value as text of at most `limit` characters; a value other than a text becomes JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= limit else cut_text(text, limit)


def cut_text(text: str, limit: int) -> tuple[str, int]:
    """Return the beginning of a text, which never ends within a composed character, and the length of the text."""
    if len(text) <= limit:
        return text, len(text)
    end = limit
    while end > max(limit - _MOST_STEPS_BACK, 1) and (_continues(text[end]) or _joins(text[end - 1])):
        end -= 1
    return text[:end], len(text)


def _joins(char: str) -> bool:
    return char == _JOINER or unicodedata.combining(char) == _VIRAMA


def _continues(char: str) -> bool:
    return char == _JOINER or unicodedata.category(char)[0] == "M" or ord(char) in _SKIN_TONES


def script_json(text: str) -> str:
    """Return JSON escaped for a script element of an HTML page.

    It can neither end the element or a comment nor be a command to a CI server whose job prints the page.
    """
    return _COMMAND.sub("\\\\u0023", escaped(text, keep_lines=True).replace("<", "\\u003c"))
