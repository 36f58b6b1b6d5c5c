"""Accounts of runs. The database decides, for all processes, whether an amount fits under a cap."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from typing import TYPE_CHECKING

from assay.errors import StorageError

if TYPE_CHECKING:
    from assay_judge.model import RunKey
    from assay_judge.state.spending import SpendStatus
    from assay_judge.state.store import JudgeStore

_POLL_S = 0.5  # while waiting for money that another process may release
_RETRIES_ALWAYS = 10
_RETRY_SHARE = 0.2


class SpendCapReachedError(Exception):
    """The maximum cost of the call exceeds the rest of the cap."""


class Account:
    """The amounts that a run has spent and reserved, in billionths of a dollar, as of the last query.

    Args:
        run: The run; without a run id, spending is neither capped nor stored.
        store: The judge's database.
    """

    def __init__(self, run: RunKey, store: JudgeStore) -> None:
        self.run = run
        self.spent = 0
        self.reserved = 0
        self.unknown = 0
        """The part of `spent` reserved for calls with an unknown outcome."""
        self.calls = 0
        self.retries = 0
        self.users = 0
        """Requests in flight."""
        self._store = store
        self._seen_changes = -1  # before the first query
        self._asked = 0  # the sum of amounts on their way to the database
        self._waiting: deque[_Turn] = deque()
        self._is_short = False

    def may_retry(self) -> bool:
        """Return whether the run's retry budget, ten or a fifth of its calls, has a retry left."""
        return self.retries < max(_RETRIES_ALWAYS, _RETRY_SHARE * self.calls)

    async def refresh(self) -> None:
        """Read the spent and reserved amounts, unless only this account has changed them since the last query."""
        # Each write returns the new sums, so a file need not be read again unless batches or a deletion changed them.
        changes = self._store.other_changes
        if self.run.run_id and (self._seen_changes != changes or self._store.is_shared):
            self._note(await self._store.read_spending(self.run))
            self._seen_changes = changes

    async def reserve(
        self, most: int, cap: int | None, *, lasts_s: float, waits: asyncio.Event | None = None, key: str = ""
    ) -> Reservation:
        """Reserve the maximum cost of a call; wait if other calls, of any process, may release enough.

        Calls of this process are served first come, first served.

        Args:
            most: The maximum cost, in billionths of a dollar.
            cap: Most that the run may spend; None for no cap.
            lasts_s: How long the call may take, in seconds; after that the amount counts as spent.
            waits: Set if the call must wait for money.
            key: The key of the verdict; empty for an order of a batch, whose outcome is never lost.

        Raises:
            SpendCapReachedError: Too little is left, even if the calls in flight cost nothing.
            StorageError: The database cannot be written.
        """
        if not self.run.run_id:
            return Reservation(self, "")
        if cap is None or self._seems_to_fit(most, cap) or self.spent + most > cap:
            # The call need not wait, or waiting would not help.
            # Counted before the write: of two calls at once, the second must not see the room that the first is taking.
            self._asked += most
            try:
                reservation = await self._reserved(most, cap, lasts_s, key)
            finally:
                self._asked -= most
            if reservation is not None:
                return reservation
        return await self._reserved_in_turn(most, cap, lasts_s, key, waits)

    async def reserve_now(self, most: int, cap: int | None, *, lasts_s: float) -> Reservation | None:
        """Reserve an amount if it fits at once and no call waits for money; else return None.

        Raises:
            StorageError: The database cannot be written.
        """
        if not self.run.run_id:
            return Reservation(self, "")
        if cap is not None and self._waiting:
            return None
        try:
            return await self._reserved(most, cap, lasts_s)
        except SpendCapReachedError:
            return None

    async def settle(self, name: str, cost: int, *, key: str = "", lost_most: int = 0) -> None:
        """Replace a reservation by the cost, and lower the reservations of lost calls for the same verdict."""
        if name:
            key = key if self.unknown or self._store.is_shared else ""  # otherwise no call was lost
            self._note(await self._store.settle(self.run, name, cost, key=key, lost_most=lost_most))
            self._wake()

    async def lose(self, name: str) -> None:
        """Count a reservation as spent."""
        if name:
            self._note(await self._store.lose(self.run, name))
            self._wake()

    def _seems_to_fit(self, most: int, cap: int) -> bool:
        """Return whether, as far as this process knows, an amount fits and no other call is waiting."""
        return not self._waiting and self.spent + self.reserved + self._asked + most <= cap

    async def _reserved_in_turn(
        self, most: int, cap: int | None, lasts_s: float, key: str, waits: asyncio.Event | None
    ) -> Reservation:
        turn = _Turn(waits)
        self._waiting.append(turn)
        if self._is_short:
            turn.report_waiting()
        try:
            while True:
                if self._waiting[0] is not turn:
                    await turn.comes.wait()
                    continue
                # Cleared before the query: money released during the query must wake this call again.
                turn.comes.clear()
                reservation = await self._reserved(most, cap, lasts_s, key)
                self._is_short = reservation is None
                if reservation is not None:
                    return reservation
                for other in self._waiting:
                    other.report_waiting()
                with contextlib.suppress(TimeoutError):
                    # Another process may release money too, and it cannot wake a call of this one.
                    async with asyncio.timeout(_POLL_S):
                        await turn.comes.wait()
        finally:
            # A call that leaves passes its wake-up on: the wake-up may have come for it alone.
            self._waiting.remove(turn)
            self._wake()

    async def _reserved(self, most: int, cap: int | None, lasts_s: float, key: str = "") -> Reservation | None:
        """Return a reservation; None if other calls may release enough for it."""
        name = secrets.token_hex(16)
        work = asyncio.ensure_future(self._store.reserve(self.run, name, most, cap, lasts_s, key=key))
        try:
            # The write may be committed although its caller is cancelled, and no other call would release that amount.
            status = await asyncio.shield(work)
        except asyncio.CancelledError:
            with contextlib.suppress(StorageError):  # the amount then counts as spent after `lasts_s`
                if (await work).fits:
                    await asyncio.shield(self.settle(name, 0))
            raise
        self._note(status)
        if status.fits:
            return Reservation(self, name, key)
        if cap is not None and status.spent + most > cap:
            raise SpendCapReachedError
        return None

    def _wake(self) -> None:
        """Wake the first waiting call, which reads the account again."""
        if self._waiting:
            self._waiting[0].comes.set()
        else:
            self._is_short = False

    def _note(self, status: SpendStatus) -> None:
        self.spent, self.reserved, self.unknown = status.spent, status.reserved, status.lost


class _Turn:
    """The place of one call in the queue for money."""

    def __init__(self, waits: asyncio.Event | None) -> None:
        self.comes = asyncio.Event()
        self._waits = waits

    def report_waiting(self) -> None:
        """Report that the cap has no room at present."""
        if self._waits is not None:
            self._waits.set()


class Reservation:
    """Money reserved for one call, to be settled or lost.

    Args:
        account: The run's account.
        name: Its id in the database; empty for a call without a run.
        key: The key of the verdict; empty for an order of a batch.
    """

    def __init__(self, account: Account, name: str, key: str = "") -> None:
        self.name = name
        self._account = account
        self._key = key

    async def settle(self, cost: int, lost_most: int | None = None) -> None:
        """Replace the amount by the cost of the call; a repetition changes nothing.

        Args:
            cost: The cost in billionths of a dollar.
            lost_most: The maximum cost of a lost call for the same verdict; None if unknown.
        """
        key = self._key if lost_most is not None else ""
        await self._account.settle(self.name, cost, key=key, lost_most=lost_most or 0)

    async def lose(self) -> None:
        """Count the whole amount as spent, because the outcome is unknown; `settle` of a later call may lower it."""
        await self._account.lose(self.name)
