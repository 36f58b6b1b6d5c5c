"""Finding stored runs, by id and by age, and naming the one that was probably meant."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from assay.errors import NotFoundError
from assay.results import AgentSettings, Run, RunCounts, RunSettings
from assay_orchestrator.settings_json import settings_from_json, settings_to_json, summary_from_json
from assay_orchestrator.store import datasets, deletions, results, runs

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.results import DatasetRef, Deletion
    from assay.storage.database import Database
    from assay_orchestrator.store.runs import RunRecord

__all__ = ["Catalogue"]


_log = logging.getLogger(__name__)


class Catalogue:
    """The runs of the store, as plain objects.

    Args:
        database: The store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, run_id: str) -> Run:
        """Return a run as it stands.

        Raises:
            NotFoundError: There is no such run; the message names the one that was probably meant.
        """

        def load(connection: sa.Connection) -> tuple[RunRecord, DatasetRef] | None:
            record = runs.get(connection, run_id)
            if record is None:
                return None
            dataset = datasets.get(connection, record.dataset_id)
            assert dataset is not None, "a foreign key holds the dataset"
            return results.recounted(connection, record), dataset

        loaded = await self._database.read(load)
        if loaded is None:
            raise self.not_found(run_id)
        return _run(*loaded)

    async def list_newest(self, count: int, before: tuple[str, str] | None) -> list[Run]:
        """Return up to `count` runs without summaries, newest first, older than (created_at, run_id) `before`."""

        def load(connection: sa.Connection) -> list[tuple[RunRecord, DatasetRef]]:
            found = runs.list_newest(connection, count, before)
            known = {record.dataset_id: datasets.get(connection, record.dataset_id) for record in found}
            return [
                (results.recounted(connection, record), dataset)
                for record in found
                if (dataset := known[record.dataset_id]) is not None
            ]

        return [_listed(record, dataset) for record, dataset in await self._database.read(load)]

    async def estimate_deletion(self, run_id: str) -> Deletion:
        """Return what would go with a run.

        Raises:
            NotFoundError: There is no such run.
        """

        def load(connection: sa.Connection) -> Deletion | None:
            record = runs.get(connection, run_id)
            return deletions.estimate(connection, record) if record is not None else None

        found = await self._database.read(load)
        if found is None:
            raise self.not_found(run_id)
        return found

    def not_found(self, run_id: str) -> NotFoundError:
        """Return the error for a run that does not exist; it suggests no other, which may be that of another team."""
        return NotFoundError(
            f"there is no run {run_id!r}: `assay runs list` shows the runs there are", reason="RUN_NOT_FOUND"
        )


def _listed(record: RunRecord, dataset: DatasetRef) -> Run:
    """Return a run without its summary; one whose settings cannot be read says so and breaks no list."""
    record = dataclasses.replace(record, summary=None)
    try:
        return _run(record, dataset)
    except (LookupError, TypeError, ValueError, AttributeError) as problem:
        _log.error("run %s cannot be shown: its stored settings cannot be read", record.run_id, exc_info=problem)
        reason = f"its stored settings cannot be read ({type(problem).__name__}: {problem}): delete the run"
        spec = settings_to_json(RunSettings(name=record.run_id, agent=AgentSettings("unknown"), metrics=()))
        return _run(dataclasses.replace(record, spec=spec, state_reason=reason), dataset)


def _run(record: RunRecord, dataset: DatasetRef) -> Run:
    return Run(
        run_id=record.run_id,
        settings=settings_from_json(record.spec),
        dataset=dataset,
        state=record.state,
        state_reason=record.state_reason,
        counts=RunCounts(
            total=record.total_count,
            finished=record.finished_count,
            passed=record.passed_count,
            failed=record.failed_count,
            agent_errors=record.agent_error_count,
        ),
        created_at=record.created_at,
        started_at=record.started_at or "",
        ended_at=record.ended_at or "",
        last_sequence=record.last_sequence,
        summary=summary_from_json(record.summary) if record.summary is not None else None,
        assay_version=record.assay_version,
        pause_cause=record.pause_cause,
    )
