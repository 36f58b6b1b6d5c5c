"""Queries about answers and results: the rows of a run."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.sql import dml

from assay.metrics.core.score import score_from_json, score_to_json
from assay.model.answers.agent_response import (
    FAILED_STATUSES,
    AgentResponse,
    AgentStatus,
    response_from_json,
    response_to_json,
)
from assay.model.run import RowResult, RunState, ScoreStatus
from assay.storage.bulk import insert_rows
from assay.storage.texts import json_text
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.shards import shards

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay_orchestrator.store.runs.runs import RunRecord

_PLAIN_FIELDS = {"status", "text", "latency_ms"}
_STATUSES = {status.value: status for status in AgentStatus}
_COUNTS = (
    "last_sequence", "finished_count", "passed_count", "failed_count", "agent_error_count", "interrupted_count",
    "removed_count",
)  # fmt: skip
"""The columns of a run that change with its rows."""

RowKey = tuple[int, int]
"""Position of the case in the dataset, and repeat."""


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """An agent's answer to one turn of a row."""

    case_index: int
    repeat: int
    turn_index: int
    response: AgentResponse


@dataclass(frozen=True, slots=True)
class Stored:
    """What storing rows returned.

    Args:
        first_sequence: Sequence number of the first result; 0 without results.
        slots: How many questions of each shard may be in flight by now.
        size_bytes: The size of the answers and results.
    """

    first_sequence: int
    slots: Mapping[int, int]
    size_bytes: int = 0


def put_rows(
    connection: sa.Connection,
    run_id: str,
    new_answers: Sequence[AnswerRecord],
    new_results: Sequence[RowResult],
    epochs: Mapping[int, int],
) -> Stored:
    """Store answers and results; results get the run's next sequence numbers, in the order of the argument.

    Args:
        connection: The transaction.
        run_id: The run.
        new_answers: Answers that are not stored yet.
        new_results: Results that are not stored yet.
        epochs: The epoch of every shard that has some of the rows; it proves the right to store them.

    Returns:
        The first sequence number, the shards' slots, and the stored size.

    Raises:
        FencedError: Another worker has one of the shards; nothing is stored.
        RunStoppedError: The run was cancelled or deleted; nothing is stored.
    """
    moment, first, size_bytes = now(), 0, 0
    if new_results:
        shards.require_active(connection, run_id)
    slots = shards.require_epochs(connection, run_id, epochs)
    if new_answers:
        values = [_answer_values(run_id, moment, answer) for answer in new_answers]
        insert_rows(connection, schema.answers, values)
        size_bytes += _size_bytes(values, "response_json", "answer_text")
    if new_results:
        first = _count(connection, run_id, [(row.status, row.passed) for row in new_results]) - len(new_results) + 1
        values = [_values(run_id, first + offset, moment, row) for offset, row in enumerate(new_results)]
        insert_rows(connection, schema.results, values)
        size_bytes += _size_bytes(values, "scores_json")
        _store_values(connection, run_id, first)
    return Stored(first, slots, size_bytes)


def _size_bytes(rows: Sequence[Mapping[str, Any]], *columns: str) -> int:
    texts = (row[name] for row in rows for name in columns)
    return sum(len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in texts)


def without_stored(
    connection: sa.Connection, run_id: str, new_answers: Sequence[AnswerRecord], new_results: Sequence[RowResult]
) -> tuple[Sequence[AnswerRecord], Sequence[RowResult]]:
    """Return the answers and results that are not stored yet: a commit may have succeeded unnoticed."""
    answered = _stored_keys(connection, schema.answers, run_id, ("case_index", "repeat", "turn_index"), new_answers)
    finished = _stored_keys(connection, schema.results, run_id, ("case_index", "repeat"), new_results)
    answers = [
        answer for answer in new_answers if (answer.case_index, answer.repeat, answer.turn_index) not in answered
    ]
    return answers, [row for row in new_results if (row.case_index, row.repeat) not in finished]


def _stored_keys(
    connection: sa.Connection,
    table: sa.Table,
    run_id: str,
    columns: Sequence[str],
    rows: Sequence[AnswerRecord] | Sequence[RowResult],
) -> set[tuple[int, ...]]:
    if not rows:
        return set()
    positions = schema.at_positions(table.c.case_index, sorted({row.case_index for row in rows}))
    query = sa.select(*(table.c[name] for name in columns)).where(table.c.run_id == run_id, positions)
    return {tuple(row) for row in connection.execute(query)}


def remove_rows(connection: sa.Connection, run_id: str, rows: Sequence[RowResult]) -> None:
    """Remove results, so that their rows are unfinished again; failed agent answers are removed with them."""
    table = schema.results
    _remove_values(connection, run_id, rows)
    removed = connection.execute(
        table.delete().where(*_are(table, run_id, rows)).returning(table.c.status, table.c.passed)
    ).all()
    _count(connection, run_id, [(row.status, row.passed) for row in removed], sign=-1)
    failed = [row for row in rows if row.status.is_failed]
    if failed:
        connection.execute(schema.answers.delete().where(*_are(schema.answers, run_id, failed)))


def _are(table: sa.Table, run_id: str, rows: Sequence[RowResult]) -> tuple[sa.ColumnElement[bool], ...]:
    keys = [(row.case_index, row.repeat) for row in rows]
    # By position too: SQLite cannot look up pairs in the primary key.
    positions = schema.at_positions(table.c.case_index, sorted({case_index for case_index, _ in keys}))
    return table.c.run_id == run_id, positions, sa.tuple_(table.c.case_index, table.c.repeat).in_(keys)


def _remove_values(connection: sa.Connection, run_id: str, rows: Sequence[RowResult]) -> None:
    table = schema.score_values.c
    keys = [
        {"of_metric": score.metric, "of_case": row.case_index, "of_repeat": row.repeat}
        for row in rows
        for score in row.scores
    ]
    if keys:  # row by row, by the primary key
        columns = table.metric, table.case_index, table.repeat
        by_key = [column == sa.bindparam(name) for column, name in zip(columns, keys[0], strict=True)]
        connection.execute(schema.score_values.delete().where(table.run_id == run_id, *by_key), keys)


def _store_values(connection: sa.Connection, run_id: str, first_sequence: int) -> None:
    """Store the values of new results metric by metric; SQL takes less time than another list of rows."""
    connection.execute(_values_insert(connection.dialect.name), {"of_run": run_id, "first": first_sequence})


@cache  # built once: building a statement takes several times as long as running it
def _values_insert(dialect: str) -> sa.Insert:
    table = schema.results.c
    if dialect == "postgresql":
        function = sa.func.json_each_text(sa.cast(table.values_json, sa.JSON))
    else:
        function = sa.func.json_each(table.values_json)
    entry = function.table_valued("key", "value", joins_implicitly=True)
    value = sa.cast(entry.c.value, sa.Float)
    scored = sa.select(table.run_id, entry.c.key, table.case_index, table.repeat, value)
    new = scored.where(
        table.run_id == sa.bindparam("of_run"), table.sequence >= sa.bindparam("first"), entry.c.value.is_not(None)
    )
    return schema.score_values.insert().from_select([column.name for column in schema.score_values.c], new)


def remove_orphaned_values(connection: sa.Connection, run_id: str) -> None:
    """Remove the values of missing results, as after damage, before the results are stored again."""
    table, rows = schema.score_values, schema.results.c
    own = rows.run_id == run_id, rows.case_index == table.c.case_index, rows.repeat == table.c.repeat
    connection.execute(table.delete().where(table.c.run_id == run_id, ~sa.exists().where(*own)))


def recounted(connection: sa.Connection, record: RunRecord) -> RunRecord:
    """Return a run with the counts of its stored rows if damage has made its own counts impossible."""
    parts = (record.passed_count, record.failed_count, record.agent_error_count, record.interrupted_count)
    largest = max(record.passed_count + record.failed_count, record.agent_error_count, record.interrupted_count)
    if min(parts) >= 0 and largest <= record.finished_count <= record.total_count:
        return record
    return dataclasses.replace(record, **_counts(connection, record.run_id))


def store_recount(connection: sa.Connection, run_id: str) -> None:
    """Replace the counts of a run by those of its stored rows."""
    table = schema.runs
    connection.execute(table.update().where(table.c.run_id == run_id).values(**_counts(connection, run_id)))


def _counts(connection: sa.Connection, run_id: str) -> dict[str, Any]:
    """Count the stored rows of a run, by the names of the counts."""
    table = schema.results
    counts = (
        connection.execute(
            sa.select(
                sa.func.count().label("finished_count"),
                sa.func.count().filter(table.c.passed.is_(True)).label("passed_count"),
                sa.func.count().filter(table.c.passed.is_(False)).label("failed_count"),
                sa.func.count().filter(table.c.status.in_(FAILED_STATUSES)).label("agent_error_count"),
                sa.func.count().filter(table.c.status == AgentStatus.INTERRUPTED.value).label("interrupted_count"),
            ).where(table.c.run_id == run_id)
        )
        .mappings()
        .one()
    )
    return dict(counts)


def finished_keys(connection: sa.Connection, run_id: str, first_index: int, count: int) -> set[RowKey]:
    """Return the rows among `count` cases from `first_index` on that have a result."""
    table = schema.results
    rows = connection.execute(
        sa.select(table.c.case_index, table.c.repeat).where(*_span(table, run_id, first_index, count))
    ).all()
    return {(row.case_index, row.repeat) for row in rows}


def stored_answers(
    connection: sa.Connection, run_id: str, first_index: int, count: int
) -> dict[RowKey, list[AgentResponse]]:
    """Return the stored answers to `count` cases from `first_index` on, turn by turn."""
    return _answers(connection, run_id, sa.and_(*_span(schema.answers, run_id, first_index, count)))


def read_answers(connection: sa.Connection, run_id: str, indexes: Sequence[int]) -> dict[RowKey, list[AgentResponse]]:
    """Return the stored answers to the cases at some positions, turn by turn."""
    return _answers(connection, run_id, schema.at_positions(schema.answers.c.case_index, indexes))


def _answers(
    connection: sa.Connection, run_id: str, where: sa.ColumnElement[bool]
) -> dict[RowKey, list[AgentResponse]]:
    table = schema.answers
    rows = connection.execute(
        sa.select(table.c.case_index, table.c.repeat, table.c.response_json, table.c.answer_text)
        .where(table.c.run_id == run_id, where)
        .order_by(table.c.case_index, table.c.repeat, table.c.turn_index)
    ).all()
    answers_by_row: dict[RowKey, list[AgentResponse]] = {}
    for case_index, repeat, rest, text in rows:
        answers_by_row.setdefault((case_index, repeat), []).append(_answer({**json.loads(rest), "text": text}))
    return answers_by_row


def _answer(data: dict[str, Any]) -> AgentResponse:
    """Return a stored answer; most are a text and a duration, and were checked on arrival."""
    if data.keys() <= _PLAIN_FIELDS and data["status"] not in FAILED_STATUSES:
        return AgentResponse(status=_STATUSES[data["status"]], text=data["text"], latency_ms=data.get("latency_ms"))
    return response_from_json(data)


def count_finished(connection: sa.Connection, run_id: str) -> int:
    """Count the stored results of a run."""
    table = schema.results
    query = sa.select(sa.func.count()).select_from(table).where(table.c.run_id == run_id)
    return connection.execute(query).scalar_one()


def with_answered(connection: sa.Connection, record: RunRecord) -> RunRecord:
    """Return a run with the number of its answered rows, which is counted only while the run is paused.

    A pause may come between an answer and its scores, so more rows may have an answer than a result.
    """
    if record.state is not RunState.PAUSED:
        return record
    return dataclasses.replace(record, answered_count=runs.count_answered(connection, record.run_id))


def read_sequence(connection: sa.Connection, run_id: str, after: int, count: int) -> list[RowResult]:
    """Return up to `count` results after a sequence number, in that order."""
    table = schema.results
    rows = connection.execute(
        sa.select(table)
        .where(table.c.run_id == run_id, table.c.sequence > after)
        .order_by(table.c.sequence)
        .limit(count)
    ).all()
    return [_record(row) for row in rows]


def read_case(connection: sa.Connection, run_id: str, case_index: int) -> list[tuple[RowResult, str]]:
    """Return the results of a case, by repeat, and when each was stored."""
    table = schema.results
    rows = connection.execute(
        sa.select(table).where(table.c.run_id == run_id, table.c.case_index == case_index).order_by(table.c.repeat)
    ).all()
    return [(_record(row), row.created_at) for row in rows]


def read_in_order(
    connection: sa.Connection,
    run_id: str,
    after: RowKey,
    count: int,
    *,
    suspects_only: bool = False,
    before_case: int | None = None,
) -> list[RowResult]:
    """Return up to `count` results after the row `after`, in dataset order.

    Args:
        connection: The store.
        run_id: The run.
        after: The row before the first; (-1, -1) for the beginning.
        count: Maximum number of results.
        suspects_only: Only rows that may have an agent or metric error; includes every row that has one.
        before_case: Only cases before this position; None for all.
    """
    table = schema.results
    query = (
        sa.select(table)
        .where(
            table.c.run_id == run_id,
            sa.tuple_(table.c.case_index, table.c.repeat) > _position(after),
        )
        .order_by(table.c.case_index, table.c.repeat)
        .limit(count)
    )
    if suspects_only:
        query = query.where(may_have_error())
    if before_case is not None:
        query = query.where(table.c.case_index < before_case)
    return [_record(row) for row in connection.execute(query).all()]


def read_rows(connection: sa.Connection, run_id: str, keys: Sequence[RowKey]) -> dict[RowKey, RowResult]:
    """Return the results with the given keys, by key."""
    if not keys:
        return {}
    table = schema.results
    cases, repeats = sorted({case for case, _ in keys}), {repeat for _, repeat in keys}
    # By cases and repeats: SQLite cannot look up pairs in the primary key.
    query = sa.select(table).where(
        table.c.run_id == run_id, schema.at_positions(table.c.case_index, cases), table.c.repeat.in_(repeats)
    )
    requested = set(keys)
    results_by_key = ((row.case_index, row.repeat, row) for row in connection.execute(query))
    return {(case, repeat): _record(row) for case, repeat, row in results_by_key if (case, repeat) in requested}


def may_have_error() -> sa.ColumnElement[bool]:
    """Return the condition that a result may have an agent or metric error; true for every result that has one."""
    table = schema.results
    failed_score = table.c.scores_json.like('%"status":"error"%')
    return sa.or_(table.c.status.in_(FAILED_STATUSES), failed_score)


def read_all(connection: sa.Connection, run_id: str, page_size: int = 1000) -> Iterator[RowResult]:
    """Yield every result of a run in dataset order, page by page."""
    after: RowKey = (-1, -1)
    while page := read_in_order(connection, run_id, after, page_size):
        yield from page
        after = (page[-1].case_index, page[-1].repeat)


def _position(key: RowKey) -> sa.Tuple:
    # Typed by hand: PostgreSQL would take small numbers for 32-bit integers.
    return sa.tuple_(*(sa.literal(index, sa.BigInteger) for index in key))


def _span(table: sa.Table, run_id: str, first_index: int, count: int) -> tuple[sa.ColumnElement[bool], ...]:
    index = table.c.case_index
    return (table.c.run_id == run_id, index >= first_index, index < first_index + count)


def _answer_values(run_id: str, moment: str, answer: AnswerRecord) -> dict[str, Any]:
    rest = response_to_json(answer.response)
    return {
        "run_id": run_id,
        "case_index": answer.case_index,
        "repeat": answer.repeat,
        "turn_index": answer.turn_index,
        "answer_text": rest.pop("text"),
        "response_json": json_text(rest),
        "created_at": moment,
    }


def _values(run_id: str, sequence: int, moment: str, row: RowResult) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "case_index": row.case_index,
        "repeat": row.repeat,
        "sequence": sequence,
        "case_id": row.case_id,
        "category": row.category,
        "status": row.status.value,
        "passed": row.passed,
        "latency_ms": row.latency_ms,
        "message": row.message,
        "scores_json": json_text([score_to_json(score) for score in row.scores]),
        "created_at": moment,
        "tags_json": json_text(row.tags) if row.tags else "[]",
        "weight": row.weight,
        "answer_vector": row.answer_vector or None,
        "started_at": row.started_at or None,
        "duration_ms": row.duration_ms,
        "values_json": json_text(
            {score.metric: score.value for score in row.scores if score.status is not ScoreStatus.SKIPPED}
        ),
    }


def _count(connection: sa.Connection, run_id: str, rows: Sequence[tuple[str, bool | None]], sign: int = 1) -> int:
    """Adjust the counts of a run for rows that are stored or removed, by status and verdict.

    Rows that are stored take the run's next sequence numbers. The run stays locked until the transaction ends, so
    numbers are in commit order and without gaps.

    Returns:
        The run's last sequence number.
    """
    counts = (
        len(rows) if sign > 0 else 0,
        sign * len(rows),
        sign * sum(passed is True for _, passed in rows),
        sign * sum(passed is False for _, passed in rows),
        sign * sum(status in FAILED_STATUSES for status, _ in rows),
        sign * sum(status == AgentStatus.INTERRUPTED for status, _ in rows),
        len(rows) if sign < 0 else 0,
    )
    values = {f"more_{name}": count for name, count in zip(_COUNTS, counts, strict=True)}
    last: int = connection.execute(_counts_update(), {"of_run": run_id, **values}).scalar_one()
    return last


@cache
def _counts_update() -> dml.ReturningUpdate[int]:
    table = schema.runs
    sums = {name: table.c[name] + sa.bindparam(f"more_{name}") for name in _COUNTS}
    own = table.c.run_id == sa.bindparam("of_run")
    return table.update().where(own).values(sums).returning(table.c.last_sequence)


def _record(row: Any) -> RowResult:
    # By position: reading a column by name costs several times as much, and a run has many rows.
    (_, case_index, repeat, sequence, case_id, category, status, passed, latency_ms, message, scores_json, _,
     tags_json, weight, vector, started_at, duration_ms, _) = row  # fmt: skip
    return RowResult(
        case_index=case_index,
        repeat=repeat,
        case_id=case_id,
        category=category,
        status=_STATUSES[status],
        passed=passed,
        scores=tuple(map(score_from_json, json.loads(scores_json))),
        latency_ms=latency_ms,
        message=message,
        sequence=sequence,
        tags=tuple(json.loads(tags_json)) if tags_json != "[]" else (),
        weight=weight,
        answer_vector=vector or b"",
        started_at=started_at or "",
        duration_ms=duration_ms,
    )
