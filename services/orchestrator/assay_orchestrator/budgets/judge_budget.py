"""What one run may spend on judging: what is taken for it of its team's money, to which the judge holds its calls.

The judge's account of the run is the one that counts: it reserves each call and order, knows what they cost, and what
was in flight when a process ended. The run sends along how much it may have spent by now, and takes more before that
is used up. All workers of a run share what was taken.
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

_SHORT_S = 1.0  # calls in flight may leave enough; the database is not asked before each call meanwhile


class JudgeBudget:
    """Takes money for the verdicts of one run, as far as its team is limited.

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
        """Whether money was or will be taken: then what verdicts cost is read in the judge's account, not in rows."""
        self.has_allotment = False
        self.store: BudgetStore | None = None
        self.spent = 0
        """What the judge has spent for the run, as far as it has said so, in billionths of a dollar."""
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
        """Limit the run from its next call on, or no longer."""
        self.is_limited, self._held_until = is_limited, 0.0  # what was taken was taken of another quota
        self.is_metered = self.is_metered or is_limited

    async def allowance(self) -> int | None:
        """Return how much the run may have spent by now, with room for one more call; None for no bound.

        What is missing is not an error here: calls in flight may leave enough, and the judge says where they do not.
        """
        if not self.is_limited or self.store is None:
            return None
        if self._most and self._is_low():
            async with self._taking:
                if self._is_low():
                    found = await self._take(self.store, self._most)
                    if isinstance(found, Shortage) or self._is_low():
                        self._short_until = boot_time() + _SHORT_S
        return self._taken if boot_time() < self._held_until else 0

    async def grow(self, sent: int, needed: int) -> None:
        """Take what the judge misses for a call.

        Args:
            sent: The allowance that was too small.
            needed: The most that the call may cost.

        Raises:
            BudgetExhaustedError: The team has too little left, or that cannot be seen, as the process stops.
        """
        assert self.store is not None, "an allowance was sent"
        self._most = max(self._most, needed)
        async with self._taking:
            if self._taken > sent and boot_time() < self._held_until:
                return
            found = await self._take(self.store, needed)
        if isinstance(found, Shortage):
            await self._on_shortage(found)

    def began(self) -> None:
        """Note that a request is on its way."""
        self._in_flight += 1

    def ended(self, spent: int | None, reserved: int) -> None:
        """Note that a request has ended, and what the judge says of the run's account; None where it says nothing."""
        self._in_flight -= 1
        if spent is not None:
            self.observe(spent, reserved)

    def observe(self, spent: int, reserved: int) -> None:
        """Note what the judge says of the run's account."""
        self.spent, self.reserved, self._is_known = max(self.spent, spent), reserved, True

    def renewed(self, at: float | None) -> None:
        """Note that the lease was renewed, at a moment (`boot_time`) before that; at no moment where it had ended."""
        self._held_until = 0.0 if at is None else at + LEASE_S

    def record(self, connection: sa.Connection) -> int | None:
        """Store what the judge has spent.

        Returns:
            How much of that is to be added to the run's spending; None where rows say what their verdicts cost.
        """
        return allotments.record_judging(connection, self.holder, self.spent) if self.is_metered else None

    def end(self, connection: sa.Connection) -> int:
        """Do what `record` does, and give back the rest."""
        new = self.record(connection)
        if new is not None and self._is_known:
            allotments.end_judging(connection, self.holder, self._worker, self.spent, self.reserved)
        return new or 0

    @property
    def _room(self) -> int:
        """What the next call may cost, and those on their way."""
        return self._most * (self._in_flight + 1)

    def _is_low(self) -> bool:
        now = boot_time()
        left = self._taken - self.spent - self.reserved
        return now >= self._short_until and (now >= self._held_until or left < self._room)

    async def _take(self, store: BudgetStore, wanted: int) -> Shortage | None:
        """Take more; return why that cannot be.

        Raises:
            BudgetExhaustedError: That cannot be seen, as the process stops.
        """
        begun, need = boot_time(), JudgingNeed(self.spent, self.reserved, wanted, max(wanted, self._room))
        try:
            found = await store.write(lambda c: allotments.take_judging(c, self.holder, self._worker, need))
        except StorageError as problem:
            raise BudgetExhaustedError from problem
        if isinstance(found, Shortage):
            return found
        self.has_allotment = self.has_allotment or found is not None
        self.limit(is_limited=found is not None)
        self._taken = found or 0
        self.renewed(begun)
        return None
