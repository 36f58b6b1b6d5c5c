"""The judging budget of one run: money taken from its team's quota, which the judge enforces.

The judge's account of the run is authoritative: it reserves each call and order, knows their cost, and knows which
calls were in flight when a process ended. The run sends along how much it may have spent by now, and takes more before
that is used up. All workers of a run share the money taken.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

from assay.agent_host.concurrency.suspension import boot_time
from assay.errors import StorageError
from assay_orchestrator.budgets.budget_store import BudgetExhaustedError
from assay_orchestrator.store.teams import allotments
from assay_orchestrator.store.teams.allotments import LEASE_S, Holder, JudgingNeed, Shortage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import sqlalchemy as sa

    from assay_orchestrator.budgets.budget_store import BudgetStore

_SHORT_S = 1.0  # calls in flight may leave enough; until then the database is not queried before each call


class JudgeBudget:
    """Takes money for the verdicts of one run, if its team is limited.

    Args:
        worker: The run in this process.
        on_shortage: Pauses the run, and raises BudgetExhaustedError.
    """

    def __init__(self, worker: Holder, on_shortage: Callable[[Shortage], Awaitable[None]]) -> None:
        name = hashlib.sha256(f"judging {worker.run_id}".encode()).hexdigest()[:32]
        self.holder = Holder(worker.team, worker.run_id, name)
        self._worker = worker
        self.is_limited = False
        self.is_metered = False
        """Whether money was or will be taken: the judge's account, not the rows, then gives the cost of verdicts."""
        self.has_allotment = False
        self.store: BudgetStore | None = None
        self.spent = 0
        """The judge's reported spending for the run, in billionths of a dollar."""
        self.reserved = 0
        self._on_shortage = on_shortage
        self._is_known = False
        self._taken = 0
        self._most = 0
        self._in_flight = 0
        self._held_until = 0.0
        self._short_until = 0.0
        self._taking = asyncio.Lock()

    def limit(self, *, is_limited: bool) -> None:
        """Limit the run from its next call on, or stop limiting it."""
        self.is_limited, self._held_until = is_limited, 0.0  # the money was taken from another quota
        self.is_metered = self.is_metered or is_limited

    async def allowance(self) -> int | None:
        """Return how much the run may have spent by now, with room for another call; None for no limit.

        A shortage is not an error here: calls in flight may leave enough, and the judge reports if they do not.
        """
        if not self.is_limited or self.store is None:
            return None
        if self._most and self._is_low():
            async with self._taking:
                if self._is_low():
                    shortage = await self._take(self.store, self._most)
                    if isinstance(shortage, Shortage) or self._is_low():
                        self._short_until = boot_time() + _SHORT_S
        return self._taken if boot_time() < self._held_until else 0

    async def grow(self, sent: int, needed: int) -> None:
        """Take the amount that the judge lacks for a call.

        Args:
            sent: The allowance that was too small.
            needed: The maximum cost of the call.

        Raises:
            BudgetExhaustedError: The team has too little left, or that cannot be read because the process stops.
        """
        assert self.store is not None, "an allowance was sent"
        self._most = max(self._most, needed)
        async with self._taking:
            if self._taken > sent and boot_time() < self._held_until:
                return
            shortage = await self._take(self.store, needed)
        if isinstance(shortage, Shortage):
            await self._on_shortage(shortage)

    def began(self) -> None:
        """Record that a request is in flight."""
        self._in_flight += 1

    def ended(self, spent: int | None, reserved: int) -> None:
        """Record that a request has ended, with the judge's figures of the run's account; None without figures."""
        self._in_flight -= 1
        if spent is not None:
            self.observe(spent, reserved)

    def observe(self, spent: int, reserved: int) -> None:
        """Record the judge's figures of the run's account."""
        self.spent, self.reserved, self._is_known = max(self.spent, spent), reserved, True

    def renewed(self, at: float | None) -> None:
        """Record that the lease was renewed, with a time (`boot_time`) before the renewal; None if it had expired."""
        self._held_until = 0.0 if at is None else at + LEASE_S

    def record(self, connection: sa.Connection) -> int | None:
        """Store what the judge has spent.

        Returns:
            How much of it to add to the run's spending; None if rows report the cost of their verdicts.
        """
        return allotments.record_judging(connection, self.holder, self.spent) if self.is_metered else None

    def end(self, connection: sa.Connection) -> int:
        """Record the spending as `record`, and return the rest."""
        new = self.record(connection)
        if new is not None and self._is_known:
            allotments.end_judging(connection, self.holder, self._worker, self.spent, self.reserved)
        return new or 0

    @property
    def _room(self) -> int:
        """The cost of the next call and of the calls in flight."""
        return self._most * (self._in_flight + 1)

    def _is_low(self) -> bool:
        now = boot_time()
        remaining = self._taken - self.spent - self.reserved
        return now >= self._short_until and (now >= self._held_until or remaining < self._room)

    async def _take(self, store: BudgetStore, next_call: int) -> Shortage | None:
        """Take more money; return the shortage if that is impossible.

        Raises:
            BudgetExhaustedError: The database cannot be read because the process stops.
        """
        begun, need = boot_time(), JudgingNeed(self.spent, self.reserved, next_call, max(next_call, self._room))
        try:
            taken = await store.write(lambda c: allotments.take_judging(c, self.holder, self._worker, need))
        except StorageError as problem:
            raise BudgetExhaustedError from problem
        if isinstance(taken, Shortage):
            return taken
        self.has_allotment = self.has_allotment or taken is not None
        self.limit(is_limited=taken is not None)
        self._taken = taken or 0
        self.renewed(begun)
        return None
