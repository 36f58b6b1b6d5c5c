"""The lifecycle of one batch: submit, poll, read the results."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from assay.errors import AssayError
from assay.process.failpoints import failpoint
from assay.providers.errors import MalformedReplyError, ProviderStatusError, UnreachableError
from assay.providers.retry_after import retry_after_s
from assay_judge.batches.orders import judge_from_client_key
from assay_judge.batches.results import failed_step, step_from_result
from assay_judge.batches.store import LeaseLostError
from assay_judge.calls.provider_client import refusal_failure
from assay_judge.providers.batch_api import BatchResult, BatchState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from assay_judge.batches.orders import Order
    from assay_judge.batches.results import Step
    from assay_judge.batches.store import BatchRecord, BatchStore
    from assay_judge.calls.provider_client import ProviderClient
    from assay_judge.calls.provider_registry import ProviderRegistry
    from assay_judge.clock import Clock
    from assay_judge.providers.batch_api import BatchApi, BatchStatus

    Settle = Callable[[BatchRecord, Sequence[tuple[Order, Step]]], Awaitable[None]]

logger = logging.getLogger("assay_judge")

_LONGEST_PAUSE_S = 300.0
_GROWTH = 1.5
_SEARCHES = 2  # for a batch whose submission was not answered: the provider's list may lag behind
_READINGS = 5
_AT_ONCE = 100  # results settled in one transaction
_CALL_S = 120.0
_SUBMIT_S = 900.0
_READ_S = 3_600.0
_GONE = (404, 410)
_MISSING = "the batch has ended, and its results hold no answer to this request"


class BatchLifecycle:
    """Submits and polls one batch, and reads its results.

    Args:
        record: The stored batch.
        store: The store of batches.
        registry: The provider clients.
        settle: Stores the results of orders; durable when it returns.
        clock: The clock.
        poll_s: Pause before the first poll, in seconds; grows by half with each poll, up to five minutes.
        is_new: Whether the batch was certainly never submitted.
    """

    def __init__(
        self,
        record: BatchRecord,
        store: BatchStore,
        registry: ProviderRegistry,
        settle: Settle,
        *,
        clock: Clock,
        poll_s: float,
        is_new: bool,
    ) -> None:
        self.record = record
        self.done_count = 0
        self.next_poll_at = clock.now()
        self._store = store
        self._registry = registry
        self._settle = settle
        self._clock = clock
        self._poll_s = poll_s
        self._pause_s = poll_s
        self._is_uncertain = not is_new
        self._failed_searches = 0
        self._readings = 0

    async def run(self) -> None:
        """Return when every order has an outcome or is in another batch, or when another process owns the batch."""
        while True:
            asked_s: float | None = None
            try:
                if await self._step():
                    return
            except LeaseLostError:
                logger.info("lost batch lease batch=%s epoch=%d", self.record.batch_id, self.record.epoch)
                return
            except ProviderStatusError as refusal:
                asked_s = retry_after_s(refusal.headers)
                self._complain(refusal_failure(refusal).message)
            except (UnreachableError, MalformedReplyError, AssayError, TimeoutError) as problem:
                self._complain(str(problem) or "no answer in time")
            pause_s = max(self._pause_s, asked_s or 0.0)
            self._pause_s = max(self._poll_s, min(self._pause_s * _GROWTH, _LONGEST_PAUSE_S))
            self.next_poll_at = self._clock.now() + pause_s
            await self._clock.sleep(pause_s)

    async def _step(self) -> bool:
        """Submit, poll or read the batch; return whether it is finished."""
        await self._store.renew(self.record)
        client = await self._registry.client(judge_from_client_key(self.record.client_key))
        if not self.record.provider_id:
            return await self._submit(client)
        try:
            async with asyncio.timeout(_CALL_S):
                status = await client.batches.status(self.record.provider_id)
        except ProviderStatusError as refusal:
            if refusal.status not in _GONE:
                raise
            orders = await self._store.orders(self.record.batch_id)
            message = f"the provider no longer has the batch ({refusal_failure(refusal).message})"
            steps = [(o, failed_step(o, client, "batch_failed", message, cost=o.reserved)) for o in orders]
            await self._settle(self.record, steps)
            return await self._end()
        self.done_count = status.done
        return status.state is not BatchState.RUNNING and await self._read(client, status)

    async def _submit(self, client: ProviderClient) -> bool:
        orders = await self._store.orders(self.record.batch_id)
        if not orders:
            return await self._end()
        if self._is_uncertain and not await self._is_missing(client.batches, orders):
            return False
        # Until the provider answers, the batch may exist under an unknown id: it is then searched for, not submitted
        # again.
        self._is_uncertain = True
        try:
            async with asyncio.timeout(_SUBMIT_S):
                requests = [order.request for order in orders]
                provider_id = await client.batches.submit(self.record.batch_id, client.model, requests, self._confirm)
                failpoint("judge.batch_after_submit")
        except ProviderStatusError as refusal:
            self._is_uncertain = refusal.may_pass and not refusal.throttles
            if refusal.may_pass:
                raise
            failure = client.refused(refusal)
            steps = [(o, failed_step(o, client, failure.reason, failure.message, cost=0)) for o in orders]
            await self._settle(self.record, steps)
            return await self._end()
        except UnreachableError as problem:
            self._is_uncertain = problem.sent
            raise
        await self._record_submission(provider_id)
        return False

    async def _confirm(self) -> None:
        """Check, directly before the paid call, that no other process has acquired the batch."""
        failpoint("judge.batch_before_submit")
        await self._store.renew(self.record)

    async def _is_missing(self, batches: BatchApi, orders: Sequence[Order]) -> bool:
        """Search for the batch at the provider; return whether it must be submitted."""
        async with asyncio.timeout(_READ_S):
            names = {order.item_id for order in orders}
            search = await batches.search(self.record.batch_id, names, self.record.created_at)
        if search.provider_id:
            await self._record_submission(search.provider_id)
            return False
        self._failed_searches = 0 if search.is_open else self._failed_searches + 1
        return self._failed_searches >= _SEARCHES

    async def _record_submission(self, provider_id: str) -> None:
        self.record.provider_id = provider_id
        self._pause_s = self._poll_s
        await self._store.submitted(self.record, provider_id)
        logger.info(
            "submitted batch batch=%s provider_id=%s requests=%d",
            self.record.batch_id,
            provider_id,
            self.record.requests,
        )

    async def _read(self, client: ProviderClient, status: BatchStatus) -> bool:
        self._readings += 1
        problem_text = _MISSING
        try:
            async with (
                asyncio.timeout(_READ_S),
                aclosing(client.batches.results(self.record.provider_id)) as results,  # type: ignore[type-var]  # a generator
            ):
                chunk: list[BatchResult] = []
                async for result in results:
                    chunk.append(result)
                    if len(chunk) >= _AT_ONCE:
                        await self._take(client, chunk, status.message)
                        chunk = []
            await self._take(client, chunk, status.message)
        except (UnreachableError, MalformedReplyError, TimeoutError) as problem:
            problem_text = f"the batch has ended, and its results cannot be read: {problem}"
        left = await self._store.orders(self.record.batch_id)
        if left and status.state is BatchState.ENDED and self._readings < _READINGS:
            self._complain(f"{problem_text} ({len(left)} of {self.record.requests} are missing)")
            return False
        end = None if status.state is BatchState.ENDED else status.state
        missing = [BatchResult(order.item_id, state=end, problem="" if end else problem_text) for order in left]
        await self._take(client, missing, status.message)
        return await self._end()

    async def _take(self, client: ProviderClient, results: Iterable[BatchResult], message: str) -> None:
        by_item = {result.item_id: result for result in reversed(list(results))}  # the first result of an order counts
        orders = await self._store.orders(self.record.batch_id, by_item)
        steps = [(order, step_from_result(order, by_item[order.item_id], client, message)) for order in orders]
        if steps:
            await self._settle(self.record, steps)

    async def _end(self) -> bool:
        await self._store.remove(self.record)
        logger.info("finished batch batch=%s", self.record.batch_id)
        return True

    def _complain(self, message: str) -> None:
        logger.warning(
            "batch call failed, retrying: batch=%s: %s", self.record.batch_id, self._registry.redact(message)
        )
