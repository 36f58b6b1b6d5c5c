"""Queries about datasets."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.datasets.cases.identity import CaseIds, content_of
from assay.errors import AssayError, DatasetError, Problem
from assay.model.answers.agent_response import clean_text
from assay.model.case import Case, Turn, case_from_json, case_to_json, expected_of_case, expected_of_turn
from assay.model.cluster_key import cluster_of
from assay.model.run import DatasetRef
from assay.storage.bulk import insert_rows
from assay.storage.texts import json_text
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs.dataset_versions import move_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.scope import Scope

BETWEEN_TURNS = "\x1e"
"""Separates the questions of a case in the column that text filters search."""
_LONGEST_UPLOAD = timedelta(days=1)
_PAGE_CASES = 1_000
_UNREADABLE = (AssayError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What converting a stored case may raise, for example if a version with other rules accepted it."""


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A stored case.

    Args:
        case: The case; without content if it cannot be read.
        problem: Why it cannot be read; empty if it can.
    """

    case: Case
    problem: str = ""


def case_text(case: Case) -> str:
    """Return the JSON text of a case, which is stored and hashed."""
    return json_text(case_to_json(case))


def begin_upload(connection: sa.Connection, team: str, upload_id: str) -> None:
    """Record the team of an upload before its first cases are stored."""
    connection.execute(schema.uploads.insert().values(upload_id=upload_id, team=team))


def question_text(case: Case) -> str:
    """Return the questions of a case as text filters search them."""
    instead = json_text(case.variables) if case.variables else ""
    return BETWEEN_TURNS.join(turn.input or instead for turn in case.turns)


def add_cases(
    connection: sa.Connection,
    upload_id: str,
    first_index: int,
    rows: Sequence[tuple[str, str]],
    questions: Sequence[str] = (),
) -> None:
    """Store (case id, case text) pairs of an unfinished upload.

    Args:
        connection: The transaction.
        upload_id: The upload.
        first_index: The position of the first case.
        rows: The pairs.
        questions: The `question_text` of each case; empty to read them from the texts, which takes longer.

    Raises:
        DatasetError: A case id is used twice.
    """
    values = [
        {
            "upload_id": upload_id,
            "case_index": first_index + offset,
            "case_id": case_id,
            "case_json": text,
            "question_text": questions[offset]
            if questions
            else BETWEEN_TURNS.join(turn.input for turn in _questions(text).turns),
        }
        for offset, (case_id, text) in enumerate(rows)
    ]
    try:
        # A savepoint: PostgreSQL aborts a transaction in which a statement failed.
        with connection.begin_nested():
            insert_rows(connection, schema.dataset_cases, values)
    except sa.exc.IntegrityError:
        case_ids = [clean_text(case_id) for case_id, _ in rows]
        twice = _used_twice(connection, upload_id, case_ids)
        places = [first_index + offset for offset, case_id in enumerate(case_ids) if case_id in twice]
        sentence = f"case ids must be unique; used twice: {', '.join(twice[:10])}"
        raise DatasetError([Problem(sentence, f"cases[{places[-1]}].case_id")]) from None


def _used_twice(connection: sa.Connection, upload_id: str, case_ids: Sequence[str]) -> list[str]:
    cases = schema.dataset_cases
    stored = connection.execute(
        sa.select(cases.c.case_id).where(cases.c.upload_id == upload_id, cases.c.case_id.in_(set(case_ids)))
    ).all()
    counts = Counter([*case_ids, *(row.case_id for row in stored)])
    return sorted(case_id for case_id, count in counts.items() if count > 1)


def finish_upload(
    connection: sa.Connection,
    scope: Scope,
    upload_id: str,
    record: DatasetRef,
    *,
    size_bytes: int = 0,
    note: str = "",
    parent_ids: Sequence[str] = (),
) -> None:
    """Turn a complete upload into a dataset of the scope's team and move its name to the dataset.

    An equal dataset of the team is kept in place of the upload.
    """
    if get_dataset(connection, scope.team, record.dataset_id) is not None:
        discard_upload(connection, upload_id)
    else:
        try:
            with connection.begin_nested():
                connection.execute(_insert(scope.team, upload_id, record, size_bytes))
        except sa.exc.IntegrityError:
            if get_dataset(connection, scope.team, record.dataset_id) is None:
                raise
            discard_upload(connection, upload_id)  # an equal upload finished at the same moment
        else:
            _remove_unfinished(connection, upload_id)
    move_name(connection, scope, record.name, record.dataset_id, note=note, parent_ids=parent_ids)


def _insert(team: str, upload_id: str, record: DatasetRef, size_bytes: int) -> sa.Insert:
    return schema.datasets.insert().values(
        team=team,
        dataset_id=record.dataset_id,
        upload_id=upload_id,
        case_count=record.case_count,
        created_at=now(),
        stored_bytes=size_bytes,
    )


def new_upload_id() -> str:
    """Return a unique id that contains the time of the upload's start, which `discard_unfinished_uploads` reads."""
    return f"upload-{_compact(datetime.now(UTC))}-{uuid.uuid4().hex}"


def discard_upload(connection: sa.Connection, upload_id: str) -> None:
    """Remove the cases of an interrupted upload; cases of a finished dataset stay."""
    cases = schema.dataset_cases
    connection.execute(cases.delete().where(cases.c.upload_id == upload_id, _unfinished()))
    _remove_unfinished(connection, upload_id)


def _remove_unfinished(connection: sa.Connection, upload_id: str) -> None:
    connection.execute(schema.uploads.delete().where(schema.uploads.c.upload_id == upload_id))


def discard_unfinished_uploads(connection: sa.Connection) -> None:
    """Remove the cases of interrupted uploads, such as a killed process leaves.

    In a shared database another process may be storing an upload, so only uploads older than a day are removed there.
    """
    condition = _unfinished()
    if connection.dialect.name == "postgresql":
        yesterday = datetime.now(UTC) - _LONGEST_UPLOAD
        condition = sa.and_(condition, schema.dataset_cases.c.upload_id < f"upload-{_compact(yesterday)}")
    connection.execute(schema.dataset_cases.delete().where(condition))
    uploads, cases = schema.uploads, schema.dataset_cases
    connection.execute(uploads.delete().where(~sa.exists().where(cases.c.upload_id == uploads.c.upload_id)))


def _unfinished() -> sa.ColumnElement[bool]:
    datasets, cases = schema.datasets, schema.dataset_cases
    return ~sa.exists().where(datasets.c.upload_id == cases.c.upload_id)


def _compact(moment: datetime) -> str:
    return moment.strftime("%Y%m%dT%H%M%SZ")


def get_dataset(connection: sa.Connection, team: str, dataset_id: str) -> DatasetRef | None:
    """Return a dataset of a team under the name that it was last uploaded under, or None."""
    table, names = schema.datasets, schema.dataset_names
    newest = (
        sa.select(names.c.name)
        .where(names.c.team == table.c.team, names.c.dataset_id == table.c.dataset_id)
        .order_by(names.c.uploaded_at.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(table.c.case_count, newest.label("name"))
    row = connection.execute(query.where(table.c.team == team, table.c.dataset_id == dataset_id)).one_or_none()
    return DatasetRef(dataset_id, row.name or "", row.case_count) if row is not None else None


def read_page(
    connection: sa.Connection, scope: Scope, dataset_id: str, first_index: int, count: int
) -> list[tuple[str, str]]:
    """Return (case id, case text) pairs of up to `count` cases of a dataset from position `first_index` on."""
    cases, table = schema.dataset_cases.c, schema.datasets.c
    query = (
        sa.select(cases.case_id, cases.case_json)
        .join(schema.datasets, table.upload_id == cases.upload_id)
        .where(table.team == scope.team, table.dataset_id == dataset_id, cases.case_index >= first_index)
        .order_by(cases.case_index)
        .limit(count)
    )
    return [(case_id, text) for case_id, text in connection.execute(query)]


def read_cases(connection: sa.Connection, run_id: str, first_index: int, count: int) -> list[tuple[str, str]]:
    """Return (case id, case text) pairs of up to `count` cases of a run from position `first_index` on.

    See `stored_case`.
    """
    cases = schema.dataset_cases
    rows = connection.execute(
        sa.select(cases.c.case_id, cases.c.case_json)
        .where(
            cases.c.upload_id == upload_of_run(run_id),
            cases.c.case_index >= first_index,
            cases.c.case_index < first_index + count,
        )
        .order_by(cases.c.case_index)
    ).all()
    return [(case_id, text) for case_id, text in rows]


def find_copies(connection: sa.Connection, run_id: str) -> dict[int, int]:
    """Return the groups of copies among a run's cases: the group number of each case that has copies.

    Copies have equal question, variables, history, references and approvals: see `identity.content_of`.
    """
    contents, groups, first_index = CaseIds(), dict[int, int](), 0
    while page := read_cases(connection, run_id, first_index, _PAGE_CASES):
        for index, (case_id, text) in enumerate(page, start=first_index):
            place = contents.take(content_of(stored_case(case_id, text).case), index + 1)
            if place is not None:
                groups[index] = groups[place - 1] = place - 1
        first_index += len(page)
    return groups


def has_cluster(connection: sa.Connection, scope: Scope, dataset_id: str, key: str) -> bool:
    """Return whether any case of a dataset has a value for a cluster key."""
    cases, table = schema.dataset_cases.c, schema.datasets.c
    query = sa.select(cases.case_json).join(schema.datasets, table.upload_id == cases.upload_id)
    own = (table.team == scope.team, table.dataset_id == dataset_id)
    texts = connection.execute(query.where(*own)).scalars()
    return any(cluster_of(key, case.category, case.tags) for text in texts for case in (stored_case("", text).case,))


def stored_case(case_id: str, text: str) -> StoredCase:
    """Return the case in a stored text."""
    try:
        case = case_from_json(json.loads(text))
        return StoredCase(case) if case.turns else StoredCase(_empty(case_id), "it has no turn")
    except _UNREADABLE as problem:
        return StoredCase(_empty(case_id), f"{type(problem).__name__}: {problem}")


def _empty(case_id: str) -> Case:
    return Case(case_id, (Turn(""),))


def upload_of_run(run_id: str) -> sa.ScalarSelect[str]:
    """Return the query for the upload with the cases of a run."""
    runs, datasets = schema.runs, schema.datasets
    return (
        sa.select(datasets.c.upload_id)
        .join(runs, sa.and_(runs.c.team == datasets.c.team, runs.c.dataset_id == datasets.c.dataset_id))
        .where(runs.c.run_id == run_id)
        .scalar_subquery()
    )


def find_case(connection: sa.Connection, run_id: str, case_id: str) -> int | None:
    """Return the position of a case in the dataset of a run, or None."""
    cases = schema.dataset_cases
    position: int | None = connection.execute(
        sa.select(cases.c.case_index).where(cases.c.upload_id == upload_of_run(run_id), cases.c.case_id == case_id)
    ).scalar_one_or_none()
    return position


def read_case(connection: sa.Connection, run_id: str, case_index: int) -> StoredCase:
    """Return the case at a position of a run's dataset; the position must exist."""
    cases = schema.dataset_cases
    query = sa.select(cases.c.case_id, cases.c.case_json)
    row = connection.execute(
        query.where(cases.c.upload_id == upload_of_run(run_id), cases.c.case_index == case_index)
    ).one()
    return stored_case(row.case_id, row.case_json)


@dataclass(frozen=True, slots=True)
class AskedTurn:
    """The question and expectations of one turn of a case.

    Args:
        input: The user's message. If empty, the case's variables replace it: they fill a prompt.
        references: Its references.
        expected: Its other expectations, by their names in datasets.
    """

    input: str
    references: tuple[str, ...] = ()
    expected: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions and expectations of a case.

    Args:
        turns: Each turn.
        expected: The expectations of the whole case: of its last turn, or of no turn.
        place: The case's place in the client's dataset if it was uploaded in another order; otherwise None.
    """

    turns: Sequence[AskedTurn]
    expected: Mapping[str, Any] = field(default_factory=dict)
    place: int | None = None


def read_questions(connection: sa.Connection, run_id: str, indexes: Sequence[int]) -> dict[int, Questions]:
    """Return the questions and expectations of a run's cases at some positions, by position."""
    cases = schema.dataset_cases
    rows = connection.execute(
        sa.select(cases.c.case_index, cases.c.case_json).where(
            cases.c.upload_id == upload_of_run(run_id), schema.at_positions(cases.c.case_index, indexes)
        )
    ).all()
    return {case_index: _questions(text) for case_index, text in rows}


def _questions(text: str) -> Questions:
    unreadable = Questions([AskedTurn("")])  # its row reports the problem
    try:
        case = json.loads(text)
        variables = case.get("variables")
        instead = json_text(variables) if variables else ""  # in the form that filters search
        turns = [
            AskedTurn(turn.get("input") or instead, tuple(turn.get("references", ())), expected_of_turn(turn))
            for turn in case["turns"]
        ]
        expected = expected_of_case(case)
    except _UNREADABLE:
        return unreadable
    return Questions(turns, expected, case.get("place")) if turns else unreadable
