"""Queries that delete runs: the run at once, its rows in batches, so that other writes do not wait long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.model.run import Deletion
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs.run_conditions import is_at_rest, is_reached
from assay_orchestrator.store.teams import audit, baselines, spending

if TYPE_CHECKING:
    from assay.model.scope import Scope
    from assay_orchestrator.store.runs.runs import RunRecord

_OWNED = (schema.score_values, schema.results, schema.answers, schema.row_history, schema.run_events)
_SAMPLE_ROWS = 200
_ROW_OVERHEAD_BYTES = 150


@dataclass(frozen=True, slots=True)
class PendingDeletion:
    """A deleted run whose rows are still to be removed.

    Args:
        run_id: The run.
        upload_id: The upload whose cases are removed too; None if another run uses the dataset.
    """

    run_id: str
    upload_id: str | None


def begin_deletion(
    connection: sa.Connection, scope: Scope, run_id: str, *, with_baselines: bool = True
) -> PendingDeletion | None:
    """Remove a run, and its dataset if no other run uses it, and record that their rows must follow.

    Returns:
        The pending deletion; None if there is no such run at rest.

    Raises:
        WrongStateError: A baseline names the run, and `with_baselines` is False.
    """
    if not with_baselines:
        baselines.require_unnamed(connection, scope, run_id)
    runs = schema.runs
    removed = connection.execute(
        runs.delete()
        .where(runs.c.run_id == run_id, is_reached(scope), is_at_rest())
        .returning(runs.c.team, runs.c.dataset_id)
    ).one_or_none()
    if removed is None:
        return None
    connection.execute(schema.shards.delete().where(schema.shards.c.run_id == run_id))
    spending.forget_run(connection, run_id)
    connection.execute(schema.allotments.delete().where(schema.allotments.c.run_id == run_id))
    # Stored with the run's removal: after a crash, the next start finds the rows that are left.
    pending = PendingDeletion(run_id, _remove_unused(connection, *removed))
    connection.execute(
        schema.deletions.insert().values(
            run_id=run_id, upload_id=pending.upload_id, created_at=now(), team=removed.team
        )
    )
    audit.record(connection, scope.call, team=scope.team, resource=run_id)
    if pending.upload_id is not None:
        audit.record(connection, scope.call, team=scope.team, resource=removed.dataset_id, action="delete-dataset")
    return pending


def _remove_unused(connection: sa.Connection, team: str, dataset_id: str) -> str | None:
    table = schema.datasets
    is_used = sa.exists().where(_uses(team, dataset_id))
    try:
        with connection.begin_nested():
            upload_id: str | None = connection.execute(
                table.delete()
                .where(table.c.team == team, table.c.dataset_id == dataset_id, ~is_used)
                .returning(table.c.upload_id)
            ).scalar_one_or_none()
    except sa.exc.IntegrityError:
        return None  # a run of the dataset was created at the same moment
    return upload_id


def _uses(team: str, dataset_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(schema.runs.c.team == team, schema.runs.c.dataset_id == dataset_id)


def list_pending(connection: sa.Connection) -> list[PendingDeletion]:
    """Return the deletions that a stop interrupted, oldest first."""
    table = schema.deletions
    rows = connection.execute(sa.select(table.c.run_id, table.c.upload_id).order_by(table.c.created_at)).all()
    return [PendingDeletion(row.run_id, row.upload_id) for row in rows]


def remove_some(connection: sa.Connection, pending: PendingDeletion, limit: int) -> int:
    """Remove up to `limit` rows of a deleted run; after the last, remove the record of the deletion too.

    Returns:
        The number of removed rows; 0 when the deletion is complete.
    """
    owned = [(table, table.c.run_id, pending.run_id) for table in _OWNED]
    if pending.upload_id is not None:
        owned.append((schema.dataset_cases, schema.dataset_cases.c.upload_id, pending.upload_id))
    for table, owner, value in owned:
        removed = _remove_first(connection, table, owner == value, limit)
        # One table at a time, so that a transaction removes at most `limit` rows.
        if removed:
            return removed
    connection.execute(schema.deletions.delete().where(schema.deletions.c.run_id == pending.run_id))
    return 0


def _remove_first(connection: sa.Connection, table: sa.Table, owned: sa.ColumnElement[bool], limit: int) -> int:
    """Remove the first rows by key, read through the index however many there are."""
    keys = list(table.primary_key.columns)[1:]  # after the column that names the owner
    last: Any = connection.execute(
        sa.select(*keys).where(owned).order_by(*keys).limit(1).offset(limit - 1)
    ).one_or_none()
    if last is not None:
        through = sa.tuple_(*(sa.literal(part, key.type) for part, key in zip(last, keys, strict=True)))
        owned = sa.and_(owned, sa.tuple_(*keys) <= through)
    return connection.execute(table.delete().where(owned)).rowcount


def estimate_deletion(connection: sa.Connection, scope: Scope, run: RunRecord) -> Deletion:
    """Return what deleting a run would remove; its size is extrapolated from its first rows."""
    others = sa.select(sa.func.count()).select_from(schema.runs).where(_uses(run.team, run.dataset_id))
    is_last = connection.execute(others).scalar_one() == 1
    row_bytes = sum(
        _mean_bytes(connection, table.c[column], table.c.run_id == run.run_id)
        for table, column in (
            (schema.results, "scores_json"),
            (schema.answers, "response_json"),
            (schema.answers, "answer_text"),
        )
    )
    size = run.finished_count * (row_bytes + 2 * _ROW_OVERHEAD_BYTES)
    if is_last:
        size += _dataset_bytes(connection, run)
    return Deletion(run.finished_count, round(size), is_last, tuple(baselines.names_of(connection, scope, run.run_id)))


def _dataset_bytes(connection: sa.Connection, run: RunRecord) -> float:
    table = schema.datasets
    dataset = connection.execute(
        sa.select(table).where(table.c.team == run.team, table.c.dataset_id == run.dataset_id)
    ).one()
    cases = schema.dataset_cases
    mean = _mean_bytes(connection, cases.c.case_json, cases.c.upload_id == dataset.upload_id)
    return float(dataset.case_count * (mean + _ROW_OVERHEAD_BYTES))


def _mean_bytes(connection: sa.Connection, column: sa.Column[str], owned: sa.ColumnElement[bool]) -> float:
    sample = sa.select(sa.func.length(column).label("size")).where(owned).limit(_SAMPLE_ROWS).subquery()
    return float(connection.execute(sa.select(sa.func.avg(sample.c.size))).scalar() or 0.0)
