"""The budget of one run in this process: its share of the team's money and tokens.

A call reserves the most that it may use and settles its actual usage. Reserving queries the database only when the
run's allotment is used up (`store.allotments`), and never if the team has no such quota. The usage is stored as spent
with the next rows, whatever the outcome of the calls.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from assay.agent_host.concurrency.suspension import boot_time
from assay.errors import StorageError
from assay_orchestrator.budgets.budget_store import BudgetExhaustedError
from assay_orchestrator.budgets.judge_budget import JudgeBudget
from assay_orchestrator.store.teams import allotments, spending
from assay_orchestrator.store.teams.allotments import LEASE_S, NOTHING, UNLIMITED, Amount, Holder, Shortage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    import sqlalchemy as sa

    from assay_orchestrator.budgets.budget_store import BudgetStore


class Reservation:
    """The amount reserved for one call, for the length of a block.

    Attributes:
        cost: The usage of the call: its maximum, until more is known.
        has_waited: Whether time may have passed before the reservation, in which the run may have been paused, or its
            shard moved to another worker.
    """

    def __init__(self, budget: RunBudget, most: Amount, *, has_waited: bool = False) -> None:
        self.cost = most
        self.has_waited = has_waited
        self._budget = budget
        self._most = most

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._budget.settle(self._most, self.cost)


class RunBudget:
    """Reserves the usage of one run's calls, if its team is limited.

    Args:
        team: The team that pays.
        run_id: The run.
        on_exhausted: Pauses the run; called with the reason as a sentence.
    """

    def __init__(
        self, team: str = "", run_id: str = "", on_exhausted: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._store: BudgetStore | None = None
        self._on_exhausted = on_exhausted
        self.holder = Holder(team, run_id, secrets.token_hex(16))
        self.judge = JudgeBudget(self.holder, self._exhausted)
        self._limited: frozenset[str] = frozenset()
        self.is_metered = False
        """Whether the agent's calls are reserved here: their cost is then read here, not from its answers."""
        self.meters_verdict_tokens = False
        """Whether the tokens of verdicts are reserved here, and so not read from rows."""
        self.used = NOTHING
        """The usage of calls so far."""
        self.recorded = NOTHING
        """The part of the usage that is stored as spent."""
        self.has_allotment = False
        self.pausing = asyncio.Event()
        """Set when the run is being paused: no call waits any more."""
        self._in_flight = NOTHING
        self._allotted = NOTHING
        self._held_until = 0.0
        self._taking = asyncio.Lock()
        self._settled = asyncio.Event()
        self._is_exhausted = False

    def attach(self, store: BudgetStore) -> None:
        """Keep allotments in a store from now on."""
        self._store = self.judge.store = store

    @property
    def is_limited(self) -> bool:
        """Whether the team has a quota of money or tokens."""
        return bool(self._limited)

    def limit(self, amounts: frozenset[str]) -> None:
        """Limit the run from its next call on; `amounts` names the team's quotas."""
        if amounts != self._limited:
            self._limited, self._held_until = amounts, 0.0  # the allotment was taken from other quotas
            self.judge.limit(is_limited="nano_usd" in amounts)

    @property
    def limits_tokens(self) -> bool:
        """Whether the team has a quota of tokens."""
        return "tokens" in self._limited

    @property
    def holders(self) -> dict[str, Callable[[float | None], None]]:
        """Functions that record the renewal or expiry of an allotment's lease, by the name of its holder."""
        holders: dict[str, Callable[[float | None], None]] = {}
        if self.has_allotment or self.judge.has_allotment:
            holders[self.holder.name] = self.renewed
        if self.judge.has_allotment:
            holders[self.judge.holder.name] = self.judge.renewed
        return holders

    async def reserve(self, most: Callable[[], Amount]) -> Reservation:
        """Reserve the most that a call may use; wait if calls in flight may leave enough.

        Args:
            most: Returns that amount; called only if the team is limited.

        Raises:
            BudgetExhaustedError: The team has too little left, or that cannot be read because the process stops; or the
                call had to wait, and the run is being paused.
        """
        if not self.is_limited or self._store is None:
            return Reservation(self, NOTHING)
        maximum, has_waited = most(), self._taking.locked()
        async with self._taking:  # first come, first served
            while not self._fits(maximum):
                has_waited = True
                if self._is_exhausted or self.pausing.is_set():
                    raise BudgetExhaustedError
                self._settled.clear()
                shortage = await self._take(self._store, maximum)
                if shortage is None or self._settled.is_set():
                    continue  # a call settled meanwhile may have left enough
                if self._in_flight == NOTHING:
                    await self._exhausted(shortage)
                await self._until_settled()
            if has_waited and self.pausing.is_set():
                raise BudgetExhaustedError
            self._in_flight += maximum
        return Reservation(self, maximum, has_waited=has_waited)

    def settle(self, most: Amount, cost: Amount) -> None:
        """Replace a call's reservation by its actual usage."""
        self._in_flight -= most
        self.used += cost
        self._settled.set()

    def renewed(self, at: float | None) -> None:
        """Record that the lease was renewed, with a time (`boot_time`) before the renewal; None if it had expired."""
        self._held_until = 0.0 if at is None else at + LEASE_S

    def record(self, connection: sa.Connection, used: Amount) -> int | None:
        """Store the usage up to a point as spent; the caller adds it to the run's spending.

        Returns:
            The cost of verdicts since the last time, which the caller adds too, in billionths of a dollar; None if rows
            report it.
        """
        if self.has_allotment:
            allotments.record(connection, self.holder, used)
        return self.judge.record(connection)

    async def aclose(self) -> None:
        """Store the usage, and return the rest."""
        is_empty = self.used == self.recorded and not self.has_allotment and not self.judge.is_metered
        if self._store is None or is_empty:
            return
        remaining = self.used - self.recorded

        def close(connection: sa.Connection) -> None:
            judged = self.judge.end(connection)
            spent = spending.Spent(remaining.tokens, remaining.nano_usd + judged)
            spending.add_spent(connection, self.holder.run_id, spent)
            allotments.release(connection, self.holder)

        try:
            await self._store.write_once(close)
        except StorageError:
            return  # the lease expires by itself
        self.recorded, self.has_allotment, self.judge.has_allotment = self.used, False, False

    def _fits(self, amount: Amount) -> bool:
        is_held = self._allotted == UNLIMITED or boot_time() < self._held_until
        return is_held and (self.used + self._in_flight + amount).fits(self._allotted)

    async def _until_settled(self) -> None:
        """Wait until a call is settled, or the run is being paused."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._settled, self.pausing)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _take(self, store: BudgetStore, next_call: Amount) -> Shortage | None:
        """Take what the next calls may need; return the shortage if that is impossible."""
        used, recorded, begun = self.used + self._in_flight, self.recorded, boot_time()
        try:
            taken = await store.write(lambda c: allotments.take(c, self.holder, used, recorded, next_call))
        except StorageError as problem:
            raise BudgetExhaustedError from problem
        if isinstance(taken, Shortage):
            return taken
        self._allotted, self.has_allotment = taken, taken != UNLIMITED
        self.renewed(begun)
        return None

    async def _exhausted(self, shortage: Shortage) -> None:
        """Pause the run, and raise BudgetExhaustedError."""
        try:
            if self._on_exhausted is not None:
                await self._on_exhausted(shortage.sentence(self.holder.team))
            self._is_exhausted = True  # waiting calls need not query the database
        except StorageError:
            pass  # the next call pauses it
        raise BudgetExhaustedError
