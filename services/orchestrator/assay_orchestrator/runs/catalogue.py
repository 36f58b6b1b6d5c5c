"""Finding stored runs, by id and by age, and naming the one that was probably meant."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.errors import NotFoundError, WrongStateError
from assay.model.run import AgentSettings, Run, RunCounts, RunSettings
from assay_orchestrator.store import datasets, deletions, results, runs
from assay_orchestrator.store.settings_json import settings_from_json, settings_to_json, summary_from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

    from assay.model.run import DatasetRef, Deletion, RunState
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_orchestrator.store.runs import RunRecord

UNREADABLE = "unreadable"
"""The adapter of a run whose settings cannot be read."""

_FILTERED_PAGE = 200  # runs that are read at a time to find those that meet conditions


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The conditions that listed runs meet, all of them.

    Args:
        run_id_prefix: What their ids begin with.
        name: Their name; empty for any.
        labels: Labels that they have.
        states: The states of which they have one; none for any.
    """

    run_id_prefix: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    states: frozenset[RunState] = frozenset()

    @property
    def is_plain(self) -> bool:
        """Whether the database alone finds the runs."""
        return not (self.name or self.labels or self.states)

    def accepts_settings(self, settings: object) -> bool:
        """Return whether stored settings, which may be damaged, meet the conditions on name and labels."""
        if not (self.name or self.labels):
            return True
        if not isinstance(settings, dict) or (self.name and settings.get("name") != self.name):
            return False
        labels = settings.get("labels")  # absent where an older version stored the run
        return self.labels.items() <= (labels.items() if isinstance(labels, dict) else {}.items())

    def accepts_state(self, run: Run) -> bool:
        """Return whether a run, as clients see it, is in one of the states."""
        return not self.states or run.state in self.states


@dataclass(frozen=True, slots=True)
class _Page:
    """Stored runs that meet conditions: where their page ends, and whether it is the last."""

    runs: list[Run]
    end: tuple[str, str] | None
    is_last: bool


class Catalogue:
    """The runs of the store, as plain objects.

    Args:
        database: The store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, scope: Scope, run_id: str) -> Run:
        """Return a run as it is stored, to be shown.

        Raises:
            NotFoundError: The scope reaches no such run.
        """
        loaded = await self._database.read(lambda c: _loaded(c, runs.get_run(c, scope, run_id)))
        if loaded is None:
            raise self.not_found(run_id)
        return _shown(*loaded)

    async def load(self, run_id: str) -> Run:
        """Return a run to be worked on in the background, for all teams.

        Raises:
            NotFoundError: It was deleted.
            WrongStateError: What is stored of it cannot be read.
        """
        loaded = await self._database.read(lambda c: _loaded(c, runs.load_run(c, run_id)))
        if loaded is None:
            raise self.not_found(run_id)
        return _whole(*loaded)

    async def list_newest(
        self,
        scope: Scope,
        count: int,
        before: tuple[str, str] | None,
        wanted: RunFilter,
        shown: Callable[[Run], Run],
    ) -> list[Run]:
        """Return up to `count` runs without summaries, newest first, older than (created_at, run_id) `before`.

        Args:
            scope: What the caller reaches.
            count: Most runs.
            before: The run that they follow; None for the newest.
            wanted: The conditions that they meet.
            shown: Returns a run as clients see it: a storage pause may be known to this process alone.
        """
        size = count if wanted.is_plain else max(count, _FILTERED_PAGE)
        found: list[Run] = []
        while len(found) < count:
            page = await self._read_page(scope, size, before, wanted)
            found += filter(wanted.accepts_state, map(shown, page.runs))
            before = page.end
            if page.is_last:
                break
        return found[:count]

    async def _read_page(self, scope: Scope, size: int, before: tuple[str, str] | None, wanted: RunFilter) -> _Page:
        """Read one page of stored runs, and keep those whose settings meet the conditions."""

        def load(connection: sa.Connection) -> tuple[list[tuple[RunRecord, DatasetRef]], list[RunRecord]]:
            listed = runs.list_newest(connection, scope, size, before, wanted.run_id_prefix)
            found = [record for record in listed if wanted.accepts_settings(record.spec)]
            names = {(record.team, record.dataset_id) for record in found}
            known = {name: datasets.get_dataset(connection, *name) for name in names}
            counted = [
                (results.recounted(connection, record), dataset)
                for record in found
                if (dataset := known[record.team, record.dataset_id]) is not None
            ]
            return counted, listed

        found, listed = await self._database.read(load)
        return _Page(
            runs=[_shown(dataclasses.replace(record, summary=None), dataset) for record, dataset in found],
            end=(listed[-1].created_at, listed[-1].run_id) if listed else before,
            is_last=len(listed) < size,
        )

    async def estimate_deletion(self, scope: Scope, run_id: str) -> Deletion:
        """Return what would go with a run.

        Raises:
            NotFoundError: The scope reaches no such run.
        """

        def load(connection: sa.Connection) -> Deletion | None:
            record = runs.get_run(connection, scope, run_id)
            return deletions.estimate_deletion(connection, record) if record is not None else None

        found = await self._database.read(load)
        if found is None:
            raise self.not_found(run_id)
        return found

    def not_found(self, run_id: str) -> NotFoundError:
        """Return the error for a run that a scope does not reach, the same whether there is such a run or not."""
        return NotFoundError(
            f"there is no run {run_id!r}: `assay runs list` shows the runs there are", reason="RUN_NOT_FOUND"
        )


def _loaded(connection: sa.Connection, record: RunRecord | None) -> tuple[RunRecord, DatasetRef] | None:
    if record is None:
        return None
    dataset = datasets.get_dataset(connection, record.team, record.dataset_id)
    assert dataset is not None, "a foreign key holds the dataset"
    return results.recounted(connection, record), dataset


def _shown(record: RunRecord, dataset: DatasetRef) -> Run:
    """Return a run; one that cannot be read says why in place of its settings, and breaks no list."""
    try:
        return _whole(record, dataset)
    except WrongStateError as problem:
        spec = settings_to_json(RunSettings(name=record.run_id, agent=AgentSettings(UNREADABLE), metrics=()))
        return _run(dataclasses.replace(record, spec=spec, summary=None, state_reason=problem.message), dataset)


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
