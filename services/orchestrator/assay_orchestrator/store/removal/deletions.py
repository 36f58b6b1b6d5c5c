"""Queries that delete runs and datasets: each at once, its rows in batches, so that other writes do not wait long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.errors import WrongStateError
from assay.model.run import Deletion
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import dataset_versions, runs
from assay_orchestrator.store.runs.run_conditions import is_at_rest, is_reached
from assay_orchestrator.store.teams import audit, baselines, spending

if TYPE_CHECKING:
    from assay.model.scope import Scope
    from assay.model.stored_dataset import StoredDataset
    from assay_orchestrator.store.runs.runs import RunRecord

_OWNED = (schema.score_values, schema.results, schema.answers, schema.row_history, schema.run_events)
_SAMPLE_ROWS = 200
_ROW_OVERHEAD_BYTES = 150
_SHOWN_RUNS = 10


@dataclass(frozen=True, slots=True)
class PendingDeletion:
    """A deleted run or dataset whose rows are still to be removed.

    Args:
        run_id: The run; empty for a dataset.
        upload_id: The upload with the cases of the dataset; empty for a run.
    """

    run_id: str = ""
    upload_id: str = ""


def begin_deletion(
    connection: sa.Connection, scope: Scope, run_id: str, *, with_baselines: bool = True
) -> PendingDeletion | None:
    """Remove a run, and record that its rows must follow.

    Returns:
        The pending deletion; None if there is no such run at rest.

    Raises:
        WrongStateError: A baseline names the run, and `with_baselines` is False.
    """
    if not with_baselines:
        baselines.require_unnamed(connection, scope, run_id)
    table = schema.runs
    removed = connection.execute(
        table.delete().where(table.c.run_id == run_id, is_reached(scope), is_at_rest()).returning(table.c.team)
    ).scalar_one_or_none()
    if removed is None:
        return None
    connection.execute(schema.shards.delete().where(schema.shards.c.run_id == run_id))
    spending.forget_run(connection, run_id)
    connection.execute(schema.allotments.delete().where(schema.allotments.c.run_id == run_id))
    pending = _record(connection, removed, PendingDeletion(run_id=run_id))
    audit.record(connection, scope.call, team=scope.team, resource=run_id)
    return pending


def begin_dataset_deletion(connection: sa.Connection, scope: Scope, dataset_id: str) -> PendingDeletion:
    """Remove a dataset and its versions, and record that its cases must follow.

    Raises:
        NotFoundError: The scope's team has no such dataset.
        WrongStateError: Runs use it.
    """
    runs.lock_creation(connection)  # no run is created over it, and no equal upload ends, until the commit
    require_unused(connection, scope, dataset_id)
    names, table = schema.dataset_names, schema.datasets
    connection.execute(names.delete().where(names.c.team == scope.team, names.c.dataset_id == dataset_id))
    own = (table.c.team == scope.team, table.c.dataset_id == dataset_id)
    upload_id = connection.execute(table.delete().where(*own).returning(table.c.upload_id)).scalar_one()
    pending = _record(connection, scope.team, PendingDeletion(upload_id=upload_id))
    audit.record(connection, scope.call, team=scope.team, resource=dataset_id)
    return pending


def require_unused(connection: sa.Connection, scope: Scope, dataset_id: str) -> StoredDataset:
    """Return a dataset that no run uses.

    Raises:
        NotFoundError: The scope's team has no such dataset.
        WrongStateError: Runs use it.
    """
    dataset = dataset_versions.get_stored(connection, scope, dataset_id)
    if not dataset.run_count:
        return dataset
    shown = dataset_versions.list_users(connection, scope, dataset_id, _SHOWN_RUNS)
    count = "1 run" if dataset.run_count == 1 else f"{dataset.run_count:,} runs"
    more = f" and {dataset.run_count - len(shown):,} more" if dataset.run_count > len(shown) else ""
    raise WrongStateError(
        f"dataset {dataset_id} is used by {count}: {', '.join(shown)}{more}; delete the runs first",
        reason="DATASET_IN_USE",
    )


def _record(connection: sa.Connection, team: str, pending: PendingDeletion) -> PendingDeletion:
    """Store a deletion with the removal that begins it: after a crash, the next start finds the rows that are left."""
    values = {"run_id": pending.run_id, "upload_id": pending.upload_id, "created_at": now(), "team": team}
    connection.execute(schema.deletions.insert().values(values))
    return pending


def list_pending(connection: sa.Connection) -> list[PendingDeletion]:
    """Return the deletions that a stop interrupted, oldest first."""
    table = schema.deletions
    rows = connection.execute(sa.select(table.c.run_id, table.c.upload_id).order_by(table.c.created_at)).all()
    return [PendingDeletion(row.run_id, row.upload_id) for row in rows]


def remove_some(connection: sa.Connection, pending: PendingDeletion, limit: int) -> int:
    """Remove up to `limit` rows of a deleted run or dataset; after the last, remove the record of the deletion too.

    Returns:
        The number of removed rows; 0 when the deletion is complete.
    """
    cases, table = schema.dataset_cases, schema.deletions
    owned = [(cases, cases.c.upload_id == pending.upload_id)]
    if pending.run_id:
        owned = [(part, part.c.run_id == pending.run_id) for part in _OWNED]
    for part, is_owned in owned:
        removed = _remove_first(connection, part, is_owned, limit)
        # One table at a time, so that a transaction removes at most `limit` rows.
        if removed:
            return removed
    connection.execute(table.delete().where(table.c.run_id == pending.run_id, table.c.upload_id == pending.upload_id))
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
    row_bytes = sum(
        _mean_bytes(connection, table.c[column], table.c.run_id == run.run_id)
        for table, column in (
            (schema.results, "scores_json"),
            (schema.answers, "response_json"),
            (schema.answers, "answer_text"),
        )
    )
    size = run.finished_count * (row_bytes + 2 * _ROW_OVERHEAD_BYTES)
    return Deletion(run.finished_count, round(size), tuple(baselines.names_of(connection, scope, run.run_id)))


def _mean_bytes(connection: sa.Connection, column: sa.Column[str], owned: sa.ColumnElement[bool]) -> float:
    sample = sa.select(sa.func.length(column).label("size")).where(owned).limit(_SAMPLE_ROWS).subquery()
    return float(connection.execute(sa.select(sa.func.avg(sample.c.size))).scalar() or 0.0)
