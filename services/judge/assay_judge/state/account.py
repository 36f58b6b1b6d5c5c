"""What one run may spend on judging: reserved before a call, settled after it, never more than the cap."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from assay.errors import StorageError
from assay_judge.state.lost_calls import LostCalls

if TYPE_CHECKING:
    from assay_judge.model import RunKey

_RETRIES_ALWAYS = 10

_RETRY_SHARE = 0.2


class SpendCapReachedError(Exception):
    """The call may cost more than is left under the cap."""


class SpendJournal(Protocol):
    """Where spending is kept."""

    async def spending(self, run: RunKey) -> int:
        """Return what a run has spent or set aside."""

    async def lost_calls(self, run: RunKey) -> str:
        """Return the calls of a run whose outcome is unknown, as `put_spending` got them; empty for none."""

    async def put_spending(self, run: RunKey, nano: int, lost_calls: str = "") -> None:
        """Keep what a run has spent or set aside, and the calls in it whose outcome is, or may become, unknown."""


class Reservable(Protocol):
    """Money that is set aside for one call; `settle` it."""

    @property
    def name(self) -> str:
        """What it is found by after a restart; empty where that is not needed."""

    async def settle(self, cost: int, lost_most: int | None = None) -> None:
        """Replace what was set aside by what the call has cost, in billionths of a dollar.

        It counts once. Repeat it after a StorageError, so that what is kept agrees.

        Args:
            cost: What the call has cost.
            lost_most: The most that a lost call for the same verdict can have cost; None where that is unknown.
        """

    async def lose(self) -> None:
        """Count all that was set aside as spent, because the outcome is unknown; `settle` of a later call bounds it."""


@dataclass(slots=True)
class _Waiting:
    most: int
    cap: int
    fits: asyncio.Future[bool]


@dataclass(eq=False)
class Account:
    """What one run has spent, reserved and retried.

    Args:
        run: The run; without a run id for calls of no run, whose spending is not recorded.
        spent: In billionths of a dollar.
        reserved: Reserved for calls in flight.
        calls: Calls that were made.
        retries: Those among them that repeated one which had failed.
        users: Requests in flight.
        lost: Calls whose outcome is unknown; what they may have cost is part of `spent`.
    """

    run: RunKey
    spent: int = 0
    reserved: int = 0
    calls: int = 0
    retries: int = 0
    users: int = 0
    lost: LostCalls = field(default_factory=LostCalls)
    _in_flight: dict[str, list[int]] = field(default_factory=dict)
    _queue: deque[_Waiting] = field(default_factory=deque)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _version: int = 0
    _written: int = 0

    @property
    def run_id(self) -> str:
        """The run id; empty for calls of no run."""
        return self.run.run_id

    @property
    def unknown(self) -> int:
        """What of `spent` is for calls whose outcome is unknown, in billionths of a dollar."""
        return self.lost.total

    async def refresh(self) -> None:
        """Read what other replicas have spent; here there are none."""

    def may_retry(self) -> bool:
        """Return whether the run has a retry left: ten, or a fifth of its calls, so that no storm feeds itself."""
        return self.retries < max(_RETRIES_ALWAYS, _RETRY_SHARE * self.calls)

    async def reserve(
        self,
        most: int,
        cap: int | None,
        journal: SpendJournal,
        *,
        waits: asyncio.Event | None = None,
        lasts_s: float = 0.0,
        key: str = "",
    ) -> Reservable:
        """Set aside the most that a call may cost; wait where other calls may leave enough.

        Args:
            most: In billionths of a dollar.
            cap: Most that the run may spend; None for no cap.
            journal: Where spending is kept.
            waits: Set where it has to wait for the money of others.
            lasts_s: How long the call may take, for other replicas: later it is spent. One process needs no limit.
            key: The verdict that the call is for; empty where its outcome comes whatever happens here, as of a batch.

        Raises:
            SpendCapReachedError: Too little is left, whatever the calls in flight will cost.
            StorageError: The journal cannot be written.
        """
        if cap is not None:
            await self._wait_for(most, cap, waits)
        else:
            self.reserved += most
        reservation = Reservation(self, most, journal, key=key)
        if key:
            self._in_flight.setdefault(key, []).append(most)
        try:
            await self._keep(journal)
        except BaseException:
            with contextlib.suppress(StorageError):  # the account's next write corrects the journal
                await asyncio.shield(reservation.settle(0))
            raise
        return reservation

    async def reserve_now(
        self, most: int, cap: int | None, journal: SpendJournal, *, lasts_s: float = 0.0
    ) -> Reservable | None:
        """Set an amount aside if it fits at once and no call waits for money; else return None.

        Raises:
            StorageError: The journal cannot be written.
        """
        if cap is not None and (self._queue or self.spent + self.reserved + most > cap):
            return None
        return await self.reserve(most, cap, journal)

    def adopt(self, amount: int, journal: SpendJournal, name: str = "") -> Reservable:
        """Return the reservation of a call that an earlier process made and whose outcome will still come.

        The journal has it already, as spent.
        """
        known = min(amount, self.spent)
        self.spent -= known
        self.reserved += known
        return Reservation(self, known, journal)

    async def _wait_for(self, most: int, cap: int, waits: asyncio.Event | None) -> None:
        """Set an amount aside as soon as it fits under the cap, in the order in which calls came."""
        if self.spent + most > cap:
            raise SpendCapReachedError
        waiting = _Waiting(most, cap, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._review()
        if waits is not None and not waiting.fits.done():
            waits.set()
        try:
            fits = await waiting.fits
        except asyncio.CancelledError:
            if waiting.fits.done() and not waiting.fits.cancelled() and waiting.fits.result():
                self._settle(most, 0)
            else:
                self._review()
            raise
        if not fits:
            raise SpendCapReachedError

    def _end_flight(self, key: str, amount: int) -> None:
        if key:
            self._in_flight[key].remove(amount)
            if not self._in_flight[key]:
                del self._in_flight[key]

    def _settle(self, reserved: int, cost: int) -> None:
        self.reserved -= reserved
        self.spent += cost
        self._review()

    def _review(self) -> None:
        """Resolve waiting calls in order; stop at the first that depends on calls in flight."""
        while self._queue:
            first = self._queue[0]
            if not first.fits.done():
                fits = self.spent + self.reserved + first.most <= first.cap
                if not fits and self.reserved and self.spent + first.most <= first.cap:
                    return
                if fits:
                    self.reserved += first.most
                first.fits.set_result(fits)
            self._queue.popleft()

    async def _keep(self, journal: SpendJournal) -> None:
        """Return once the journal holds the present state, or a later one: one write serves all who wait."""
        if not self.run_id:
            return
        self._version += 1
        wanted = self._version
        async with self._writing:
            if self._written < wanted:
                version = self._version
                lost = self.lost.text(self._in_flight)
                await journal.put_spending(self.run, self.spent + self.reserved, lost)
                self._written = version


@dataclass(slots=True)
class Reservation:
    """Money that is set aside for one call; settle it."""

    account: Account
    amount: int
    _journal: SpendJournal
    _open: bool = True
    name: str = ""
    key: str = ""

    async def settle(self, cost: int, lost_most: int | None = None) -> None:
        """Replace what was set aside by what the call has cost, once; a repetition writes the account again."""
        if self._open:
            freed = self.account.lost.bound(self.key, lost_most) if self.key and lost_most is not None else 0
            self._close(cost - freed)
        await self.account._keep(self._journal)  # noqa: SLF001 - the other half of the account

    async def lose(self) -> None:
        """Count all of it as spent."""
        if self._open:
            if self.account.run_id:
                self.account.lost.add(self.key, self.amount)
            self._close(self.amount)
        await self.account._keep(self._journal)  # noqa: SLF001

    def _close(self, cost: int) -> None:
        self._open = False
        self.account._end_flight(self.key, self.amount)  # noqa: SLF001
        self.account._settle(self.amount, cost)  # noqa: SLF001
