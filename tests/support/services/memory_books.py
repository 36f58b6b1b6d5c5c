"""The spending of runs in memory, with the queries of the judge's store, for tests in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from assay.errors import StorageError
from assay_judge.model import RunKey
from assay_judge.state.accounts import Account
from assay_judge.state.spending import SpendStatus


class MemoryBooks:
    """Spending of runs; a write takes a millisecond, and the first writes may fail.

    Args:
        paid: What runs have paid, by run id.
        failures: How many writes fail.
    """

    def __init__(self, paid: dict[str, int] | None = None, failures: int = 0) -> None:
        self.paid = paid or {}
        self.held: dict[str, int] = {}
        self.is_shared = True  # tests change what is paid beside the accounts
        self.other_changes = 0
        self.failures = failures
        self.most = 0
        """The highest sum of spending and reservations so far."""

    def account(self, run_id: str = "run") -> Account:
        """Return the account of a run."""
        store: Any = self
        return Account(RunKey("local", run_id), store)

    async def read_spending(self, run: RunKey) -> SpendStatus:
        """Return the spending and reservations of a run."""
        return SpendStatus(self.paid.get(run.run_id, 0), sum(self.held.values()))

    async def reserve(
        self, run: RunKey, name: str, most: int, cap: int | None, lasts_s: float, *, key: str = ""
    ) -> SpendStatus:
        """Reserve an amount if it fits the cap."""
        await self._write()
        status = await self.read_spending(run)
        if cap is not None and status.spent + status.reserved + most > cap:
            return status
        self.held[name] = most
        self.most = max(self.most, status.spent + status.reserved + most)
        return SpendStatus(status.spent, status.reserved + most, fits=True)

    async def settle(self, run: RunKey, name: str, cost: int, *, key: str = "", lost_most: int = 0) -> SpendStatus:
        """Replace a reservation with the amount paid."""
        await self._write()
        if self.held.pop(name, None) is not None:
            self.paid[run.run_id] = self.paid.get(run.run_id, 0) + cost
        return await self.read_spending(run)

    async def _write(self) -> None:
        await asyncio.sleep(0.001)
        if self.failures:
            self.failures -= 1
            raise StorageError("the disk is full")
