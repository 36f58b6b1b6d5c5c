"""Background upkeep of teams: removes deleted teams, and runs and datasets past their retention."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from assay.errors import AssayError, NotFoundError, WrongStateError
from assay.identity.audit import AuditEntry
from assay.model.scope import Scope
from assay.process.failpoints import failpoint
from assay.storage.times import now
from assay_orchestrator.store.removal import deletions, erasure, retention
from assay_orchestrator.store.teams import audit, baselines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.runs.team_runs import TeamRuns
    from assay_orchestrator.runs.team_services import TeamService
    from assay_orchestrator.store.teams.tokens import TeamRecord

INTERVAL_S = 60.0
SETTLE_S = 60.0
"""How long after a team's deletion a process may still accept its tokens; data stored until then is deleted too."""
_DAY_S = 86_400.0
_BATCH_ROWS = 2_000
_MARGIN_S = 0.1  # the clocks of database and process may differ by this much

_log = logging.getLogger(__name__)


class Upkeep:
    """Works through deletions and retentions, one at a time, once a minute and whenever it is woken.

    Its state is in the database: the next start, or another process, continues interrupted work. Processes that do the
    same work at once do not hinder each other.

    Args:
        database: The store.
        runs: The runs of teams.
        services: The other services with team data.
        settle_s: See SETTLE_S.
        interval_s: Time between checks without a wake-up, in seconds.
    """

    def __init__(
        self,
        database: Database,
        runs: TeamRuns,
        services: Sequence[TeamService],
        *,
        settle_s: float = SETTLE_S,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._database = database
        self._runs = runs
        self._services = services
        self._settle_s = settle_s
        self._interval_s = self._pause_s = interval_s
        self._woken = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start."""
        self._working = asyncio.create_task(self._work(), name="upkeep of teams")

    def wake(self) -> None:
        """Check for work now."""
        self._woken.set()

    async def aclose(self) -> None:
        """Stop between two batches."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])

    async def _work(self) -> None:
        while True:
            # Cleared before the work, so that a wake-up during it starts another round.
            self._woken.clear()
            self._pause_s = self._interval_s
            await self._supervise("all", self._look())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s):
                    await self._woken.wait()

    async def _supervise(self, team: str, work: Awaitable[None]) -> None:
        """Wait for work; a failure ends neither the loop nor other teams' work, and the next check retries it."""
        try:
            await work
        except AssayError as problem:
            _log.warning("upkeep of teams interrupted, retrying: team=%s: %s", team, problem.message)
        except Exception:  # noqa: BLE001 - the boundary of a task: the loop must not end
            _log.exception("upkeep of teams failed, retrying: team=%s", team)

    async def _look(self) -> None:
        for record in await self._database.read(erasure.list_unfinished):
            await self._supervise(record.team, self._erase(record))
        for record in await self._database.read(retention.list_teams):
            await self._supervise(record.team, self._retain(record))

    async def _erase(self, record: TeamRecord) -> None:
        """Delete a deleted team's data; finished once nothing remains and no process accepts its tokens any more."""
        scope = Scope(record.team)
        is_new = not await self._database.read(lambda c: erasure.list_counts(c, record.team))
        if is_new:
            _log.info("deleting team: team=%s", record.team)
        # Its runs end first: they would store rows again.
        await self._runs.stop(scope)
        await self._runs.drop(scope)
        await self._erase_rows(scope)
        for service in self._services:
            await self._erase_at(service, scope)
        await self._database.forget_deleted()
        settles_in_s = self._settle_s - _age_s(record.deleted_at or "")
        if settles_in_s > 0:
            self._pause_s = min(self._pause_s, settles_in_s + _MARGIN_S)
            return
        if await self._database.write(lambda c: erasure.finish_erasure(c, scope)):
            _log.info("deleted team: team=%s", record.team)

    async def _erase_rows(self, scope: Scope) -> None:
        while True:
            for table in erasure.parts_of_runs():
                while await self._database.write(
                    lambda c, table=table: erasure.erase_some(c, scope, table, _BATCH_ROWS)  # type: ignore[misc]  # mypy does not infer it
                ):
                    failpoint("team.batch_erased")
            if await self._database.write(lambda c: erasure.erase_tables_of_teams(c, scope)):
                failpoint("team.rows_erased")
                return

    async def _erase_at(self, service: TeamService, scope: Scope) -> None:
        deleted: dict[str, int] = {}
        remaining: dict[str, int | None] = {service.name: None}
        try:
            deleted, counted = await service.delete(scope.team)
            remaining = {store: counted[store] for store in counted}
        except AssayError as problem:
            _log.warning("cannot delete team yet: team=%s service=%s: %s", scope.team, service.name, problem.message)

        def note(connection: sa.Connection) -> None:
            for store, count in deleted.items():
                erasure.add_deleted(connection, scope.team, f"{service.name} {store}", count)
            for store, remaining_count in remaining.items():
                shown = service.name if store == service.name else f"{service.name} {store}"
                erasure.note_remaining(connection, scope.team, shown, remaining_count)
            if deleted:
                erasure.note_answered(connection, scope.team, service.name)

        await self._database.write(note)

    async def _retain(self, record: TeamRecord) -> None:
        """Delete the runs past a team's retention, then the datasets that no run uses and none was uploaded since."""
        scope = Scope(record.team)
        if record.keep_runs_days:
            before = now(-record.keep_runs_days * _DAY_S)
            for run_id in await self._database.read(lambda c: retention.list_old_runs(c, scope, before)):
                await self._retire(scope, run_id)
            for dataset_id in await self._database.read(lambda c: retention.list_old_datasets(c, scope, before)):
                await self._retire_dataset(scope, dataset_id)
        if record.keep_audit_days:
            audit_before = now(-record.keep_audit_days * _DAY_S)
            await self._database.write(lambda c: audit.remove_before(c, record.team, audit_before))

    async def _retire(self, scope: Scope, run_id: str) -> None:
        def begin(connection: sa.Connection) -> deletions.PendingDeletion | None:
            if baselines.names_of(connection, scope, run_id):
                return None  # it became a baseline after the runs were listed
            pending = deletions.begin_deletion(connection, scope, run_id)
            if pending is not None:
                audit.append(connection, AuditEntry(scope.team, "delete-run", run_id, actor_name="retention"))
            return pending

        pending = await self._database.write(begin)
        if pending is not None:
            _log.info("deleted run after its retention: team=%s run=%s", scope.team, run_id)
            await self._runs.finish_deletion(pending)

    async def _retire_dataset(self, scope: Scope, dataset_id: str) -> None:
        def begin(connection: sa.Connection) -> deletions.PendingDeletion:
            pending = deletions.begin_dataset_deletion(connection, scope, dataset_id)
            audit.append(connection, AuditEntry(scope.team, "delete-dataset", dataset_id, actor_name="retention"))
            return pending

        try:
            pending = await self._database.write(begin)
        except (NotFoundError, WrongStateError):
            return  # it was deleted, or a run was created over it, after the datasets were listed
        _log.info("deleted dataset after its retention: team=%s dataset=%s", scope.team, dataset_id)
        await self._runs.finish_deletion(pending)


def _age_s(moment: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
