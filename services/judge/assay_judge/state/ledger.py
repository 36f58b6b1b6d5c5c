"""The accounts of all runs.

The maximum cost of a call is stored before the call. If the process dies before the settlement, that amount counts as
spent.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from assay_judge.model import RunKey
from assay_judge.state.accounts import Account

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.model.scope import Scope
    from assay_judge.state.store import JudgeStore

_ACCOUNTS = 10_000


class Ledger:
    """The accounts of all runs; unused accounts are evicted, and read from the database when they are needed again.

    Args:
        store: The judge's database.
        accounts: Most unused accounts in memory.
    """

    def __init__(self, store: JudgeStore, accounts: int = _ACCOUNTS) -> None:
        self._store = store
        self._most = accounts
        self._accounts: OrderedDict[RunKey, Account] = OrderedDict()
        self._loading = asyncio.Lock()

    async def open(self, scope: Scope, run_id: str) -> tuple[Account, Callable[[], None]]:
        """Return the account of a run, and a function that closes it at the end of the request.

        The function may be called twice: the end of a request and the deletion of its team may coincide.

        Raises:
            StorageError: The database cannot be read.
        """
        run = RunKey(scope.team, run_id)
        account = self._accounts.get(run)
        if account is None:
            # Two objects for one run would each count only their own calls.
            async with self._loading:
                account = self._accounts.get(run)
                if account is None:
                    account = Account(run, self._store)
                    await account.refresh()
                    self._accounts[run] = account
        self._accounts.move_to_end(run)
        account.users += 1
        is_open = True

        def close() -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                account.users -= 1
                self._evict()

        return account, close

    def forget(self, scope: Scope) -> None:
        """Drop the unused accounts of a deleted team."""
        for run in [run for run, account in self._accounts.items() if run.team == scope.team and not account.users]:
            del self._accounts[run]

    def _evict(self) -> None:
        surplus = len(self._accounts) - self._most
        for run in [run for run, account in self._accounts.items() if not account.users][: max(0, surplus)]:
            del self._accounts[run]
