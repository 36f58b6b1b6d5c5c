"""Assay's own reports: the rows of results.json and results.jsonl, whose answers are recorded ones."""

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
"""Canonical field to the format's own."""

_MARKS = frozenset(("case_id", "repeat", "status", "question", "answer", "scores", "response"))
_RESULTS = (
    *_MARKS, "run_id", "passed", "reason", "references", "expected", "latency_ms", "started_at", "duration_ms", "turns",
    "repeats", "num_tokens", "hit_rate", "mrr", "judge_score", "combined_score",
)  # fmt: skip
"""What a report adds to a case, and what `convert` reads itself."""
_REPEATS = "repeats"
_OF_A_TURN = ("expected_sources", "expected_tools")


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a row of a report.

    Args:
        record: The record by snake-case names.
        keys: These names.
    """
    return keys >= _MARKS and isinstance(record["scores"], Mapping)


def gathered(records: Iterable[Record]) -> Iterator[Record]:
    """Yield a record for each case: rows that follow each other and have one id are its repeats."""
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
    one, other = before.data, record.data
    return one.get("case_id") == other.get("case_id") and one.get("repeat") != other.get("repeat")


def _joined(rows: list[Record]) -> Record:
    first = rows[0]
    if len(rows) == 1:
        return first
    data = {**first.data, _REPEATS: [row.data for row in rows]}
    suspect = any(row.suspect for row in rows)
    return first._replace(data=data, size=sum(row.size for row in rows), suspect=suspect)


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of the rows of a case: question, references and, of each repeat, its answer.

    What was scored is left out: it is scored again.

    Raises:
        BadRecordError: An answer is not in the report.
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
    """Return what the case of a row, or a turn, expects beside references; reports have the names of datasets."""
    found = row.get("expected") or {}
    if not isinstance(found, Mapping):
        raise BadRecordError(f"must be an object, not {shown(found)}", "expected")
    return dict(found)


def _answer(row: Mapping[str, Any]) -> dict[str, Any]:
    turns = _turns(row)
    if not turns:
        return _response(row)
    if any(turn.get("left_out") for turn in turns):
        raise BadRecordError("was too long for the report: score the stored run with `assay rescore RUN`", "turns")
    return {"turns": [_response(turn) for turn in turns if turn.get("status") is not None]}


def _response(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer as datasets record it, of a row or a turn."""
    found = row.get("response") or {}
    if not isinstance(found, Mapping):
        raise BadRecordError(f"must be an object, not {shown(found)}", "response")
    latency = {"latency_ms": row["latency_ms"]} if row.get("latency_ms") is not None else {}
    return {"status": row.get("status"), "text": row.get("answer") or "", **latency, **found}
