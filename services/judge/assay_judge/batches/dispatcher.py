"""Verdicts through the batch APIs of providers: half the price, and hours instead of seconds.

An order and its reservation are durable before the caller is answered "pending". Orders of one judge are collected for
a while; their batch is durable before it is submitted. Its lifecycle runs until each order has an outcome, across
restarts. An outcome is stored for the row that ordered it. Requests without a result are reordered, up to MOST_ORDERS
times in all.
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
from assay.model.scope import Scope
from assay.process.failpoints import failpoint
from assay_judge.batches.lifecycle import BatchLifecycle
from assay_judge.batches.orders import Order, OrderName, new_id, outcome_from_text, outcome_text
from assay_judge.batches.settlements import Settlement, Settlements, run_to_end
from assay_judge.batches.store import Finished
from assay_judge.calls.provider_client import BudgetHandle, CallFailedError, too_little_left
from assay_judge.state.account import SpendCapReachedError
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.replies import failed_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from assay_judge.batches.results import Step
    from assay_judge.batches.store import BatchRecord, OrderStore
    from assay_judge.calls.provider_client import ProviderClient
    from assay_judge.calls.provider_registry import ProviderRegistry
    from assay_judge.clock import Clock
    from assay_judge.model import Prompt, RunKey
    from assay_judge.providers.verdict_request import JudgeParameters
    from assay_judge.state.account import Reservable
    from assay_judge.state.ledger import Ledger
    from assay_judge.verdicts.cache import VerdictCache
    from assay_judge.verdicts.prepared_grading import PreparedGrading

T = TypeVar("T")
logger = logging.getLogger("assay_judge")

MOST_CHARS = 32_000_000
"""Most characters of one batch; providers take 200 MB and more."""

_MOST_ORDERS = 200_000
_USUAL_LEAST_RETRY_S = 1.0
_LASTS_S = 3 * 24 * 3600.0  # longer than any batch takes


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How batches are made up.

    Args:
        wait_s: How long orders are collected.
        requests: Most requests of one batch.
        poll_s: Pause before the first poll of a batch, in seconds.
    """

    wait_s: float = 10.0
    requests: int = 10_000
    poll_s: float = 30.0


@dataclass(slots=True, eq=False)
class Ordered:
    """An order without an outcome, whether it is stored, and, when it is done, its outcome as text.

    The text is empty where another replica has handed the outcome out already.
    """

    item_id: str
    run: RunKey
    reservation: Reservable | None
    close: Callable[[], None]
    batch_id: str = ""
    callers: int = 0
    is_kept: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(frozen=True, slots=True)
class PaidOrder:
    """An order that is not stored yet, the money that is set aside for it, and what closes its account."""

    order: Order
    reservation: Reservable
    close: Callable[[], None]

    def unused(self) -> Settlement:
        """Return the settlement that returns the money."""
        return Settlement(self.order.run, partial(self.reservation.settle, 0), self.close)


class _Ordering:
    """The making of an order: waiting until its limit has room for it, or on its way to the disk."""

    def __init__(self, limit: int | None) -> None:
        self.work: asyncio.Task[Ordered]
        self.waits_for_money = asyncio.Event()
        self.limit = limit
        self.is_paid = False


@dataclass(slots=True)
class _Collecting:
    """What waits for the next batch of one judge."""

    count: int = 0
    chars: int = 0
    is_full: asyncio.Event = field(default_factory=asyncio.Event)


class BatchDispatcher:
    """Dispatches orders in batches and delivers their outcomes; `start` it, `aclose` it.

    Args:
        store: Where orders and batches are kept.
        registry: The provider clients.
        ledger: What runs have spent.
        cache: Stores valid verdicts.
        rules: How batches are made up.
        clock: The time.
        stopping: Set when the process stops; requests that wait are then answered "pending".
    """

    def __init__(
        self,
        store: OrderStore,
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
        self._least_retry_s = min(
            _USUAL_LEAST_RETRY_S, rules.poll_s
        )  # to ask sooner than batches are polled is in vain
        self._clock = clock
        self._stopping = stopping
        self._settlements = Settlements(clock, rules.poll_s)
        self._stopped: asyncio.Task[Any] | None = None
        self._ordering: dict[tuple[Scope, str, str, int | None], _Ordering] = {}
        self._open: dict[OrderName, Ordered] = {}
        self._collecting: dict[str, _Collecting] = {}
        self._lifecycles: dict[str, BatchLifecycle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Resume what an earlier process left: orders, batches and reservations."""
        self._stopped = self._task(self._stopping.wait())
        self._task(self._settlements.run())
        for order in await self._store.open_orders():
            account, close = await self._ledger.open(Scope(order.team), order.run_id)
            reservation = account.adopt(order.reserved, self._ledger.journal, order.reservation)
            ordered = Ordered(order.item_id, account.run, reservation, close, order.batch_id)
            self._open[OrderName(order.team, order.key)] = ordered
            ordered.is_kept.set()
            if not order.batch_id:
                self._collect(order.client_key, order.size)
        for record in await self._store.batches():
            self._start_lifecycle(record, is_new=False)

    async def aclose(self) -> None:
        """Leave everything as it is on disk, but for settlements that could not be written before."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._settlements.retry()

    def forget(self, scope: Scope) -> None:
        """Forget the open orders of a scope's team, which was deleted; requests that wait for them are answered."""
        for name in [name for name in self._open if name.team == scope.team]:
            ordered = self._open.pop(name)
            if not ordered.done.done():
                ordered.done.set_result("")
            ordered.close()
        self._settlements.forget(scope)

    def is_ordered(self, scope: Scope, key: str) -> bool:
        """Return whether a verdict is ordered and pending."""
        return self._find_open(scope, key) is not None

    def _find_open(self, scope: Scope, key: str) -> Ordered | None:
        return self._open.get(OrderName(scope.team, key))

    async def find_outcome(self, prepared: PreparedGrading) -> Outcome | None:
        """Return the outcome of an open order, or the stored one of this run; None where there is neither."""
        grading = prepared.grading
        ordered = await self._joined(grading.scope, prepared.key)
        if ordered is not None:
            return await self._awaited(ordered, prepared, _until(prepared))
        return await self._store.fetch(grading.scope, prepared.key, grading.run_id, grading.rubric, grading.asker)

    async def order_verdict(self, client: ProviderClient, prepared: PreparedGrading) -> Outcome:
        """Return the outcome of an order, which is made unless one is open.

        Raises:
            OverloadedError: Too many orders are open.
            StorageError: It cannot be kept.
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
        """Return the cached verdict where another request received the outcome, else "pending"."""
        found = await self._cache.find(prepared.grading.scope, prepared.key, prepared.grading.rubric)
        if found is None:
            return self._pending("another request received the outcome", self._least_retry_s)
        return dataclasses.replace(found, cached=True)

    async def _joined(self, scope: Scope, key: str) -> Ordered | None:
        """Return the open order of a key."""
        return self._find_open(scope, key)

    async def _awaited(self, ordered: Ordered, prepared: PreparedGrading, until: float) -> Outcome | None:
        await _first_of(ordered.done, ordered.is_kept)
        await self._wait(ordered.done, until)
        return await self._handed_out(ordered, prepared) if ordered.done.done() else self._not_yet(ordered)

    async def _wait(self, what: asyncio.Future[Any], until: float) -> None:
        """Wait for something, until a time of the loop's, or until the process stops."""
        assert self._stopped is not None
        timeout = None if math.isinf(until) else max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait([what, self._stopped], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def _ordering_of(self, client: ProviderClient, prepared: PreparedGrading) -> _Ordering:
        """Return the task that makes an order; a caller that disconnects does not cancel it."""
        grading = prepared.grading
        # Another run's cap must not decide about this one's order.
        name = (grading.scope, prepared.key, grading.run_id, grading.cap)
        ordering = self._ordering.get(name)
        if ordering is not None and not ordering.is_paid and _is_lower(ordering.limit, grading.limit):
            ordering.work.cancel()  # the run's allowance has grown: it need not wait under the one of before
            ordering = None
        if ordering is None:
            if self._backlog() + len(self._ordering) >= _MOST_ORDERS:
                raise OverloadedError(f"{_MOST_ORDERS} verdicts wait for batches; retry later.", reason="QUEUE_FULL")
            ordering = self._ordering[name] = _Ordering(grading.limit)
            ordering.work = self._task(self._order(client, prepared, ordering))
            ordering.work.add_done_callback(lambda _, made=ordering: self._made(name, made))  # type: ignore[misc]
        return ordering

    def _made(self, name: tuple[Scope, str, str, int | None], ordering: _Ordering) -> None:
        if self._ordering.get(name) is ordering:
            del self._ordering[name]

    def _backlog(self) -> int:
        """Return how many orders have no outcome."""
        return len(self._open)

    async def _order(self, client: ProviderClient, prepared: PreparedGrading, ordering: _Ordering) -> Ordered:
        grading = prepared.grading
        price = client.prices.find(grading.judge)
        client.check_price(grading.cap, price)
        prompt = await prepared.prompt()
        sent = client.learned.apply(prepared.parameters)
        most = price.most_nano(prompt, sent.max_tokens, batched=True) if price else 0
        account, close = await self._ledger.open(grading.scope, grading.run_id)
        try:
            reservation = await account.reserve(
                most, grading.limit, self._ledger.journal, waits=ordering.waits_for_money, lasts_s=_LASTS_S
            )
        except SpendCapReachedError:
            close()
            budget = BudgetHandle(account, grading.cap, self._ledger.journal, grading.allowance)
            raise too_little_left(most, budget) from None
        except BaseException:
            close()
            raise
        ordering.is_paid = True
        order = _order_of(prepared, account.run, prompt, sent, most, reservation.name)
        return await run_to_end(self._place(PaidOrder(order, reservation, close), grading.scope))

    async def _place(self, paid: PaidOrder, scope: Scope) -> Ordered:
        """Return an order once it is stored, or the one that its key has already."""
        order = paid.order
        other = self._find_open(scope, order.key)
        if other is not None:
            await self._settlements.write([paid.unused()])
            return other
        ordered = self._open[order.name] = Ordered(order.item_id, order.run, paid.reservation, paid.close)
        await self._accept(paid, ordered)
        return ordered

    async def _accept(self, paid: PaidOrder, ordered: Ordered) -> None:
        """Store an order."""
        order = paid.order
        try:
            await self._store.add(order, self._clock.now())
        except BaseException:
            await self._refuse(paid, ordered, "the judge's state cannot be written")
            raise
        failpoint("judge.order_after_commit")
        ordered.is_kept.set()
        self._collect(order.client_key, len(order.text))

    async def _refuse(self, paid: PaidOrder, ordered: Ordered, message: str) -> None:
        """Answer those that wait for an order which cannot be stored, then release what was set aside for it."""
        if self._drop(paid.order.name, ordered):  # else they have an answer: another order's, or its team was deleted
            failed = Outcome(Status.UNAVAILABLE, reason="batch_failed", message=message)
            ordered.done.set_result(outcome_text(failed, paid.order.round))
        await self._settlements.write([self._release(paid)])

    def _drop(self, name: OrderName, ordered: Ordered) -> bool:
        """Remove an order from those that are open; return whether it was there."""
        is_open = self._open.get(name) is ordered
        if is_open:
            del self._open[name]
        return is_open

    def _collect(self, client_key: str, chars: int, count: int = 1) -> None:
        collecting = self._collecting.get(client_key)
        if collecting is None:
            collecting = self._collecting[client_key] = _Collecting()
            self._task(self._gather(client_key, collecting))
        collecting.count += count
        collecting.chars += chars
        if collecting.count >= self._rules.requests or collecting.chars >= MOST_CHARS:
            collecting.is_full.set()

    async def _gather(self, client_key: str, collecting: _Collecting) -> None:
        """Make batches of what was collected in a while, or as soon as there is enough for one."""
        waits = [self._task(self._clock.sleep(self._rules.wait_s)), self._task(collecting.is_full.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        is_due = waits[0].done()
        for wait in waits:
            wait.cancel()
        del self._collecting[client_key]
        left, enough = collecting.count, 1
        while left >= enough:
            left -= await self._form(client_key)
            enough = 1 if is_due else self._rules.requests
        if left > 0:
            self._collect(client_key, 0, left)

    async def _form(self, client_key: str) -> int:
        """Make one batch of what waits, and send it off; return how many orders that are or may have been."""
        try:
            formed = await self._store.form(
                new_id(), client_key, self._clock.now(), most=self._rules.requests, most_chars=MOST_CHARS
            )
        except StorageError as error:
            logger.warning("cannot form a batch, retrying: client=%s: %s", client_key, error)
            await self._clock.sleep(self._rules.poll_s)
            return 0
        if formed is None:
            return self._rules.requests
        record, item_ids = formed
        for ordered in self._open.values():
            if ordered.item_id in item_ids:
                ordered.batch_id = record.batch_id
        self._start_lifecycle(record, is_new=True)
        return record.requests

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
        """Store outcomes, deliver them to waiting callers, and settle their cost; a cancellation waits for that."""
        await run_to_end(self._finish(record, steps))

    async def _finish(self, record: BatchRecord, steps: Sequence[tuple[Order, Step]]) -> None:
        await self._store.renew(record)
        reordered: list[PaidOrder | None] = []
        finished: list[Finished] = []
        try:
            for order, step in steps:
                again = None if step.again is None else await self._afford(step.again)
                reordered.append(again)
                outcome = dataclasses.replace(step.outcome, message=self._registry.redact(step.outcome.message))
                if again is None:
                    await self._cache.keep(order.run.team, order.key, order.rubric, order.judge, outcome)
                text = outcome_text(outcome, order.round)
                finished.append(Finished(order, text, step.cost, None if again is None else again.order))
            failpoint("judge.batch_before_settle")
            await self._store.finish(record, finished, self._clock.now())
        except BaseException:
            await self._settlements.write([self._release(again) for again in reordered if again is not None])
            raise
        await self._settled(finished, reordered)

    def _release(self, paid: PaidOrder) -> Settlement:
        """Return the settlement of an order whose write has failed."""
        return paid.unused()

    async def _settled(self, finished: Sequence[Finished], reordered: Sequence[PaidOrder | None]) -> None:
        """Deliver stored outcomes to waiting callers, then settle their cost.

        The lifecycle does not read a stored outcome again: a failed write must not leave its order open.
        """
        settlements: list[Settlement] = []
        for one, again in zip(finished, reordered, strict=True):
            ordered = self._open.get(one.order.name)
            if ordered is None or ordered.item_id != one.order.item_id:  # its team was deleted, its account as well
                if again is not None:
                    again.close()
                continue
            paid, close = ordered.reservation, ordered.close
            if again is not None:
                ordered.item_id, ordered.reservation, ordered.batch_id = again.order.item_id, again.reservation, ""
                self._collect(again.order.client_key, len(again.order.text))
                close = again.close
            else:
                del self._open[one.order.name]
                ordered.done.set_result(one.outcome)
            if paid is None:
                close()
            else:
                settlements.append(Settlement(ordered.run, partial(paid.settle, one.cost), close))
        await self._settlements.write(settlements)

    async def _afford(self, again: Order) -> PaidOrder | None:
        """Set money aside for another turn, unless that would have to wait for other verdicts."""
        client = await self._registry.client(again.judge)
        price = client.prices.find(again.judge)
        most = price.most_nano(again.prompt, again.sent.max_tokens, batched=True) if price else 0
        account, close = await self._ledger.open(Scope(again.run.team), again.run.run_id)
        try:
            reservation = await account.reserve_now(most, again.cap, self._ledger.journal, lasts_s=_LASTS_S)
        except BaseException:
            close()
            raise
        if reservation is None:
            close()
            return None
        order = dataclasses.replace(again, reserved=most, reservation=reservation.name)
        return PaidOrder(order, reservation, close)

    async def _handed_out(self, ordered: Ordered, prepared: PreparedGrading) -> Outcome | None:
        """Return an outcome: with its usage to the first row of its run, without usage to all others."""
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
        said = f"pending: {message}; retry in {wait_s:.0f} s"
        return Outcome(Status.UNAVAILABLE, reason="batch_pending", message=said, retry_after_s=wait_s)

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
    """Wait until some work is done or an event has happened, without a time limit of its own."""
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
    """Return whether a limit is lower than another one; None is none."""
    return limit is not None and (other is None or limit < other)


def _until(prepared: PreparedGrading) -> float:
    return asyncio.get_running_loop().time() + prepared.grading.timeout_s
