"""Finds a stored run and returns it as a plain object, or raises a NotFoundError."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from assay.errors import NotFoundError, WrongStateError
from assay.model.run import AgentSpec, Run, RunCounts, RunSpec
from assay.model.run_spec import UNREADABLE
from assay.wire.run import SETTINGS
from assay.wire.summary import SUMMARY
from assay_orchestrator.store.removal import deletions
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import datasets, runs

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.model.run import DatasetRef, Deletion
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_orchestrator.store.runs.runs import RunRecord


class Catalogue:
    """The runs of the store as plain objects.

    Args:
        database: The store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, scope: Scope, run_id: str) -> Run:
        """Return a stored run, for display.

        Raises:
            NotFoundError: The scope cannot reach the run.
        """
        loaded = await self._database.read(lambda c: _loaded(c, runs.get_run(c, scope, run_id)))
        if loaded is None:
            raise self.not_found(run_id)
        return readable_run(*loaded)

    async def load(self, run_id: str) -> Run:
        """Return a run of any team, for background work.

        Raises:
            NotFoundError: The run was deleted.
            WrongStateError: Its stored form cannot be read.
        """
        loaded = await self._database.read(lambda c: _loaded(c, runs.load_run(c, run_id)))
        if loaded is None:
            raise self.not_found(run_id)
        return _whole(*loaded)

    async def estimate_deletion(self, scope: Scope, run_id: str) -> Deletion:
        """Return what deleting a run would remove.

        Raises:
            NotFoundError: The scope cannot reach the run.
        """

        def load(connection: sa.Connection) -> Deletion | None:
            record = runs.get_run(connection, scope, run_id)
            return deletions.estimate_deletion(connection, scope, record) if record is not None else None

        deletion = await self._database.read(load)
        if deletion is None:
            raise self.not_found(run_id)
        return deletion

    def not_found(self, run_id: str) -> NotFoundError:
        """Return the error for a run outside a scope; it does not reveal whether the run exists."""
        return NotFoundError(f"there is no run {run_id!r}: `assay runs list` lists the runs", reason="RUN_NOT_FOUND")


def _loaded(connection: sa.Connection, record: RunRecord | None) -> tuple[RunRecord, DatasetRef] | None:
    if record is None:
        return None
    dataset = datasets.get_dataset(connection, record.team, record.dataset_id)
    assert dataset is not None, "a foreign key holds the dataset"
    return results.with_answered(connection, results.recounted(connection, record)), dataset


def readable_run(record: RunRecord, dataset: DatasetRef) -> Run:
    """Return a run; an unreadable run shows the reason in place of its settings, and does not break a list."""
    try:
        return _whole(record, dataset)
    except WrongStateError as problem:
        spec = dataclasses.asdict(RunSpec(name=record.run_id, agent=AgentSpec(UNREADABLE), metrics=()))
        return _run(dataclasses.replace(record, spec=spec, summary=None, state_message=problem.message), dataset)


def _whole(record: RunRecord, dataset: DatasetRef) -> Run:
    try:
        return _run(record, dataset)
    except (LookupError, TypeError, ValueError, AttributeError) as problem:
        raise WrongStateError(
            f"the stored settings of run {record.run_id} cannot be read ({type(problem).__name__}: {problem}): delete "
            "the run",
            reason="RUN_UNREADABLE",
        ) from problem


def _run(record: RunRecord, dataset: DatasetRef) -> Run:
    return Run(
        run_id=record.run_id,
        spec=SETTINGS.from_json(record.spec),
        dataset=dataclasses.replace(dataset, name=record.dataset_name),
        state=record.state,
        state_message=record.state_message,
        counts=RunCounts(
            total_count=record.total_count,
            finished_count=record.finished_count,
            passed_count=record.passed_count,
            failed_count=record.failed_count,
            agent_error_count=record.agent_error_count,
            answered_count=record.answered_count,
            interrupted_count=record.interrupted_count,
        ),
        created_at=record.created_at,
        started_at=record.started_at or "",
        ended_at=record.ended_at or "",
        last_sequence=record.last_sequence,
        summary=SUMMARY.from_json(record.summary) if record.summary is not None else None,
        assay_version=record.assay_version,
        pause_cause=record.pause_cause,
    )
