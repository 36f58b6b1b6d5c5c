"""Batches of all replicas: any of them takes an order, one owns its batch by lease, the others poll for outcomes."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from assay.errors import StorageError
from assay.model.answers.agent_response import clean_text
from assay.process.failpoints import failpoint
from assay_judge.batches.dispatcher import MOST_CHARS, BatchDispatcher, Ordered
from assay_judge.batches.orders import OrderName
from assay_judge.batches.settlements import Settlement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.scope import Scope
    from assay_judge.batches.dispatcher import BatchRules, PaidOrder
    from assay_judge.batches.shared_store import SharedBatchStore
    from assay_judge.batches.store import Finished
    from assay_judge.calls.provider_registry import ProviderRegistry
    from assay_judge.clock import Clock
    from assay_judge.state.ledger import Ledger
    from assay_judge.verdicts.cache import VerdictCache
    from assay_judge.verdicts.outcome import Outcome
    from assay_judge.verdicts.prepared_grading import PreparedGrading

logger = logging.getLogger("assay_judge")

_SHORTEST_POLL_S = 0.1
_LONGEST_POLL_S = 0.5
_KEYS_PER_S = 5_000  # the more orders there are whose outcomes are awaited here, the longer the pause
_POLLS_OF_LEASE = 10
_BATCH_POLLS_OF_LEASE = 2
_RENEWALS = 4  # of one lease


def lease_s(rules: BatchRules) -> float:
    """Return how long a lease on a batch lasts: two pauses of a new batch's polls, at least ten of the database's."""
    return max(_POLLS_OF_LEASE * _poll_s(rules), _BATCH_POLLS_OF_LEASE * rules.poll_s)


def _poll_s(rules: BatchRules) -> float:
    """Return the pause between two polls of the database: half a second, or less where batches are polled sooner."""
    return max(_SHORTEST_POLL_S, min(_LONGEST_POLL_S, rules.poll_s))


class SharedBatchDispatcher(BatchDispatcher):
    """Dispatches orders in batches and delivers outcomes, together with the replicas on the same database.

    An order is in memory only while callers wait for it here.

    Args:
        store: Orders and batches of all replicas.
        registry: The provider clients.
        ledger: What runs have spent.
        cache: Stores valid verdicts.
        rules: How batches are made up.
        clock: The time.
        stopping: Set when the process stops; requests that wait are then answered "pending".
    """

    def __init__(
        self,
        store: SharedBatchStore,
        registry: ProviderRegistry,
        ledger: Ledger,
        cache: VerdictCache,
        *,
        rules: BatchRules,
        clock: Clock,
        stopping: asyncio.Event,
    ) -> None:
        super().__init__(store, registry, ledger, cache, rules=rules, clock=clock, stopping=stopping)
        self._shared = store
        self._order_count = 0
        self._renewed_at = 0.0

    async def start(self) -> None:
        """Poll the database from now on."""
        await super().start()
        await self._shared.prune()
        self._task(self._poll())

    async def aclose(self) -> None:
        """Stop work and release the leases of this replica."""
        await super().aclose()
        try:
            await self._shared.release()
        except StorageError as error:
            logger.warning("cannot release batch leases, they expire in %g s: %s", self._shared.lease_s, error)

    async def _joined(self, scope: Scope, key: str) -> Ordered | None:
        """Return the open order of a key, made by any replica."""
        ordered = self._find_open(scope, key)
        if ordered is None:
            found = await self._shared.find(scope, key)
            ordered = self._find_open(scope, key)  # another caller may have found it meanwhile
            if ordered is None and found is not None:
                ordered = Ordered("", found.run, None, _nothing, found.batch_id)
                self._open[OrderName(found.run.team, key)] = ordered
                ordered.is_kept.set()
        return ordered

    async def _awaited(self, ordered: Ordered, prepared: PreparedGrading, until: float) -> Outcome | None:
        ordered.callers += 1
        try:
            return await super()._awaited(ordered, prepared, until)
        finally:
            ordered.callers -= 1
            if not ordered.callers and ordered.is_kept.is_set():
                self._drop(OrderName(ordered.run.team, prepared.key), ordered)

    def _backlog(self) -> int:
        return self._order_count

    async def _accept(self, paid: PaidOrder, ordered: Ordered) -> None:
        """Store an order, or wait for the one that its key has already."""
        try:
            winner = await self._shared.add(paid.order, self._clock.now())
        except BaseException:
            await self._refuse(paid, ordered, "the database cannot be written")
            raise
        failpoint("judge.order_after_commit")
        ordered.run = winner or ordered.run
        ordered.is_kept.set()
        if winner is None and paid.order.reservation:
            ordered.close()
        else:  # another order has it, or no run pays and no account in the database has it
            await self._settlements.write([paid.unused()])

    def _collect(self, client_key: str, chars: int, count: int = 1) -> None:
        """Do nothing: the first replica that polls forms a batch of due orders."""

    def _release(self, paid: PaidOrder) -> Settlement:
        """Return the settlement of an order whose write has failed, unless it is stored all the same."""
        if not paid.order.reservation:  # no run pays, no account in the database has it
            return paid.unused()
        return Settlement(paid.order.run, partial(self._shared.withdraw, paid.order), paid.close)

    async def _settled(self, finished: Sequence[Finished], reordered: Sequence[PaidOrder | None]) -> None:
        """Deliver outcomes to callers that wait here; their cost is settled."""
        unpaid: list[Settlement] = []
        for one, again in zip(finished, reordered, strict=True):
            if again is not None and again.order.reservation:
                again.close()
            elif again is not None:  # as of an order that is accepted: no run pays
                unpaid.append(again.unused())
            ordered = self._open.get(one.order.name)
            if ordered is not None and one.again is not None:
                ordered.batch_id = ""
            elif ordered is not None and not ordered.done.done():
                ordered.done.set_result(one.outcome)
                self._drop(one.order.name, ordered)
        await self._settlements.write(unpaid)

    async def _poll(self) -> None:
        while True:
            try:
                await self._renew_leases()
                if not self._stopping.is_set():
                    await self._acquire_work()
                await self._poll_outcomes()
            except StorageError as error:
                logger.warning("cannot poll batches, retrying: %s", error)
            await asyncio.sleep(max(_poll_s(self._rules), len(self._open) / _KEYS_PER_S))

    async def _renew_leases(self) -> None:
        """Renew the leases of this replica's batches; drop those that another replica has acquired."""
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at < self._shared.lease_s / _RENEWALS:
            return
        owned = {batch_id: lifecycle.record for batch_id, lifecycle in self._lifecycles.items()}
        for batch_id in owned.keys() - await self._shared.renew_all(list(owned.values())):
            self._lifecycles.pop(batch_id, None)  # it ends at its next write
        self._renewed_at = now

    async def _acquire_work(self) -> None:
        """Acquire orphaned batches, and make batches of the orders that are due."""
        rules = self._rules
        backlog = await self._shared.backlog(wait_s=rules.wait_s, most=rules.requests, most_chars=MOST_CHARS)
        self._order_count = backlog.orders
        if backlog.has_expired:
            for record in await self._shared.acquire(list(self._lifecycles)):
                logger.info("acquired orphaned batch batch=%s epoch=%d", record.batch_id, record.epoch)
                self._start_lifecycle(record, is_new=False)
        for client_key in backlog.client_keys:
            await self._form(client_key)

    async def _poll_outcomes(self) -> None:
        """Read the outcomes of orders in other replicas' batches, for callers that wait here."""
        waiting = {
            name: ordered
            for name, ordered in self._open.items()
            if ordered.is_kept.is_set() and ordered.batch_id not in self._lifecycles
        }
        if not waiting:
            return
        for name, found in (await self._shared.progress(list(waiting))).items():
            ordered = waiting[name]
            own = next((one for one in found if one.run.run_id == clean_text(ordered.run.run_id)), None)
            if own is not None and not own.outcome:
                ordered.batch_id = own.batch_id
            elif not ordered.done.done():
                ordered.done.set_result("" if own is None else own.outcome)
                self._drop(name, ordered)


def _nothing() -> None:
    """Close no account: none was opened."""
