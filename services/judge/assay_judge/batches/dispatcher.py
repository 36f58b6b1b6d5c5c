"""Verdicts through the providers' batch APIs, at half the price and within hours instead of seconds.

An order and its reservation are durable before the caller is answered "pending". Orders of one judge are collected for
a while; their batch is durable before it is submitted. Its lifecycle runs, across restarts, until each order has an
outcome. An outcome is stored for the row that ordered it. Requests without a result are ordered again, at most
MOST_ORDERS times in all.

Any process on the database accepts an order. One process owns the batch by lease; the others poll for the outcome. An
order is in memory only while callers wait for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import AssayError, OverloadedError, StorageError
from assay.model.answers.agent_response import clean_text
from assay.model.scope import Scope
from assay.process.failpoints import failpoint
from assay_judge.batches.lifecycle import BatchLifecycle
from assay_judge.batches.orders import Order, OrderName, new_id, outcome_from_text, outcome_text
from assay_judge.batches.settlements import Settlement, Settlements, run_to_end
from assay_judge.batches.store import Finished
from assay_judge.calls.provider_client import BudgetHandle, CallFailedError, too_little_left
from assay_judge.state.accounts import SpendCapReachedError
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.replies import failed_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from assay_judge.batches.results import Step
    from assay_judge.batches.store import BatchRecord, BatchStore
    from assay_judge.calls.provider_client import ProviderClient
    from assay_judge.calls.provider_registry import ProviderRegistry
    from assay_judge.clock import Clock
    from assay_judge.model import Prompt, RunKey
    from assay_judge.providers.verdict_request import JudgeParameters
    from assay_judge.state.accounts import Reservation
    from assay_judge.state.ledger import Ledger
    from assay_judge.verdicts.cache import VerdictCache
    from assay_judge.verdicts.prepared_grading import PreparedGrading

T = TypeVar("T")
logger = logging.getLogger("assay_judge")

MOST_CHARS = 32_000_000
"""Most characters of one batch; providers accept 200 MB and more."""

_MOST_ORDERS = 200_000
_USUAL_LEAST_RETRY_S = 1.0
_LASTS_S = 3 * 24 * 3600.0  # longer than any batch takes
_SHORTEST_POLL_S = 0.1
_LONGEST_POLL_S = 0.5
_KEYS_PER_S = 5_000  # the pause grows with the number of orders that callers of this process wait for
_POLLS_OF_LEASE = 10
_BATCH_POLLS_OF_LEASE = 2
_RENEWALS = 4  # per lease


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How batches are formed.

    Args:
        wait_s: How long orders are collected, in seconds.
        requests: Most requests of one batch.
        poll_s: Pause before the first poll of a batch, in seconds.
    """

    wait_s: float = 10.0
    requests: int = 10_000
    poll_s: float = 30.0

    @property
    def database_poll_s(self) -> float:
        """The pause between two polls of the database: half a second, or less if batches are polled sooner."""
        return max(_SHORTEST_POLL_S, min(_LONGEST_POLL_S, self.poll_s))

    @property
    def lease_s(self) -> float:
        """How long a lease on a batch lasts: two polls of a new batch, but at least ten of the database."""
        return max(_POLLS_OF_LEASE * self.database_poll_s, _BATCH_POLLS_OF_LEASE * self.poll_s)


@dataclass(slots=True, eq=False)
class Ordered:
    """An order that callers wait for, and its outcome as text once it is done.

    Args:
        run: The run that ordered it.
        batch_id: Its batch; empty until it is in one.
        callers: Number of callers that wait for it.
        is_kept: Set once the order is stored.
        done: The outcome; empty if another process has delivered it already.
    """

    run: RunKey
    batch_id: str = ""
    callers: int = 0
    is_kept: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(frozen=True, slots=True)
class PaidOrder:
    """An order that is not stored yet, the money reserved for it, and the function that closes its account."""

    order: Order
    reservation: Reservation
    close: Callable[[], None]

    def unused(self) -> Settlement:
        """Return the settlement that returns the money."""
        return Settlement(self.order.run, partial(self.reservation.settle, 0), self.close)


class _Ordering:
    """An order that is not stored yet: it waits for room under its limit, or is being written."""

    def __init__(self, limit: int | None) -> None:
        self.work: asyncio.Task[Ordered]
        self.waits_for_money = asyncio.Event()
        self.limit = limit
        self.is_paid = False


class BatchDispatcher:
    """Dispatches orders in batches and delivers their outcomes; `start` it, `aclose` it.

    Args:
        store: Where orders and batches are stored.
        registry: The provider clients.
        ledger: The accounts of the runs.
        cache: Stores valid verdicts.
        rules: How batches are formed.
        clock: The clock.
        stopping: Set when the process stops; waiting requests are then answered "pending".
    """

    def __init__(
        self,
        store: BatchStore,
        registry: ProviderRegistry,
        ledger: Ledger,
        cache: VerdictCache,
        *,
        rules: BatchRules,
        clock: Clock,
        stopping: asyncio.Event,
    ) -> None:
        self._store = store
        self._registry = registry
        self._ledger = ledger
        self._cache = cache
        self._rules = rules
        # Polling faster than batches are polled gains nothing.
        self._least_retry_s = min(_USUAL_LEAST_RETRY_S, rules.poll_s)
        self._clock = clock
        self._stopping = stopping
        self._settlements = Settlements(clock, rules.poll_s)
        self._stopped: asyncio.Task[Any] | None = None
        self._ordering: dict[tuple[Scope, str, str, int | None], _Ordering] = {}
        self._open: dict[OrderName, Ordered] = {}
        self._lifecycles: dict[str, BatchLifecycle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._has_work = asyncio.Event()
        self._order_count = 0
        self._renewed_at = 0.0

    async def start(self) -> None:
        """Start polling the database, also for the orders and batches of earlier processes."""
        self._stopped = self._task(self._stopping.wait())
        self._task(self._settlements.run())
        await self._store.prune()
        self._task(self._poll())

    async def aclose(self) -> None:
        """Stop work, write the settlements that failed, and release the leases of this process."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # After the tasks, which may have left settlements behind.
        await self._settlements.retry()
        try:
            # Last: once its lease is released, another process writes for the batch.
            await self._store.release()
        except StorageError as error:
            logger.warning("cannot release batch leases, they expire in %g s: %s", self._rules.lease_s, error)

    def forget(self, scope: Scope) -> None:
        """Drop the open orders of a deleted team and answer the requests that wait for them."""
        for name in [name for name in self._open if name.team == scope.team]:
            ordered = self._open.pop(name)
            if not ordered.done.done():
                ordered.done.set_result("")
        self._settlements.forget(scope)

    def _find_open(self, scope: Scope, key: str) -> Ordered | None:
        return self._open.get(OrderName(scope.team, key))

    async def find_outcome(self, prepared: PreparedGrading, *, on_join: Callable[[], None]) -> Outcome | None:
        """Return the outcome of an open order, or else this run's stored outcome; None if there is neither.

        Args:
            prepared: The request.
            on_join: Called before the request waits for an open order.
        """
        grading = prepared.grading
        ordered = await self._joined(grading.scope, prepared.key)
        if ordered is not None:
            on_join()
            return await self._awaited(ordered, prepared, _until(prepared))
        return await self._store.fetch(grading.scope, prepared.key, grading.run_id, grading.rubric, grading.asker)

    async def order_verdict(self, client: ProviderClient, prepared: PreparedGrading) -> Outcome:
        """Return the outcome of a request's order, which is placed unless one is open.

        Raises:
            OverloadedError: Too many orders are open.
            StorageError: The order cannot be stored.
        """
        until = _until(prepared)
        ordered = self._find_open(prepared.grading.scope, prepared.key)
        if ordered is None:
            ordering = self._ordering_of(client, prepared)
            await _first_of(ordering.work, ordering.waits_for_money)
            await self._wait(ordering.work, until)
            if not ordering.work.done() or ordering.work.cancelled():
                return self._pending("the run's spend cap has no room until other requests settle")
            try:
                ordered = ordering.work.result()
            except CallFailedError as failure:
                return failed_outcome(failure)
        return await self._awaited(ordered, prepared, until) or await self._cached(prepared)

    async def _cached(self, prepared: PreparedGrading) -> Outcome:
        """Return the cached verdict of an outcome that another request received, or else "pending"."""
        cached = await self._cache.find(prepared.grading.scope, prepared.key, prepared.grading.rubric)
        if cached is None:
            return self._pending("another request received the outcome", self._least_retry_s)
        return dataclasses.replace(cached, cached=True)

    async def _joined(self, scope: Scope, key: str) -> Ordered | None:
        """Return the open order of a key, from any process."""
        ordered = self._find_open(scope, key)
        if ordered is None:
            progress = await self._store.find(scope, key)
            ordered = self._find_open(scope, key)  # another caller may have added it during the query
            if ordered is None and progress is not None:
                ordered = self._open[OrderName(scope.team, key)] = Ordered(progress.run, progress.batch_id)
                ordered.is_kept.set()
        return ordered

    async def _awaited(self, ordered: Ordered, prepared: PreparedGrading, until: float) -> Outcome | None:
        ordered.callers += 1
        try:
            await _first_of(ordered.done, ordered.is_kept)
            await self._wait(ordered.done, until)
            return await self._handed_out(ordered, prepared) if ordered.done.done() else self._not_yet(ordered)
        finally:
            ordered.callers -= 1
            if not ordered.callers and ordered.is_kept.is_set():
                self._drop(OrderName(ordered.run.team, prepared.key), ordered)

    async def _wait(self, what: asyncio.Future[Any], until: float) -> None:
        """Wait for a future until a time of the event loop, or until the process stops."""
        assert self._stopped is not None
        timeout = None if math.isinf(until) else max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait([what, self._stopped], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def _ordering_of(self, client: ProviderClient, prepared: PreparedGrading) -> _Ordering:
        """Return the task that places an order; a caller that disconnects does not cancel it."""
        grading = prepared.grading
        # The limit is part of the name: another run's cap must not decide about this run's order.
        name = (grading.scope, prepared.key, grading.run_id, grading.cap)
        ordering = self._ordering.get(name)
        if ordering is not None and not ordering.is_paid and _is_lower(ordering.limit, grading.limit):
            ordering.work.cancel()  # the run's allowance has grown: the order no longer waits under the old one
            ordering = None
        if ordering is None:
            if self._order_count + len(self._ordering) >= _MOST_ORDERS:
                raise OverloadedError(f"{_MOST_ORDERS} verdicts wait for batches; retry later.", reason="QUEUE_FULL")
            ordering = self._ordering[name] = _Ordering(grading.limit)
            ordering.work = self._task(self._order(client, prepared, ordering))
            ordering.work.add_done_callback(lambda _, ordering=ordering: self._forget_ordering(name, ordering))  # type: ignore[misc]
        return ordering

    def _forget_ordering(self, name: tuple[Scope, str, str, int | None], ordering: _Ordering) -> None:
        if self._ordering.get(name) is ordering:
            del self._ordering[name]

    async def _order(self, client: ProviderClient, prepared: PreparedGrading, ordering: _Ordering) -> Ordered:
        grading = prepared.grading
        price = client.prices.find(grading.judge)
        client.check_price(grading.cap, price)
        prompt = await prepared.prompt()
        sent = client.learned.apply(prepared.parameters)
        most = price.most_nano(prompt, sent.max_tokens, batched=True) if price else 0
        account, close = await self._ledger.open(grading.scope, grading.run_id)
        try:
            reservation = await account.reserve(most, grading.limit, lasts_s=_LASTS_S, waits=ordering.waits_for_money)
        except SpendCapReachedError:
            close()
            budget = BudgetHandle(account, grading.cap, grading.allowance)
            raise too_little_left(most, budget) from None
        except BaseException:
            close()
            raise
        # From here on a larger allowance no longer cancels the order: its money is reserved.
        ordering.is_paid = True
        order = _order_of(prepared, account.run, prompt, sent, most, reservation.name)
        return await run_to_end(self._place(PaidOrder(order, reservation, close), grading.scope))

    async def _place(self, paid: PaidOrder, scope: Scope) -> Ordered:
        """Return an order once it is stored, or the order that its key has already."""
        order = paid.order
        # Searched again: another row may have placed this order while this one waited for money.
        other = self._find_open(scope, order.key)
        if other is not None:
            await self._settlements.write([paid.unused()])
            return other
        # Open before it is stored, so that an identical request joins it and places no order of its own.
        ordered = self._open[order.name] = Ordered(order.run)
        await self._accept(paid, ordered)
        return ordered

    async def _accept(self, paid: PaidOrder, ordered: Ordered) -> None:
        """Store an order, or wait for the order that its key has already."""
        try:
            winner = await self._store.add(paid.order)
        except BaseException:
            await self._refuse(paid, ordered)
            raise
        finally:
            self._has_work.set()
        failpoint("judge.order_after_commit")
        ordered.run = winner or ordered.run
        ordered.is_kept.set()
        if winner is None:
            paid.close()
        else:
            await self._settlements.write([paid.unused()])

    async def _refuse(self, paid: PaidOrder, ordered: Ordered) -> None:
        """Answer the callers of an order that cannot be stored, then release its reservation."""
        if self._drop(paid.order.name, ordered):  # else the callers have an answer, or the team was deleted
            message = "the judge's state cannot be written"
            failed = Outcome(Status.UNAVAILABLE, reason="batch_failed", message=message)
            ordered.done.set_result(outcome_text(failed, paid.order.round))
        await self._settlements.write([self._release(paid)])

    def _drop(self, name: OrderName, ordered: Ordered) -> bool:
        """Remove an open order; return whether it was open."""
        is_open = self._open.get(name) is ordered
        if is_open:
            del self._open[name]
        return is_open

    async def _poll(self) -> None:
        while True:
            # Cleared before the database is read, so that an order placed meanwhile is not missed.
            self._has_work.clear()
            try:
                await self._renew_leases()
                if not self._stopping.is_set():
                    await self._acquire_work()
                await self._poll_outcomes()
                if not (self._store.is_shared or self._order_count or self._open or self._lifecycles):
                    await self._has_work.wait()  # no other process adds orders
            except StorageError as error:
                logger.warning("cannot poll batches, retrying: %s", error)
            await asyncio.sleep(max(self._rules.database_poll_s, len(self._open) / _KEYS_PER_S))

    async def _renew_leases(self) -> None:
        """Renew the leases of this process's batches; drop batches that another process has acquired."""
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at < self._rules.lease_s / _RENEWALS:
            return
        owned = {batch_id: lifecycle.record for batch_id, lifecycle in self._lifecycles.items()}
        for batch_id in owned.keys() - await self._store.renew_all(list(owned.values())):
            self._lifecycles.pop(batch_id, None)  # the lifecycle ends at its next write
        self._renewed_at = now

    async def _acquire_work(self) -> None:
        """Acquire orphaned batches, and form batches from the orders that are due."""
        rules = self._rules
        backlog = await self._store.backlog(wait_s=rules.wait_s, most=rules.requests, most_chars=MOST_CHARS)
        self._order_count = backlog.orders
        if backlog.has_expired:
            for record in await self._store.acquire(list(self._lifecycles)):
                logger.info("acquired orphaned batch batch=%s epoch=%d", record.batch_id, record.epoch)
                self._start_lifecycle(record, is_new=False)
        for client_key in backlog.client_keys:
            await self._form(client_key)

    async def _form(self, client_key: str) -> None:
        """Form one batch from the waiting orders, and start its lifecycle."""
        formed = await self._store.form(new_id(), client_key, most=self._rules.requests, most_chars=MOST_CHARS)
        if formed is not None:
            self._start_lifecycle(formed, is_new=True)

    async def _poll_outcomes(self) -> None:
        """Read outcomes from other processes' batches for the callers of this process."""
        waiting = {
            name: ordered
            for name, ordered in self._open.items()
            if ordered.is_kept.is_set() and ordered.batch_id not in self._lifecycles
        }
        if not waiting:
            return
        for name, orders in (await self._store.progress(list(waiting))).items():
            ordered = waiting[name]
            own = next((order for order in orders if order.run.run_id == clean_text(ordered.run.run_id)), None)
            if own is not None and not own.outcome:
                ordered.batch_id = own.batch_id
            elif not ordered.done.done():
                ordered.done.set_result("" if own is None else own.outcome)
                self._drop(name, ordered)

    def _start_lifecycle(self, record: BatchRecord, *, is_new: bool) -> None:
        lifecycle = self._lifecycles[record.batch_id] = BatchLifecycle(
            record,
            self._store,
            self._registry,
            self._settle,
            clock=self._clock,
            poll_s=self._rules.poll_s,
            is_new=is_new,
        )

        def forget(_: asyncio.Task[None]) -> None:
            if self._lifecycles.get(record.batch_id) is lifecycle:
                del self._lifecycles[record.batch_id]

        self._task(lifecycle.run()).add_done_callback(forget)

    async def _settle(self, record: BatchRecord, steps: Sequence[tuple[Order, Step]]) -> None:
        """Store outcomes with their cost and deliver them to waiting callers; a cancellation waits for that."""
        await run_to_end(self._finish(record, steps))

    async def _finish(self, record: BatchRecord, steps: Sequence[tuple[Order, Step]]) -> None:
        # First: a process that has lost the batch must reserve no money for its next turns.
        await self._store.renew(record)
        reordered: list[PaidOrder | None] = []
        finished: list[Finished] = []
        try:
            for order, step in steps:
                again = None if step.again is None else await self._afford(step.again)
                reordered.append(again)
                outcome = dataclasses.replace(step.outcome, message=self._registry.redact(step.outcome.message))
                if again is None:
                    # Cached before the outcome is stored: after a crash in between, the batch is read again and nothing
                    # is lost.
                    await self._cache.keep(order.run.team, order.key, order.rubric, order.judge, outcome)
                text = outcome_text(outcome, order.round)
                finished.append(Finished(order, text, step.cost, None if again is None else again.order))
            failpoint("judge.batch_before_settle")
            await self._store.finish(record, finished)
        except BaseException:
            await self._settlements.write([self._release(again) for again in reordered if again is not None])
            raise
        for paid in reordered:
            if paid is not None:
                paid.close()
        self._deliver(finished)

    def _release(self, paid: PaidOrder) -> Settlement:
        """Return the settlement of an order whose write failed; it changes nothing if the order was stored."""
        return Settlement(paid.order.run, partial(self._store.withdraw, paid.order), paid.close)

    def _deliver(self, finished: Sequence[Finished]) -> None:
        """Deliver stored outcomes to the callers of this process."""
        for result in finished:
            ordered = self._open.get(result.order.name)
            if ordered is not None and result.again is not None:
                ordered.batch_id = ""
            elif ordered is not None and not ordered.done.done():
                ordered.done.set_result(result.outcome)
                self._drop(result.order.name, ordered)

    async def _afford(self, again: Order) -> PaidOrder | None:
        """Reserve money for another turn, unless that would have to wait for other verdicts."""
        client = await self._registry.client(again.judge)
        price = client.prices.find(again.judge)
        most = price.most_nano(again.prompt, again.sent.max_tokens, batched=True) if price else 0
        account, close = await self._ledger.open(Scope(again.run.team), again.run.run_id)
        try:
            reservation = await account.reserve_now(most, again.cap, lasts_s=_LASTS_S)
        except BaseException:
            close()
            raise
        if reservation is None:
            close()
            return None
        order = dataclasses.replace(again, reserved=most, reservation=reservation.name)
        return PaidOrder(order, reservation, close)

    async def _handed_out(self, ordered: Ordered, prepared: PreparedGrading) -> Outcome | None:
        """Return an outcome: with usage for the first row of its run, without usage for all other rows."""
        grading = prepared.grading
        text = ordered.done.result()
        outcome = outcome_from_text(text, grading.rubric) if text else None
        if grading.run_id == ordered.run.run_id:
            try:
                fetched = await self._store.fetch(
                    grading.scope, prepared.key, grading.run_id, grading.rubric, grading.asker
                )
            except StorageError as error:
                logger.warning(
                    "cannot mark an outcome as delivered: key=%s run=%s: %s", prepared.key, ordered.run.run_id, error
                )
                return outcome
            if fetched is not None:
                return fetched
        return None if outcome is None else outcome.as_found()

    def _not_yet(self, ordered: Ordered) -> Outcome:
        lifecycle = self._lifecycles.get(ordered.batch_id)
        if lifecycle is None:
            return self._pending("the request waits for a batch")
        record, wait_s = lifecycle.record, lifecycle.next_poll_at - self._clock.now()
        name = record.provider_id or "being submitted"
        return self._pending(f"the batch {name} has {lifecycle.done_count} of {record.requests} requests done", wait_s)

    def _pending(self, message: str, wait_s: float = 0.0) -> Outcome:
        wait_s = max(self._least_retry_s, wait_s or self._rules.wait_s + self._rules.poll_s)
        message = f"pending: {message}; retry in {wait_s:.0f} s"
        return Outcome(Status.UNAVAILABLE, reason="batch_pending", message=message, retry_after_s=wait_s)

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        defect = None if task.cancelled() else task.exception()
        if defect is not None and not isinstance(defect, AssayError | CallFailedError):  # callers receive those
            logger.error("batch task failed, its batch waits for a restart of the judge", exc_info=defect)


async def _first_of(work: asyncio.Future[Any], event: asyncio.Event) -> None:
    """Wait until the work is done or the event is set, without a timeout."""
    happened = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([work, happened], return_when=asyncio.FIRST_COMPLETED)
    finally:
        happened.cancel()


def _order_of(
    prepared: PreparedGrading, run: RunKey, prompt: Prompt, sent: JudgeParameters, reserved: int, reservation: str
) -> Order:
    grading = prepared.grading
    return Order(
        new_id(),
        prepared.key,
        run,
        grading.limit,
        reserved,
        grading.judge,
        grading.rubric,
        grading.material,
        prompt,
        sent,
        round=grading.asker.round,
        reservation=reservation,
    )


def _is_lower(limit: int | None, other: int | None) -> bool:
    """Return whether a limit is lower than another; None means no limit."""
    return limit is not None and (other is None or limit < other)


def _until(prepared: PreparedGrading) -> float:
    return asyncio.get_running_loop().time() + prepared.grading.timeout_s
