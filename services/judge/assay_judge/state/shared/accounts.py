"""Accounts of runs over all replicas: the database decides whether an amount fits."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from typing import TYPE_CHECKING

from assay_judge.state.account import Account, SpendCapReachedError

if TYPE_CHECKING:
    from assay_judge.model import RunKey
    from assay_judge.state.account import SpendJournal
    from assay_judge.state.shared.spending import SpendStatus
    from assay_judge.state.shared.store import SharedStore

_POLL_S = 0.5  # for money that another replica's call leaves


class SharedAccount(Account):
    """What one run has spent and set aside, here and elsewhere, as far as the last look has shown.

    Args:
        store: Where all of it is.
    """

    def __init__(self, run: RunKey, store: SharedStore) -> None:
        super().__init__(run)
        self._store = store
        self._waiting: deque[_Turn] = deque()
        self._is_short = False
        self._unknown = 0

    @property
    def unknown(self) -> int:
        """What of `spent` is for calls whose outcome is unknown."""
        return self._unknown

    async def refresh(self) -> None:
        """Read what is spent and reserved now."""
        self._note(await self._store.read_spending(self.run))

    async def reserve(
        self,
        most: int,
        cap: int | None,
        journal: SpendJournal,
        *,
        waits: asyncio.Event | None = None,
        lasts_s: float = 0.0,
        key: str = "",
    ) -> SharedReservation:
        """Set aside the most that a call may cost; wait where other calls, of any replica, may leave enough.

        Those that wait here have their turn in the order in which they came.

        Raises:
            SpendCapReachedError: Too little is left, whatever the calls in flight will cost.
            StorageError: The database cannot be written.
        """
        turn = _Turn(waits)
        self._waiting.append(turn)
        if self._is_short:
            turn.report_waiting()
        try:
            while True:
                if self._waiting[0] is not turn:
                    await turn.comes.wait()
                    continue
                turn.comes.clear()
                found = await self._reserved(most, cap, lasts_s, key)
                self._is_short = found is None
                if found is not None:
                    return found
                for other in self._waiting:
                    other.report_waiting()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await turn.comes.wait()
        finally:
            self._waiting.remove(turn)
            self._wake()

    async def reserve_now(
        self, most: int, cap: int | None, journal: SpendJournal, *, lasts_s: float = 0.0
    ) -> SharedReservation | None:
        """Set an amount aside if it fits at once; else return None."""
        if cap is not None and self._waiting:
            return None
        try:
            return await self._reserved(most, cap, lasts_s)
        except SpendCapReachedError:
            return None

    def adopt(self, amount: int, journal: SpendJournal, name: str = "") -> SharedReservation:
        """Return the reservation of a call that an earlier process made and whose outcome will still come."""
        return SharedReservation(self, amount, name)

    async def settled(self, name: str, cost: int, *, key: str = "", lost_most: int = 0) -> None:
        """Replace a reservation by what was paid; bound what lost calls for the same verdict can have cost."""
        self._note(await self._store.settle(self.run, name, cost, key=key, lost_most=lost_most))
        self._wake()

    async def lost_call(self, name: str) -> None:
        """Count a reservation as spent."""
        self._note(await self._store.lose(self.run, name))
        self._wake()

    async def _reserved(self, most: int, cap: int | None, lasts_s: float, key: str = "") -> SharedReservation | None:
        """Return a reservation; None where others may leave enough for it."""
        name = secrets.token_hex(16)
        work = asyncio.ensure_future(self._store.reserve(self.run, name, most, cap, lasts_s, key=key))
        try:
            found = await asyncio.shield(work)
        except asyncio.CancelledError:
            if (await work).fits:
                await asyncio.shield(self.settled(name, 0))
            raise
        self._note(found)
        if found.fits:
            return SharedReservation(self, most, name, key)
        if cap is not None and found.spent + most > cap:
            raise SpendCapReachedError
        return None

    def _wake(self) -> None:
        """Wake the first waiting call, which reads the account again."""
        if self._waiting:
            self._waiting[0].comes.set()
        else:
            self._is_short = False

    def _note(self, found: SpendStatus) -> None:
        self.spent, self.reserved, self._unknown = found.spent, found.reserved, found.lost


class _Turn:
    """One that waits for money."""

    def __init__(self, waits: asyncio.Event | None) -> None:
        self.comes = asyncio.Event()
        self._waits = waits

    def report_waiting(self) -> None:
        """Note that the cap has no room at present."""
        if self._waits is not None:
            self._waits.set()


class SharedReservation:
    """Money that is set aside in the database for one call.

    Args:
        account: The run's.
        amount: In billionths of a dollar.
        name: Its name in the database.
        key: The verdict that the call is for; empty for an order of a batch.
    """

    def __init__(self, account: SharedAccount, amount: int, name: str, key: str = "") -> None:
        self.account = account
        self.amount = amount
        self.name = name
        self._key = key

    async def settle(self, cost: int, lost_most: int | None = None) -> None:
        """Replace what was set aside by what the call has cost; the database does so once."""
        key = self._key if lost_most is not None else ""
        await self.account.settled(self.name, cost, key=key, lost_most=lost_most or 0)

    async def lose(self) -> None:
        """Count all of it as spent."""
        await self.account.lost_call(self.name)
