"""Runs whose agent no client hosts any more: they pause, which frees their place for other runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from assay.process.periodic_check import PeriodicCheck
from assay_orchestrator.store.runs import attendance

if TYPE_CHECKING:
    from collections.abc import Collection

    from assay.storage.database import Database

_CHECKS_PER_LIMIT = 10
_MOST_CHECK_S = 60.0

_log = logging.getLogger(__name__)


class AgentOwner(Protocol):
    """The owner of this process's runs."""

    def attended(self) -> Collection[str]:
        """Return the runs that clients of this process host."""

    async def pause_here(self, run_id: str) -> None:
        """Drop the work of this process on a run that was paused."""


class UnattendedRuns(PeriodicCheck):
    """Records in the database which runs have hosts here, and pauses runs that had none anywhere for too long.

    Args:
        database: The database that all processes share.
        owner: The owner of this process's runs.
        limit_s: How long a run may lack a host, in seconds.
    """

    def __init__(self, database: Database, owner: AgentOwner, *, limit_s: float) -> None:
        super().__init__("check unattended runs", min(limit_s / _CHECKS_PER_LIMIT, _MOST_CHECK_S))
        self._database = database
        self._owner = owner
        self._limit_s = limit_s

    async def check(self) -> None:
        """Record which runs have hosts here, then pause those without any.

        Raises:
            StorageError: The database does not answer.
        """
        attended = self._owner.attended()
        if attended:
            await self._database.write(lambda c: attendance.note_attended(c, attended))
        for run_id in await self._database.write(lambda c: attendance.pause_unattended(c, self._limit_s)):
            _log.warning("pausing run, no client hosts its agent: run=%s unattended_pause_s=%g", run_id, self._limit_s)
            await self._owner.pause_here(run_id)
