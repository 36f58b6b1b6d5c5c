"""What a run may spend on judging: set aside before a call, settled after it, never more than the cap.

Amounts are whole billionths of a dollar. Reserving and settling happen in the event loop's thread between two awaits,
so that no two calls can both take the last of the money. What is set aside is on disk before the call is made: a
process that dies between call and settlement has spent it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from assay_judge.model import RunKey
from assay_judge.state.account import Account
from assay_judge.state.lost_calls import LostCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.model.scope import Scope
    from assay_judge.state.account import SpendJournal
    from assay_judge.state.shared.store import SharedStore

_ACCOUNTS = 10_000


class Ledger:
    """The accounts of all runs; unused ones are evicted, and read again from the journal.

    Args:
        journal: Where spending is kept.
        accounts: Most accounts in memory, besides those in use.
        shared: Where it is kept for all replicas instead; None where there is only this process.
    """

    def __init__(self, journal: SpendJournal, accounts: int = _ACCOUNTS, *, shared: SharedStore | None = None) -> None:
        self.journal = journal
        self._shared = shared
        self._most = accounts
        self._accounts: OrderedDict[RunKey, Account] = OrderedDict()
        self._loading = asyncio.Lock()

    async def open(self, scope: Scope, run_id: str) -> tuple[Account, Callable[[], None]]:
        """Return the account of a run that a caller names, and what is to be called when the request is over.

        A second call of that changes nothing: the end of a request and the deletion of its team may coincide.

        Raises:
            StorageError: The journal cannot be read.
        """
        account = self._loaded(scope, run_id)
        if account is None:
            async with self._loading:
                account = self._loaded(scope, run_id)
                if account is None:
                    account = await self._load(scope, run_id)
                    self._accounts[account.run] = account
        self._accounts.move_to_end(account.run)
        account.users += 1
        is_open = True

        def close() -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                account.users -= 1
                self._forget()

        return account, close

    def forget(self, scope: Scope) -> None:
        """Forget the accounts of a scope's team that no request uses: what is kept of them was deleted."""
        for run in [run for run, account in self._accounts.items() if run.team == scope.team and not account.users]:
            del self._accounts[run]

    def _loaded(self, scope: Scope, run_id: str) -> Account | None:
        return self._accounts.get(RunKey(scope.team, run_id))

    async def _load(self, scope: Scope, run_id: str) -> Account:
        run = RunKey(scope.team, run_id)
        if not run_id:
            return Account(run)
        if self._shared is None:
            lost = LostCalls.read(await self.journal.lost_calls(run))
            return Account(run, await self.journal.spending(run), lost=lost)
        from assay_judge.state.shared.accounts import SharedAccount  # imported here: it needs SQLAlchemy

        account = SharedAccount(run, self._shared)
        await account.refresh()
        return account

    def _forget(self) -> None:
        surplus = len(self._accounts) - self._most
        for run in [run for run, account in self._accounts.items() if not account.users][: max(0, surplus)]:
            del self._accounts[run]
