"""Verdicts through the batch APIs of providers: half the price, and hours instead of seconds.

An order is on disk, with its money set aside, before its caller hears that it waits. Orders of one judge are collected
for a while; the batch that they make is on disk before it is submitted. Results are taken until each order has an
outcome, however often the process is started meanwhile. An outcome is kept for the row that it was ordered for. What a
batch did not answer is ordered again, MOST_ORDERS times in all.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import AssayError, OverloadedError, StorageError
from assay.runtime.failpoints import failpoint
from assay_judge.batches.lifecycle import Journey
from assay_judge.batches.orders import Order, kept_outcome, new_id, outcome_text
from assay_judge.batches.results import Step
from assay_judge.batches.store import Finished, LeaseLostError
from assay_judge.calls.provider_client import CallFailedError, Payer, cap_reached
from assay_judge.state.account import SpendCapReachedError
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.prompt import build_prompt
from assay_judge.verdicts.replies import wanted_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from assay_judge.batches.store import BatchRecord, OrderStore
    from assay_judge.calls.provider_client import Line
    from assay_judge.calls.provider_registry import Switchboard
    from assay_judge.clock import Clock
    from assay_judge.model import Grading, Prompt
    from assay_judge.providers.messages import Parameters
    from assay_judge.state.account import Reservable
    from assay_judge.state.ledger import Ledger
    from assay_judge.verdicts.cache import Keeping

__all__ = ["MOST_CHARS", "BatchRules", "Batches", "Ordered", "returned"]

T = TypeVar("T")
logger = logging.getLogger("assay_judge")

MOST_CHARS = 32_000_000
"""Most characters of one batch; providers take 200 MB and more."""

_MOST_ORDERS = 200_000
_LEAST_RETRY_S = 1.0
_LASTS_S = 3 * 24 * 3600.0  # longer than any batch takes


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How batches are made up.

    Args:
        wait_s: How long orders are collected.
        requests: Most requests of one batch.
        poll_s: Pause before a batch is looked at for the first time.
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
    run_id: str
    reservation: Reservable | None
    close: Callable[[], None]
    batch_id: str = ""
    callers: int = 0
    is_kept: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class _Ordering:
    """The making of an order: on its way to the disk, or waiting until the run's cap has room for it."""

    def __init__(self) -> None:
        self.work: asyncio.Task[Ordered]
        self.waits_for_money = asyncio.Event()


@dataclass(slots=True)
class _Collecting:
    """What waits for the next batch of one judge."""

    count: int = 0
    chars: int = 0
    is_full: asyncio.Event = field(default_factory=asyncio.Event)


class Batches:
    """Takes orders and brings their outcomes; `start` it, `aclose` it.

    Args:
        store: Where orders and batches are kept.
        switchboard: The judges.
        ledger: What runs have spent.
        keeping: Takes valid verdicts.
        rules: How batches are made up.
        clock: Tells when.
        stopping: Set when the process stops; whoever waits is then told to ask again.
    """

    def __init__(
        self,
        store: OrderStore,
        switchboard: Switchboard,
        ledger: Ledger,
        keeping: Keeping,
        *,
        rules: BatchRules,
        clock: Clock,
        stopping: asyncio.Event,
    ) -> None:
        self._store = store
        self._switchboard = switchboard
        self._ledger = ledger
        self._keeping = keeping
        self._rules = rules
        self._clock = clock
        self._stopping = stopping
        self._stopped: asyncio.Task[Any] | None = None
        self._ordering: dict[tuple[str, str, int | None], _Ordering] = {}
        self._open: dict[str, Ordered] = {}
        self._collecting: dict[str, _Collecting] = {}
        self._journeys: dict[str, Journey] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Take up what an earlier process left: its orders, its batches, and the money that is set aside for them."""
        self._stopped = self._task(self._stopping.wait())
        for order in await self._store.open_orders():
            account, close = await self._ledger.open(order.run_id)
            reservation = account.adopt(order.reserved, self._ledger.journal, order.reservation)
            ordered = self._open[order.key] = Ordered(order.item_id, order.run_id, reservation, close, order.batch_id)
            ordered.is_kept.set()
            if not order.batch_id:
                self._collect(order.line, order.size)
        for record in await self._store.batches():
            self._travel(record, is_new=False)

    async def aclose(self) -> None:
        """Leave everything as it is on disk."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def is_ordered(self, key: str) -> bool:
        """Return whether a verdict is on its way."""
        return key in self._open

    async def found(self, grading: Grading, key: str) -> Outcome | None:
        """Return what comes of an order that is out, or what came of one of this run; None where there is neither."""
        ordered = await self._joined(key)
        if ordered is not None:
            return await self._awaited(ordered, grading, key, _until(grading))
        return await self._store.fetch(key, grading.run_id, grading.rubric, grading.asker)

    async def verdict(self, line: Line, grading: Grading, key: str) -> Outcome:
        """Return what comes of an order, which is made unless it is out already.

        Raises:
            OverloadedError: Too many orders are out.
            StorageError: It cannot be kept.
        """
        until = _until(grading)
        ordered = self._open.get(key)
        if ordered is None:
            ordering = self._ordering_of(line, grading, key)
            await _first_of(ordering.work, ordering.waits_for_money)
            await self._wait(ordering.work, until)
            if not ordering.work.done():
                return self._pending("the run's cap has room for the request when others have been paid")
            try:
                ordered = ordering.work.result()
            except CallFailedError as failure:
                return Outcome(Status.UNAVAILABLE, reason=failure.reason, message=failure.message)
        return await self._awaited(ordered, grading, key, until) or await self._cached(grading, key)

    async def _cached(self, grading: Grading, key: str) -> Outcome:
        """Return what an order comes to whose outcome another request has: the cached verdict, else "not yet"."""
        found = await self._keeping.find(key, grading.rubric)
        if found is None:
            return self._pending("another request has the outcome", _LEAST_RETRY_S)
        return dataclasses.replace(found, cached=True)

    async def _joined(self, key: str) -> Ordered | None:
        """Return the order that is out for a key."""
        return self._open.get(key)

    async def _awaited(self, ordered: Ordered, grading: Grading, key: str, until: float) -> Outcome | None:
        await _first_of(ordered.done, ordered.is_kept)
        await self._wait(ordered.done, until)
        return await self._handed_out(ordered, grading, key) if ordered.done.done() else self._not_yet(ordered)

    async def _wait(self, what: asyncio.Future[Any], until: float) -> None:
        """Wait for something, until a time of the loop's, or until the process stops."""
        assert self._stopped is not None
        timeout = None if math.isinf(until) else max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait([what, self._stopped], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def _ordering_of(self, line: Line, grading: Grading, key: str) -> _Ordering:
        """Return the work that makes an order; it goes on though whoever asked has left."""
        # Another run's cap must not decide about this one's order.
        name = (key, grading.run_id, grading.cap)
        ordering = self._ordering.get(name)
        if ordering is None:
            if self._backlog() + len(self._ordering) >= _MOST_ORDERS:
                raise OverloadedError(
                    f"{_MOST_ORDERS} verdicts wait for batches; ask again later.", reason="QUEUE_FULL"
                )
            ordering = self._ordering[name] = _Ordering()
            ordering.work = self._task(self._order(line, grading, key, ordering.waits_for_money))
            ordering.work.add_done_callback(lambda _: self._ordering.pop(name, None))
        return ordering

    def _backlog(self) -> int:
        """Return how many orders have no outcome."""
        return len(self._open)

    async def _order(self, line: Line, grading: Grading, key: str, waits_for_money: asyncio.Event) -> Ordered:
        line.check_price(grading.cap)
        prompt = build_prompt(grading.rubric, grading.material)
        sent = line.accepted(wanted_parameters(grading.judge))
        most = line.price.most_nano(prompt, sent.max_tokens, batched=True) if line.price else 0
        account, close = await self._ledger.open(grading.run_id)
        try:
            reservation = await account.reserve(
                most, grading.cap, self._ledger.journal, waits=waits_for_money, lasts_s=_LASTS_S
            )
        except SpendCapReachedError:
            close()
            raise cap_reached(most, Payer(account, grading.cap, self._ledger.journal)) from None
        except BaseException:
            close()
            raise
        other = self._open.get(key)
        if other is not None:
            await returned(reservation, close)
            return other
        order = _order_of(grading, key, prompt, sent, most, reservation.name)
        ordered = self._open[key] = Ordered(order.item_id, order.run_id, reservation, close)
        await self._accept(order, ordered, reservation)
        return ordered

    async def _accept(self, order: Order, ordered: Ordered, reservation: Reservable) -> None:
        """Store an order."""
        try:
            await self._store.add(order, self._clock.now())
        except StorageError:
            del self._open[order.key]
            await returned(reservation, ordered.close)
            message = "the judge's state cannot be written"
            failed = Outcome(Status.UNAVAILABLE, reason="batch_failed", message=message)
            ordered.done.set_result(outcome_text(failed, order.round))
            raise
        failpoint("judge.order_after_commit")
        ordered.is_kept.set()
        self._collect(order.line, len(order.text))

    def _collect(self, line: str, chars: int, count: int = 1) -> None:
        collecting = self._collecting.get(line)
        if collecting is None:
            collecting = self._collecting[line] = _Collecting()
            self._task(self._gather(line, collecting))
        collecting.count += count
        collecting.chars += chars
        if collecting.count >= self._rules.requests or collecting.chars >= MOST_CHARS:
            collecting.is_full.set()

    async def _gather(self, line: str, collecting: _Collecting) -> None:
        """Make batches of what was collected in a while, or as soon as there is enough for one."""
        waits = [self._task(self._clock.sleep(self._rules.wait_s)), self._task(collecting.is_full.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        is_due = waits[0].done()
        for wait in waits:
            wait.cancel()
        del self._collecting[line]
        left, enough = collecting.count, 1
        while left >= enough:
            left -= await self._form(line)
            enough = 1 if is_due else self._rules.requests
        if left > 0:
            self._collect(line, 0, left)

    async def _form(self, line: str) -> int:
        """Make one batch of what waits, and send it off; return how many orders that are or may have been."""
        try:
            formed = await self._store.form(
                new_id(), line, self._clock.now(), most=self._rules.requests, most_chars=MOST_CHARS
            )
        except StorageError as error:
            logger.warning("no batch can be made up: %s", error)
            await self._clock.sleep(self._rules.poll_s)
            return 0
        if formed is None:
            return self._rules.requests
        record, item_ids = formed
        for ordered in self._open.values():
            if ordered.item_id in item_ids:
                ordered.batch_id = record.batch_id
        self._travel(record, is_new=True)
        return record.requests

    def _travel(self, record: BatchRecord, *, is_new: bool) -> None:
        journey = self._journeys[record.batch_id] = Journey(
            record,
            self._store,
            self._switchboard,
            self._settle,
            clock=self._clock,
            poll_s=self._rules.poll_s,
            is_new=is_new,
        )

        def forget(_: asyncio.Task[None]) -> None:
            if self._journeys.get(record.batch_id) is journey:
                del self._journeys[record.batch_id]

        self._task(journey.run()).add_done_callback(forget)

    async def _settle(self, record: BatchRecord, steps: Sequence[tuple[Order, Step]]) -> None:
        """Keep what has come of some orders, pay for it, and hand it to the callers that wait."""
        await self._store.renew(record)
        reservations: list[Reservable | None] = []
        finished: list[Finished] = []
        for order, step in steps:
            again, reservation = (None, None) if step.again is None else await self._afford(step.again)
            outcome = dataclasses.replace(step.outcome, message=self._switchboard.redact(step.outcome.message))
            if again is None:
                await self._keeping.keep(order.key, order.rubric, order.judge, outcome)
            finished.append(Finished(order, outcome_text(outcome, order.round), step.cost, again))
            reservations.append(reservation)
        failpoint("judge.batch_before_settle")
        try:
            await self._store.finish(record, finished, self._clock.now())
        except LeaseLostError:
            await asyncio.gather(*(one.settle(0) for one in reservations if one is not None))
            raise
        await self._settled(finished, reservations)

    async def _settled(self, finished: Sequence[Finished], reservations: Sequence[Reservable | None]) -> None:
        """Pay for what is kept, and hand it to the callers that wait."""
        told = [self._open[one.order.key] for one in finished]
        paying = [
            ordered.reservation.settle(one.cost)
            for ordered, one in zip(told, finished, strict=True)
            if ordered.reservation is not None
        ]
        await asyncio.gather(*paying)
        for one, ordered, reservation in zip(finished, told, reservations, strict=True):
            if one.again is not None:
                ordered.item_id, ordered.reservation, ordered.batch_id = one.again.item_id, reservation, ""
                self._collect(one.again.line, len(one.again.text))
            else:
                del self._open[one.order.key]
                ordered.close()
                ordered.done.set_result(one.outcome)

    async def _afford(self, again: Order) -> tuple[Order, Reservable] | tuple[None, None]:
        """Set money aside for another turn, unless that would have to wait for other verdicts."""
        line = await self._switchboard.line(again.judge)
        most = line.price.most_nano(again.prompt, again.sent.max_tokens, batched=True) if line.price else 0
        account, close = await self._ledger.open(again.run_id)
        try:
            reservation = await account.reserve_now(most, again.cap, self._ledger.journal, lasts_s=_LASTS_S)
        finally:
            close()  # the order itself keeps the account open
        if reservation is None:
            return None, None
        return dataclasses.replace(again, reserved=most, reservation=reservation.name), reservation

    async def _handed_out(self, ordered: Ordered, grading: Grading, key: str) -> Outcome | None:
        """Return an outcome: with what it has cost to the row of its run that has it first, as found to all others."""
        text = ordered.done.result()
        outcome = kept_outcome(text, grading.rubric) if text else None
        if grading.run_id == ordered.run_id:
            try:
                fetched = await self._store.fetch(key, grading.run_id, grading.rubric, grading.asker)
            except StorageError as error:
                logger.warning("an outcome was handed out and may be so again: %s", error)
                return outcome
            if fetched is not None:
                return fetched
        return None if outcome is None else outcome.as_found()

    def _not_yet(self, ordered: Ordered) -> Outcome:
        journey = self._journeys.get(ordered.batch_id)
        if journey is None:
            return self._pending("the request waits for a batch")
        record, wait_s = journey.record, journey.next_look_at - self._clock.now()
        name = record.provider_id or "that is being submitted"
        return self._pending(f"the batch {name} has {journey.done_count} of {record.requests} requests done", wait_s)

    def _pending(self, message: str, wait_s: float = 0.0) -> Outcome:
        wait_s = max(_LEAST_RETRY_S, wait_s or self._rules.wait_s + self._rules.poll_s)
        said = f"not yet, {message}: ask again in {wait_s:.0f} s"
        return Outcome(Status.UNAVAILABLE, reason="batch_pending", message=said, retry_after_s=wait_s)

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        defect = None if task.cancelled() else task.exception()
        if defect is not None and not isinstance(defect, AssayError | CallFailedError):  # those are told
            logger.error("a batch stands still until the judge is started again", exc_info=defect)


async def _first_of(work: asyncio.Future[Any], event: asyncio.Event) -> None:
    """Wait until some work is done or an event has happened, without a time limit of its own."""
    happened = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([work, happened], return_when=asyncio.FIRST_COMPLETED)
    finally:
        happened.cancel()


def _order_of(grading: Grading, key: str, prompt: Prompt, sent: Parameters, reserved: int, reservation: str) -> Order:
    return Order(
        new_id(),
        key,
        grading.run_id,
        grading.cap,
        reserved,
        grading.judge,
        grading.rubric,
        grading.material,
        prompt,
        sent,
        round=grading.asker.round,
        reservation=reservation,
    )


def _until(grading: Grading) -> float:
    return asyncio.get_running_loop().time() + grading.timeout_s


async def returned(reservation: Reservable, close: Callable[[], None]) -> None:
    """Give back what was set aside for nothing."""
    try:
        await reservation.settle(0)
    finally:
        close()
