"""The rows of a run for comparisons: scores and keys, read page by page, without answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.model.answers.agent_response import AgentStatus
from assay_orchestrator.store import schema
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.rows.row_conditions import RowConditions
from assay_orchestrator.store.runs import datasets, runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.filters.row_filter import RowFilter
    from assay.model.scope import Scope

_PAGE = 5_000
_ROWS = schema.results


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A row of a run.

    Args:
        case_index: Position of its case.
        repeat: Its repeat, from 1.
        case_id: The id of its case.
        category: The category of its case.
        tags: The tags of its case.
        status: The status that the agent reported.
        passed: Its verdict.
        latency_ms: Wall time of the agent.
        values: Its scores by metric; None for a value missing because of an error. Skipped metrics are absent.
        usage: The usage of its answer, as stored; empty unless requested.
    """

    case_index: int
    repeat: int
    case_id: str
    category: str
    tags: Sequence[str]
    status: AgentStatus
    passed: bool | None
    latency_ms: float | None
    values: Mapping[str, float | None]
    usage: Mapping[str, Any]


def read_scored(connection: sa.Connection, scope: Scope, run_id: str, *, with_usage: bool) -> Iterator[list[ScoredRow]]:
    """Yield the rows of a run in dataset order, page by page.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted.
    """
    runs.require_run(connection, scope, run_id)
    table = _ROWS.c
    columns = (table.case_index, table.repeat, table.case_id, table.category, table.tags_json, table.status,
               table.passed, table.latency_ms, table.values_json)  # fmt: skip
    key = sa.tuple_(table.case_index, table.repeat)
    query = sa.select(*columns).where(table.run_id == run_id).order_by(table.case_index, table.repeat)
    after = (-1, -1)
    while True:
        bound = sa.tuple_(*(sa.literal(index, sa.BigInteger) for index in after))
        page = connection.execute(query.where(key > bound).limit(_PAGE)).all()
        if not page:
            return
        usage = _usage(connection, run_id, page[0][0], page[-1][0]) if with_usage else {}
        yield [
            ScoredRow(
                case_index, repeat, case_id, category, json.loads(tags) if tags != "[]" else (),
                AgentStatus(status), passed, latency_ms, json.loads(values),
                usage.get((case_index, repeat), {}),
            )
            for case_index, repeat, case_id, category, tags, status, passed, latency_ms, values in page
        ]  # fmt: skip
        after = (page[-1][0], page[-1][1])


def _usage(connection: sa.Connection, run_id: str, first: int, last: int) -> dict[tuple[int, int], Mapping[str, Any]]:
    """Return the usage of each row's last answer, by row."""
    table = schema.answers.c
    field = schema.json_field(connection, table.response_json, "usage")
    # JSON is parsed only if its text contains the field.
    usage = sa.case((table.response_json.like('%"usage"%'), field), else_=None)
    answer_rows = connection.execute(
        sa.select(table.case_index, table.repeat, usage)
        .where(table.run_id == run_id, table.case_index.between(first, last))
        .order_by(table.case_index, table.repeat, table.turn_index)
    )
    return {(case_index, repeat): (json.loads(text) or {}) if text else {} for case_index, repeat, text in answer_rows}


def find_keys(connection: sa.Connection, scope: Scope, run_id: str, row_filter: RowFilter) -> set[tuple[int, int]]:
    """Return case index and repeat of the rows of a run that match a filter.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted.
    """
    runs.require_run(connection, scope, run_id)
    conditions = RowConditions(connection, run_id).met_by(row_filter)
    rows = connection.execute(sa.select(_ROWS.c.case_index, _ROWS.c.repeat).where(*conditions))
    return {(row[0], row[1]) for row in rows}


def read_last_turns(
    connection: sa.Connection, scope: Scope, run_id: str, indexes: Sequence[int]
) -> dict[int, tuple[str, tuple[str, ...]]]:
    """Return question and references of the last turn of a run's cases at some ascending positions.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted.
    """
    runs.require_run(connection, scope, run_id)
    questions = datasets.read_questions(connection, run_id, indexes)
    return {
        at: (case_questions.turns[-1].input, case_questions.turns[-1].references)
        for at, case_questions in questions.items()
    }


def read_first_answers(connection: sa.Connection, scope: Scope, run_id: str, indexes: Sequence[int]) -> dict[int, str]:
    """Return the last answer of the first repeat of a run's cases at some ascending positions, if there is any.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted.
    """
    runs.require_run(connection, scope, run_id)
    first: dict[int, str] = {}
    for (case_index, _), turns in sorted(results.read_answers(connection, run_id, indexes).items(), key=itemgetter(0)):
        first.setdefault(case_index, turns[-1].text)
    return first
