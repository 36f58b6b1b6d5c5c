"""Assay's own reports: the rows of results.json and results.jsonl, with their answers as recorded answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from assay.datasets.foreign.parts import Parts
from assay.datasets.records import BadRecordError, shown

if TYPE_CHECKING:
    from assay.datasets.records import Record

NAME = "assay-results"

FIELDS = {
    "id": "case_id",
    "input": "question",
    "turns": "turns",
    "references": "references",
    "recorded": "answer",
    "category": "category",
    "tags": "tags",
    "weight": "weight",
}
"""The format's own field names, by canonical field."""

_MARKS = frozenset(("case_id", "repeat", "status", "question", "answer", "scores", "response"))
_RESULTS = (
    *_MARKS, "schema", "run_id", "passed", "message", "references", "expected", "latency_ms", "started_at",
    "duration_ms", "turns", "repeats", "num_tokens", "hit_rate", "mrr", "judge_score", "combined_score",
)  # fmt: skip
"""The fields that a report adds to a case, and the fields that `convert` reads."""
_REPEATS = "repeats"
_OF_A_TURN = ("expected_sources", "expected_tools")


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a report row.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    return keys >= _MARKS and isinstance(record["scores"], Mapping)


def gathered(records: Iterable[Record]) -> Iterator[Record]:
    """Yield a record per case; consecutive rows with the same id are its repeats."""
    rows: list[Record] = []
    for record in records:
        if rows and not _is_repeat(rows[-1], record):
            yield _joined(rows)
            rows = []
        rows.append(record)
    if rows:
        yield _joined(rows)


def _is_repeat(before: Record, record: Record) -> bool:
    if not isinstance(before.data, Mapping) or not isinstance(record.data, Mapping):
        return False
    previous, current = before.data, record.data
    return previous.get("case_id") == current.get("case_id") and previous.get("repeat") != current.get("repeat")


def _joined(rows: list[Record]) -> Record:
    first = rows[0]
    if len(rows) == 1:
        return first
    data = {**first.data, _REPEATS: [row.data for row in rows]}
    suspect = any(row.suspect for row in rows)
    return first._replace(data=data, size=sum(row.size for row in rows), suspect=suspect)


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record for a case's rows: question, references and every repeat's answer.

    Scores are dropped because the answers are scored again.

    Raises:
        BadRecordError: The report lacks an answer.
    """
    rows = record[_REPEATS] if isinstance(record.get(_REPEATS), list) else [record]
    answers = [_answer(row) for row in rows if isinstance(row, Mapping)]
    plain: dict[str, Any] = {"id": record.get("case_id")}
    if turns := _turns(record):
        plain["turns"] = [
            {"input": turn.get("question", ""), "references": turn.get("references") or [], **_expected(turn)}
            for turn in turns
        ]
        plain |= {name: value for name, value in _expected(record).items() if name not in _OF_A_TURN}
    else:
        plain |= {"input": record.get("question"), "references": record.get("references") or [], **_expected(record)}
    plain["recorded"] = answers if len(answers) > 1 else answers[0] if answers else None
    parts = Parts(record)
    for name in (*_RESULTS, *(["weight"] if record.get("weight") == 1.0 else [])):
        parts.take(name)
    return parts.finish(plain)


def _turns(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    turns = row.get("turns") or []
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        raise BadRecordError(f"must be a list of objects, not {shown(turns)}", "turns")
    return turns


def _expected(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the expectations of a row or turn besides references; reports use the names of datasets."""
    expected = row.get("expected") or {}
    if not isinstance(expected, Mapping):
        raise BadRecordError(f"must be an object, not {shown(expected)}", "expected")
    return dict(expected)


def _answer(row: Mapping[str, Any]) -> dict[str, Any]:
    turns = _turns(row)
    if not turns:
        return _response(row)
    if any(turn.get("left_out") for turn in turns):
        raise BadRecordError("was too long for the report: score the stored run with `assay rescore RUN`", "turns")
    return {"turns": [_response(turn) for turn in turns if turn.get("status") is not None]}


def _response(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a row or turn in the form of datasets."""
    response = row.get("response") or {}
    if not isinstance(response, Mapping):
        raise BadRecordError(f"must be an object, not {shown(response)}", "response")
    latency = {"latency_ms": row["latency_ms"]} if row.get("latency_ms") is not None else {}
    return {"status": row.get("status"), "text": row.get("answer") or "", **latency, **response}
