"""Queries about the usage of a run's rows: answers, tokens, money, time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay_orchestrator.store import schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How much a run has stored.

    Args:
        cases: Cases with a row.
        rows: Rows.
        answers: Agent answers; conversations have more than one per row.
        last_stored_at: When the last row was stored, ISO 8601; empty without rows.
    """

    cases: int
    rows: int
    answers: int
    last_stored_at: str


def read_counts(connection: sa.Connection, run_id: str) -> RowCounts:
    """Count a run's stored cases, rows and answers."""
    rows, answers = schema.results.c, schema.answers.c
    cases, count, last = connection.execute(
        sa.select(sa.func.count(sa.distinct(rows.case_index)), sa.func.count(), sa.func.max(rows.created_at)).where(
            rows.run_id == run_id
        )
    ).one()
    answer_count = connection.execute(sa.select(sa.func.count()).where(answers.run_id == run_id)).scalar_one()
    return RowCounts(cases, count, answer_count, last or "")


def read_usage(connection: sa.Connection, run_id: str) -> Iterator[Mapping[str, Any]]:
    """Yield the usage that the answers of a run report."""
    table = schema.answers.c
    query = sa.select(table.response_json).where(table.run_id == run_id, table.response_json.like('%"usage"%'))
    for text in connection.execute(query).yield_per(1000).scalars():
        if usage := json.loads(text).get("usage"):
            yield usage
