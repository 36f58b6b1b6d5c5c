"""Queries about the names of datasets and their history.

A name points to the dataset last uploaded under it. The history of a name has each dataset once, at the time of its
last upload: the history does not grow while two files alternate under one name.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.errors import NotFoundError
from assay.model.stored_dataset import StoredDataset
from assay.storage.times import now, stamp
from assay_orchestrator.store import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.scope import Scope

_names, _datasets = schema.dataset_names, schema.datasets


def move_name(
    connection: sa.Connection, scope: Scope, name: str, dataset_id: str, *, note: str, parent_ids: Sequence[str]
) -> None:
    """Make a dataset the current version of a name; an empty note, or no parents, keep those stored."""
    version = (_names.c.team == scope.team, _names.c.name == name, _names.c.dataset_id == dataset_id)
    moment = _next_moment(connection, scope, name)
    given = {"note": note} if note else {}
    if parent_ids:
        given["parents_json"] = json.dumps(list(parent_ids))
    if connection.execute(_names.update().where(*version).values(uploaded_at=moment, **given)).rowcount:
        return
    connection.execute(
        _names.insert().values(
            team=scope.team, name=name, dataset_id=dataset_id, created_at=moment, uploaded_at=moment, **given
        )
    )


def _next_moment(connection: sa.Connection, scope: Scope, name: str) -> str:
    """Return the current time, or a later one if the name was moved in this millisecond: the newest version is last."""
    newest = sa.select(sa.func.max(_names.c.uploaded_at)).where(_names.c.team == scope.team, _names.c.name == name)
    latest: str | None = connection.execute(newest).scalar()
    moment = now()
    if latest is None or moment > latest:
        return moment
    return stamp(datetime.fromisoformat(latest) + timedelta(milliseconds=1))


def get_stored(connection: sa.Connection, scope: Scope, dataset_id: str) -> StoredDataset:
    """Return a dataset under the name that it was last uploaded under.

    Raises:
        NotFoundError: The scope's team has no such dataset.
    """
    newest = _query(scope).where(_names.c.dataset_id == dataset_id).order_by(_names.c.uploaded_at.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    if row is None:
        raise NotFoundError(
            f"there is no dataset {dataset_id!r}: `assay datasets list` lists the datasets", reason="DATASET_NOT_FOUND"
        )
    return _stored(row)


def list_stored(
    connection: sa.Connection, scope: Scope, name: str, after: tuple[str, str, str] | None, count: int
) -> list[StoredDataset]:
    """Return up to `count` versions of a name, or of all names if it is empty, the last uploaded first.

    Args:
        connection: The transaction.
        scope: The scope of the caller.
        name: The name.
        after: Upload time, name and id of the last version before these; None for the first.
        count: The maximum.
    """
    columns = (_names.c.uploaded_at, _names.c.name, _names.c.dataset_id)
    query = _query(scope).order_by(*(column.desc() for column in columns)).limit(count)
    if name:
        query = query.where(_names.c.name == name)
    if after is not None:
        end = (sa.literal(part, column.type) for part, column in zip(after, columns, strict=True))
        query = query.where(sa.tuple_(*columns) < sa.tuple_(*end))
    return [_stored(row) for row in connection.execute(query)]


def list_users(connection: sa.Connection, scope: Scope, dataset_id: str, count: int) -> list[str]:
    """Return up to `count` runs that use a dataset, newest first."""
    runs = schema.runs.c
    query = sa.select(runs.run_id).where(runs.team == scope.team, runs.dataset_id == dataset_id)
    return list(connection.execute(query.order_by(runs.created_at.desc(), runs.run_id.desc()).limit(count)).scalars())


def list_unused(connection: sa.Connection, scope: Scope, before: str, count: int) -> list[str]:
    """Return up to `count` datasets that no run uses and that were last uploaded before a time."""
    is_used = sa.exists().where(schema.runs.c.team == scope.team, schema.runs.c.dataset_id == _names.c.dataset_id)
    query = (
        sa.select(_names.c.dataset_id)
        .where(_names.c.team == scope.team, ~is_used)
        .group_by(_names.c.dataset_id)
        .having(sa.func.max(_names.c.uploaded_at) < before)
    )
    return list(connection.execute(query.limit(count)).scalars())


def _query(scope: Scope) -> sa.Select[Any]:
    runs = schema.runs.c
    run_count = (
        sa.select(sa.func.count())
        .where(runs.team == _names.c.team, runs.dataset_id == _names.c.dataset_id)
        .scalar_subquery()
    )
    own = sa.and_(_datasets.c.team == _names.c.team, _datasets.c.dataset_id == _names.c.dataset_id)
    sizes = (_datasets.c.case_count, _datasets.c.stored_bytes)
    return (
        sa.select(_names, *sizes, run_count.label("run_count")).join(_datasets, own).where(_names.c.team == scope.team)
    )


def _stored(row: sa.Row[Any]) -> StoredDataset:
    return StoredDataset(
        dataset_id=row.dataset_id,
        name=row.name,
        case_count=row.case_count,
        size_bytes=row.stored_bytes,
        created_at=row.created_at,
        uploaded_at=row.uploaded_at,
        parent_ids=tuple(json.loads(row.parents_json)),
        note=row.note,
        run_count=row.run_count,
    )
