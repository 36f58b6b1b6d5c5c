"""Queries about datasets."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.errors import AssayError, DatasetError
from assay.model.agent_response import clean_text
from assay.model.case import Case, Turn, case_from_json, case_to_json
from assay.model.run import DatasetRef
from assay.storage.bulk import insert_rows
from assay.storage.texts import json_text
from assay.storage.times import now
from assay_orchestrator.store import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_UPLOAD = timedelta(days=1)
_UNREADABLE = (AssayError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What converting a stored case may raise, one that a version with other rules accepted, say."""


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A case as it is stored.

    Args:
        case: The case; without content where it cannot be read.
        problem: Why it cannot be read; empty where it can.
    """

    case: Case
    problem: str = ""


def case_text(case: Case) -> str:
    """Return the case as the JSON text that is stored and hashed."""
    return json_text(case_to_json(case))


def add_cases(connection: sa.Connection, upload_id: str, first_index: int, rows: Sequence[tuple[str, str]]) -> None:
    """Store (case id, case text) pairs of an upload that is not finished yet.

    Raises:
        DatasetError: A case id is used twice.
    """
    values = [
        {"upload_id": upload_id, "case_index": first_index + offset, "case_id": case_id, "case_json": text}
        for offset, (case_id, text) in enumerate(rows)
    ]
    try:
        # A savepoint: PostgreSQL ends a transaction in which a statement failed.
        with connection.begin_nested():
            insert_rows(connection, schema.dataset_cases, values)
    except sa.exc.IntegrityError:
        twice = _used_twice(connection, upload_id, [clean_text(case_id) for case_id, _ in rows])
        raise DatasetError(f"case ids must be unique; given twice: {', '.join(twice[:10])}") from None


def _used_twice(connection: sa.Connection, upload_id: str, case_ids: Sequence[str]) -> list[str]:
    cases = schema.dataset_cases
    stored = connection.execute(
        sa.select(cases.c.case_id).where(cases.c.upload_id == upload_id, cases.c.case_id.in_(set(case_ids)))
    ).all()
    counts = Counter([*case_ids, *(row.case_id for row in stored)])
    return sorted(case_id for case_id, count in counts.items() if count > 1)


def finish_upload(connection: sa.Connection, upload_id: str, record: DatasetRef) -> DatasetRef:
    """Make a complete upload a dataset; an equal dataset that is already stored is kept in its place."""
    stored = get_dataset(connection, record.dataset_id)
    if stored is None:
        try:
            with connection.begin_nested():
                connection.execute(_insert(upload_id, record))
        except sa.exc.IntegrityError:
            stored = get_dataset(connection, record.dataset_id)  # an equal one was finished in the same moment
            if stored is None:
                raise
        else:
            return record
    discard_upload(connection, upload_id)
    return stored


def _insert(upload_id: str, record: DatasetRef) -> sa.Insert:
    return schema.datasets.insert().values(
        dataset_id=record.dataset_id,
        upload_id=upload_id,
        name=record.name,
        format=record.format,
        case_count=record.case_count,
        created_at=now(),
    )


def new_upload_id() -> str:
    """Return a unique id that says when the upload began, as `discard_unfinished` reads it."""
    return f"upload-{_compact(datetime.now(UTC))}-{uuid.uuid4().hex}"


def discard_upload(connection: sa.Connection, upload_id: str) -> None:
    """Remove the cases of an upload that broke off; those of one that became a dataset stay."""
    cases = schema.dataset_cases
    connection.execute(cases.delete().where(cases.c.upload_id == upload_id, _unfinished()))


def discard_unfinished_uploads(connection: sa.Connection) -> None:
    """Remove the cases of uploads that broke off, as a killed process leaves them.

    Another process may be storing an upload in a shared database: there, only uploads of a day ago are removed.
    """
    condition = _unfinished()
    if connection.dialect.name == "postgresql":
        yesterday = datetime.now(UTC) - _LONGEST_UPLOAD
        condition = sa.and_(condition, schema.dataset_cases.c.upload_id < f"upload-{_compact(yesterday)}")
    connection.execute(schema.dataset_cases.delete().where(condition))


def _unfinished() -> sa.ColumnElement[bool]:
    datasets, cases = schema.datasets, schema.dataset_cases
    return ~sa.exists().where(datasets.c.upload_id == cases.c.upload_id)


def _compact(moment: datetime) -> str:
    return moment.strftime("%Y%m%dT%H%M%SZ")


def get_dataset(connection: sa.Connection, dataset_id: str) -> DatasetRef | None:
    """Return the dataset, or None."""
    row = connection.execute(sa.select(schema.datasets).where(schema.datasets.c.dataset_id == dataset_id)).one_or_none()
    return DatasetRef(row.dataset_id, row.name, row.format, row.case_count) if row is not None else None


def read_cases(connection: sa.Connection, dataset_id: str, first_index: int, count: int) -> list[tuple[str, str]]:
    """Return (case id, case text) pairs of up to `count` cases from position `first_index` on; see `stored_case`."""
    cases, datasets = schema.dataset_cases, schema.datasets
    rows = connection.execute(
        sa.select(cases.c.case_id, cases.c.case_json)
        .join(datasets, datasets.c.upload_id == cases.c.upload_id)
        .where(
            datasets.c.dataset_id == dataset_id,
            cases.c.case_index >= first_index,
            cases.c.case_index < first_index + count,
        )
        .order_by(cases.c.case_index)
    ).all()
    return [(case_id, text) for case_id, text in rows]


def stored_case(case_id: str, text: str) -> StoredCase:
    """Return the case that a stored text holds."""
    try:
        case = case_from_json(json.loads(text))
        return StoredCase(case) if case.turns else StoredCase(_empty(case_id), "it has no turn")
    except _UNREADABLE as problem:
        return StoredCase(_empty(case_id), f"{type(problem).__name__}: {problem}")


def _empty(case_id: str) -> Case:
    return Case(case_id, (Turn(""),))


def find_case(connection: sa.Connection, dataset_id: str, case_id: str) -> int | None:
    """Return the position of a case, or None."""
    cases, datasets = schema.dataset_cases, schema.datasets
    position: int | None = connection.execute(
        sa.select(cases.c.case_index)
        .join(datasets, datasets.c.upload_id == cases.c.upload_id)
        .where(datasets.c.dataset_id == dataset_id, cases.c.case_id == case_id)
    ).scalar_one_or_none()
    return position


def read_questions(
    connection: sa.Connection, dataset_id: str, indexes: Sequence[int]
) -> dict[int, list[tuple[str, tuple[str, ...]]]]:
    """Return the input and the references of each turn of the cases at some positions, by position.

    In place of an input that is empty stand the case's variables: a prompt is filled from them.
    """
    cases, datasets = schema.dataset_cases, schema.datasets
    rows = connection.execute(
        sa.select(cases.c.case_index, cases.c.case_json)
        .join(datasets, datasets.c.upload_id == cases.c.upload_id)
        .where(datasets.c.dataset_id == dataset_id, schema.at_positions(cases.c.case_index, indexes))
    ).all()
    return {case_index: _questions(text) for case_index, text in rows}


def _questions(text: str) -> list[tuple[str, tuple[str, ...]]]:
    unreadable: list[tuple[str, tuple[str, ...]]] = [("", ())]  # its row says what is wrong
    try:
        case = json.loads(text)
        variables = case.get("variables")
        instead = json.dumps(variables, ensure_ascii=False) if variables else ""
        turns = [(turn.get("input") or instead, tuple(turn.get("references", ()))) for turn in case["turns"]]
    except _UNREADABLE:
        return unreadable
    return turns or unreadable
