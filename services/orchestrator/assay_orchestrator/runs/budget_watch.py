"""Runs whose team has used up a quota of tokens, money or bytes: they pause when their questions in flight end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from assay.model.run import RunState
from assay_orchestrator.runs.periodic_check import PeriodicCheck
from assay_orchestrator.store import control, quotas, runs

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.storage.database import Database

CHECK_S = 2.0

_log = logging.getLogger(__name__)


class PausingOwner(Protocol):
    """The owner of the runs of this process."""

    def on_pausing(self, run_id: str) -> None:
        """Ask no more questions of a run."""
        ...

    def on_paused(self, run_id: str, reason: str) -> None:
        """Handle that a run is paused now."""
        ...


class BudgetWatch:
    """Looks in the database whether teams have used up their quotas, and pauses their runs.

    Every process looks, for all runs: the first one to see it pauses them.

    Args:
        database: The database that all processes share.
        owner: The owner of the runs of this process.
        check_s: Time between two looks, in seconds.
    """

    def __init__(self, database: Database, owner: PausingOwner, *, check_s: float = CHECK_S) -> None:
        self._database = database
        self._owner = owner
        self._periodic = PeriodicCheck("quotas of teams", self.check, check_s)

    def start(self) -> None:
        """Start to look."""
        self._periodic.start()

    async def aclose(self) -> None:
        """Stop looking."""
        await self._periodic.aclose()

    async def check(self) -> None:
        """Pause the runs whose team has used up a quota.

        Raises:
            StorageError: The database does not answer.
        """
        for run_id, use in await self._database.read(quotas.runs_over_budget):
            await self._pause(run_id, use)

    async def _pause(self, run_id: str, use: quotas.Use) -> None:
        def pause(connection: sa.Connection) -> tuple[RunState | None, str]:
            team, _ = runs.read_origin(connection, run_id)
            over = quotas.over_budget(connection, team) if team else None
            if over is None:
                return None, ""
            reason = quotas.sentence(team, over)
            return control.pause_for_quota(connection, run_id, reason), reason

        state, reason = await self._database.write(pause)
        if state is None:
            return
        _log.warning("pausing run, quota reached: run=%s quota=%s", run_id, use.quota.value)
        if state is RunState.PAUSED:
            self._owner.on_paused(run_id, reason)
        else:
            self._owner.on_pausing(run_id)
