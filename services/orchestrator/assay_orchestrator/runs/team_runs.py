"""All runs of a team at once: paused when the team is disabled, cancelled and dropped when it is deleted."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from assay.errors import NotFoundError, WrongStateError
from assay_orchestrator.store.removal import erasure
from assay_orchestrator.store.runs import runs

if TYPE_CHECKING:
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_orchestrator.runs.manager import RunManager
    from assay_orchestrator.store.removal.deletions import PendingDeletion


class TeamRuns:
    """Acts on the runs of teams.

    Args:
        database: The store.
        manager: The runs of this process.
    """

    def __init__(self, database: Database, manager: RunManager) -> None:
        self._database = database
        self._manager = manager

    async def pause_active(self, scope: Scope) -> int:
        """Pause the pending and running runs of a disabled team; return how many."""
        active = await self._database.read(lambda c: runs.list_active_ids(c, scope))
        pauses = (self._manager.pause(scope, run_id, message=runs.PAUSED_TEAM_DISABLED) for run_id in active)
        ended = await asyncio.gather(*pauses, return_exceptions=True)
        failures = [outcome for outcome in ended if isinstance(outcome, BaseException)]
        for failure in failures:
            if not isinstance(failure, (WrongStateError, NotFoundError)):  # the run ended, or was deleted, meanwhile
                raise failure
        return len(ended) - len(failures)

    async def requeue_idle(self) -> None:
        """Enqueue the next jobs of active runs without a queued shard: a quota that held them back has changed."""
        await self._manager.requeue_idle()

    async def stop(self, scope: Scope) -> int:
        """Cancel the unfinished runs of a deleted team; return how many. Other processes notice within 0.5 s."""
        run_ids = await self._database.read(lambda c: erasure.list_run_ids(c, scope, unfinished=True))
        for run_id in run_ids:
            with contextlib.suppress(WrongStateError, NotFoundError):  # the run has ended, or was deleted, meanwhile
                await self._manager.cancel(scope, run_id, message="the operator has deleted the team")
        return len(run_ids)

    async def drop(self, scope: Scope) -> None:
        """End what watches, hosts or works on a deleted team's runs, whose rows are deleted next."""
        for run_id in await self._database.read(lambda c: erasure.list_run_ids(c, scope)):
            await self._manager.drop(run_id, "deleted with its team")

    async def finish_deletion(self, pending: PendingDeletion) -> None:
        """Remove the rows of a run, or the cases of a dataset, deleted by retention."""
        await self._manager.finish_deletion(pending)
