"""Quotas of teams: runs reserve the money, tokens and bytes of their calls and pause when a quota is used up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from assay.agent_host.concurrency.suspension import boot_time
from assay.model.run import RunState
from assay.process.periodic_check import PeriodicCheck
from assay_orchestrator.budgets.run_budget import RunBudget
from assay_orchestrator.store import control
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.teams import allotments, quotas

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

    from assay.storage.database import Database

CHECK_S = 2.0

_log = logging.getLogger(__name__)


class PausingOwner(Protocol):
    """The owner of this process's runs."""

    def on_pausing(self, run_id: str) -> None:
        """Ask no more questions of a run."""

    def on_paused(self, run_id: str, message: str) -> None:
        """Handle that a run is paused."""


class BudgetWatch(PeriodicCheck):
    """Opens the budgets of runs, and pauses the runs of a team whose quota is used up.

    The cost of a call is not always known before it: agents report their usage with the answer. So every process also
    checks the quotas of all runs in the database; the first to see one used up pauses the runs.

    Args:
        database: The database that all processes share.
        owner: The owner of this process's runs.
        check_s: Time between two checks, in seconds.
    """

    def __init__(self, database: Database, owner: PausingOwner, *, check_s: float = CHECK_S) -> None:
        super().__init__("check quotas of teams", check_s)
        self._database = database
        self._owner = owner
        self._open: WeakSet[RunBudget] = WeakSet()

    async def open(self, team: str, run_id: str) -> RunBudget:
        """Return the budget of a run of this process.

        Raises:
            StorageError: The database does not answer.
        """

        async def pause(message: str) -> None:
            await self._pause(run_id, lambda connection: message)

        budget = RunBudget(team, run_id, pause)
        if self._loop is not None:
            limits, budget.judge.is_metered = await self._database.read(
                lambda c: (allotments.limits_by_team(c), allotments.has_judging(c, budget.judge.holder))
            )
            budget.limit(allotments.limits_of(team, limits))
            self._open.add(budget)
        return budget

    async def check(self) -> None:
        """Renew the reservations of local runs, and pause the runs whose team has used up a quota.

        Raises:
            StorageError: The database does not answer.
        """
        if self._open:
            await self._renew()
        for run_id, _ in await self._database.read(quotas.runs_over_budget):
            await self._pause(run_id, lambda connection, run_id=run_id: _message(connection, run_id))  # type: ignore[misc]

    async def _renew(self) -> None:
        limits = await self._database.read(allotments.limits_by_team)
        renewals: dict[str, Callable[[float | None], None]] = {}
        for budget in self._open:
            budget.limit(allotments.limits_of(budget.holder.team, limits))
            renewals |= budget.holders
        if renewals:
            # Before the write: the leases begin at the database, and a later time would trust them for too long.
            begun = boot_time()
            renewed = await self._database.write(lambda c: allotments.renew(c, renewals))
            for name, note in renewals.items():
                note(begun if name in renewed else None)

    async def _pause(self, run_id: str, message_of: Callable[[sa.Connection], str]) -> None:
        def pause(connection: sa.Connection) -> tuple[RunState | None, str]:
            message = message_of(connection)
            return control.pause_for_quota(connection, run_id, message) if message else None, message

        state, message = await self._database.write(pause)
        if state is None:
            return
        _log.warning("pausing run, quota reached: run=%s: %s", run_id, message)
        if state is RunState.PAUSED:
            self._owner.on_paused(run_id, message)
        else:
            self._owner.on_pausing(run_id)


def _message(connection: sa.Connection, run_id: str) -> str:
    """Return which quota a run's team has used up, as a sentence; empty if none is."""
    team, _ = runs.read_origin(connection, run_id)
    over = quotas.over_budget(connection, team) if team else None
    return quotas.sentence(team, over) if over is not None else ""
