"""Queries about attempts at rows: archived results of retried rows, and attempts that a kill interrupted.

The current result of a row is in `results`; its earlier attempts are here.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.metrics.core.score import score_from_json, score_to_json
from assay.model.answers.agent_response import FAILED_STATUSES, AgentStatus, response_from_json, response_to_json
from assay.model.run import AttemptOutcome, RowAttempt, RowResult, ScoreStatus
from assay.storage.texts import json_text
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.shards import shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.model.answers.agent_response import AgentResponse
    from assay_orchestrator.store.rows.results import RowKey
    from assay_orchestrator.store.shards.shards import Shard

AttemptKey = tuple[int, int, int]
"""Position of the case in the dataset, repeat, and attempt."""


@dataclass(frozen=True, slots=True)
class RowAttempts:
    """Earlier attempts at a row.

    Args:
        retried: Archived results.
        interrupted: Attempts that a kill interrupted.
    """

    retried: int = 0
    interrupted: int = 0


def count_attempts(connection: sa.Connection, run_id: str, first_index: int, count: int) -> dict[RowKey, RowAttempts]:
    """Return earlier attempts at the rows of `count` cases from `first_index` on; rows without any are omitted."""
    table = schema.row_history
    rows = connection.execute(
        sa.select(table.c.case_index, table.c.repeat, table.c.outcome, sa.func.count())
        .where(table.c.run_id == run_id, table.c.case_index >= first_index, table.c.case_index < first_index + count)
        .group_by(table.c.case_index, table.c.repeat, table.c.outcome)
    ).all()
    attempts: dict[RowKey, RowAttempts] = {}
    for case_index, repeat, outcome, number in rows:
        key = (case_index, repeat)
        attempts[key] = dataclasses.replace(attempts.get(key, RowAttempts()), **{outcome: number})
    return attempts


def count_repeated(connection: sa.Connection, run_id: str) -> tuple[int, int]:
    """Return how many rows of a run were asked again after errors, and how many were only rescored."""
    table = schema.row_history.c
    status = schema.json_field(connection, table.result_json, "status")
    was_asked = sa.func.max(sa.case((status.in_(FAILED_STATUSES), 1), else_=0)).label("asked")
    rows = (
        sa.select(was_asked)
        .where(table.run_id == run_id, table.outcome == AttemptOutcome.RETRIED.value)
        .group_by(table.case_index, table.repeat)
        .subquery()
    )
    total, asked_again = connection.execute(sa.select(sa.func.count(), sa.func.sum(rows.c.asked))).one()
    return asked_again or 0, total - (asked_again or 0)


def journal_attempts(connection: sa.Connection, run_id: str, keys: Sequence[AttemptKey]) -> None:
    """Journal attempts as they begin; after a kill, the attempts still in the journal were interrupted."""
    if keys:
        moment = now()
        connection.execute(
            schema.row_history.insert(),
            [
                {**_columns(run_id, key), "outcome": AttemptOutcome.INTERRUPTED.value, "created_at": moment}
                for key in keys
            ],
        )


def clear_journal(connection: sa.Connection, run_id: str, keys: Iterable[AttemptKey]) -> None:
    """Remove attempts from the journal that have a result or were cancelled."""
    table = schema.row_history
    for case_index, repeat, attempt_index in keys:
        connection.execute(
            table.delete().where(
                table.c.run_id == run_id,
                table.c.case_index == case_index,
                table.c.repeat == repeat,
                table.c.attempt_index == attempt_index,
            )
        )


def has_errors(connection: sa.Connection, run_id: str, max_attempts: int) -> bool:
    """Return whether a run has rows that `archive_failed_rows` would archive."""
    after: RowKey = (-1, -1)
    while page := results.read_in_order(connection, run_id, after, _PAGE_ROWS, suspects_only=True):
        if _retryable(connection, run_id, page, max_attempts):
            return True
        after = (page[-1].case_index, page[-1].repeat)
    return False


_PAGE_ROWS = 200


def request_retry(connection: sa.Connection, run_id: str) -> None:
    """Mark the shards of a run with failed rows: each archives its own rows when it next starts.

    Archiving the rows of a whole run at once would lock the run for too long.
    """
    table, rows = schema.shards, schema.results
    errors = sa.exists().where(shards.is_in_shard(rows), results.may_have_error())
    # A shard in work stays with its worker: it is not done while its failed rows are marked, so it is started again.
    state = sa.case((table.c.state.in_(shards.IN_WORK), table.c.state), else_="waiting")
    connection.execute(table.update().where(table.c.run_id == run_id, errors).values(retry_errors=True, state=state))


def is_retry_requested(connection: sa.Connection, run_id: str) -> bool:
    """Return whether a shard of a run must archive failed rows when it next starts."""
    table = schema.shards
    requested = sa.exists().where(table.c.run_id == run_id, table.c.retry_errors)
    return bool(connection.execute(sa.select(requested)).scalar_one())


def archive_failed_rows(connection: sa.Connection, shard: Shard, max_attempts: int) -> None:
    """Archive the results in a shard whose agent failed or that lack a metric's value because of an error.

    If the agent failed, its answers are archived too, so that the row is asked again; other answers stay.

    Args:
        connection: The transaction that starts the shard and has locked its run.
        shard: The shard.
        max_attempts: Rows with this many attempts keep their result.
    """
    run_id, end = shard.run_id, shard.first_case + shard.case_count
    after: RowKey = (shard.first_case, -1)
    while page := results.read_in_order(connection, run_id, after, _PAGE_ROWS, suspects_only=True, before_case=end):
        if rows := _retryable(connection, run_id, page, max_attempts):
            _archive_rows(connection, run_id, rows)
        after = _key(page[-1])
    shards.change_shard(connection, run_id, shard.shard_index, retry_errors=False)


def _archive_rows(connection: sa.Connection, run_id: str, rows: Sequence[RowResult]) -> None:
    indexes = sorted({row.case_index for row in rows})
    answers = results.read_answers(connection, run_id, indexes)
    number = count_attempts(connection, run_id, indexes[0], indexes[-1] - indexes[0] + 1)
    moment = now()
    connection.execute(
        schema.row_history.insert(),
        [
            {
                **_columns(run_id, (*_key(row), _attempt_index(number.get(_key(row), RowAttempts())))),
                "outcome": AttemptOutcome.RETRIED.value,
                "answers_json": json_text([response_to_json(answer) for answer in answers.get(_key(row), ())]),
                "result_json": json_text(_result_to_json(row)),
                "created_at": moment,
            }
            for row in rows
        ],
    )
    results.remove_rows(connection, run_id, rows)


def read_attempts(connection: sa.Connection, run_id: str, case_index: int) -> list[RowAttempt]:
    """Return every attempt at the rows of a case, by repeat, oldest first, the current attempt last."""
    table = schema.row_history
    rows = connection.execute(
        sa.select(table)
        .where(table.c.run_id == run_id, table.c.case_index == case_index)
        .order_by(table.c.repeat, table.c.attempt_index)
    ).all()
    attempts = [_attempt(row) for row in rows]
    answers = results.read_answers(connection, run_id, [case_index])
    for row, at in results.read_case(connection, run_id, case_index):
        before = sum(attempt.repeat == row.repeat for attempt in attempts)
        result = dataclasses.replace(row, response=_last(answers.get(_key(row), ())))
        attempts.append(RowAttempt(row.repeat, before, AttemptOutcome.CURRENT, at, result))
    return sorted(attempts, key=lambda attempt: (attempt.repeat, attempt.attempt_index))


def _retryable(connection: sa.Connection, run_id: str, page: Sequence[RowResult], max_attempts: int) -> list[RowResult]:
    first = page[0].case_index
    number = count_attempts(connection, run_id, first, page[-1].case_index - first + 1)
    return [
        row
        for row in page
        if (row.status.is_failed or any(score.status is ScoreStatus.ERROR for score in row.scores))
        and number.get(_key(row), RowAttempts()).retried + 1 < max_attempts
    ]


def _key(row: RowResult) -> RowKey:
    return row.case_index, row.repeat


def _attempt_index(number: RowAttempts) -> int:
    return number.retried + number.interrupted


def _columns(run_id: str, key: AttemptKey) -> dict[str, Any]:
    return {"run_id": run_id, "case_index": key[0], "repeat": key[1], "attempt_index": key[2]}


def _result_to_json(row: RowResult) -> dict[str, Any]:
    return {
        "case_id": row.case_id,
        "category": row.category,
        "status": row.status.value,
        "passed": row.passed,
        "scores": [score_to_json(score) for score in row.scores],
        "latency_ms": row.latency_ms,
        "message": row.message,
        "sequence": row.sequence,
        "tags": list(row.tags),
        "weight": row.weight,
        "started_at": row.started_at,
        "duration_ms": row.duration_ms,
    }


def _attempt(row: Any) -> RowAttempt:
    result = None
    if row.result_json is not None:
        data = json.loads(row.result_json)
        answers = [response_from_json(answer) for answer in json.loads(row.answers_json or "[]")]
        result = RowResult(
            **{
                **data,
                "case_index": row.case_index,
                "repeat": row.repeat,
                "status": AgentStatus(data["status"]),
                "scores": tuple(map(score_from_json, data["scores"])),
                "tags": tuple(data["tags"]),
                "response": _last(answers),
            }
        )
    return RowAttempt(row.repeat, row.attempt_index, AttemptOutcome(row.outcome), row.created_at, result)


def _last(answers: Sequence[AgentResponse]) -> AgentResponse | None:
    return answers[-1] if answers else None
