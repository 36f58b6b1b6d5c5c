"""Anthropic's batch API: one call submits all requests; the results are a JSON Lines file."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anthropic
import httpx2

from assay.providers.anthropic import package_client, reply_from, request_body
from assay.providers.errors import MalformedReplyError, error_without_status
from assay.providers.http_client import connection_to, provider_error
from assay_judge.providers.batch_api import (
    BATCH_CALLS_AT_ONCE,
    MAX_RESULTS_BYTES,
    BatchResult,
    BatchSearch,
    BatchState,
    BatchStatus,
    read_json_lines,
    require_id,
)
from assay_judge.providers.verdict_request import anthropic_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from assay.providers.client import Service
    from assay_judge.providers.batch_api import BatchRequest

_SLACK_S = 3_600  # largest difference between our clock and the provider's
_PAGE = 100
_MOST_PAGES = 100
_ITEM_STATES = {"expired": BatchState.EXPIRED, "canceled": BatchState.CANCELLED}
_Failures = (anthropic.APIStatusError, anthropic.APIConnectionError, anthropic.AnthropicError, httpx2.HTTPError)


def connect(service: Service) -> AnthropicBatches:
    """Return the batch API of a service, over a connection that accepts large files."""
    return AnthropicBatches(package_client(service, connection_to(service, BATCH_CALLS_AT_ONCE, MAX_RESULTS_BYTES)))


class AnthropicBatches:
    """The batch API of a service that speaks Anthropic's protocol.

    Args:
        client: The package's client; its connection must accept large files.
    """

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client

    async def submit(
        self, batch_id: str, model: str, requests: Sequence[BatchRequest], confirm: Callable[[], Awaitable[None]]
    ) -> str:
        """Submit a batch; return the provider's id."""
        listed: Any = [
            {
                "custom_id": request.item_id,
                "params": request_body(anthropic_request(model, request.prompt, request.schema, request.parameters)),
            }
            for request in requests
        ]
        try:
            await confirm()
            batch = await self._client.messages.batches.create(requests=listed)
        except _Failures as problem:
            raise provider_error(problem) from None
        return require_id(batch)

    async def search(self, batch_id: str, item_ids: Collection[str], since: float) -> BatchSearch:
        """Search for a batch by its requests: the protocol has no field for our batch id.

        The provider names a batch's requests only after it has ended. An unfinished batch with the same number of
        requests, created since the submission, may be ours; that is known once it ends.
        """
        is_open = False
        async for batch in self._listed(since - _SLACK_S):
            counts = batch.request_counts
            names = ("processing", "succeeded", "errored", "canceled", "expired")
            if sum(getattr(counts, name, 0) or 0 for name in names) != len(item_ids):
                continue
            if batch.processing_status != "ended":
                is_open = True
            elif await self._first_item(require_id(batch)) in item_ids:
                return BatchSearch(require_id(batch))
        return BatchSearch(is_open=is_open)

    async def status(self, provider_id: str) -> BatchStatus:
        """Return the status of a batch. Cancelled and expired batches count as ended; their results say which."""
        try:
            batch = await self._client.messages.batches.retrieve(provider_id)
        except _Failures as problem:
            raise provider_error(problem) from None
        self._check_results_are_here(batch.results_url)
        counts = batch.request_counts
        done = sum(getattr(counts, name, 0) or 0 for name in ("succeeded", "errored", "canceled", "expired"))
        return BatchStatus(BatchState.ENDED if batch.processing_status == "ended" else BatchState.RUNNING, done)

    async def results(self, provider_id: str) -> AsyncIterator[BatchResult]:
        """Return the results of a batch that has ended."""
        try:
            async with self._client.messages.batches.with_streaming_response.results(provider_id) as content:
                async for data in read_json_lines(content.iter_bytes()):
                    result = _result(data)
                    if result is not None:
                        yield result
        except _Failures as problem:
            raise provider_error(problem) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _listed(self, since: float) -> AsyncIterator[Any]:
        after: Any = anthropic.omit
        try:
            for _ in range(_MOST_PAGES):
                page = await self._client.messages.batches.list(limit=_PAGE, after_id=after)
                for batch in page.data or []:
                    if batch.created_at.timestamp() < since:
                        return
                    yield batch
                if not page.data or not page.has_more:
                    return
                after = page.data[-1].id
        except _Failures as problem:
            raise provider_error(problem) from None

    async def _first_item(self, provider_id: str) -> str:
        async with aclosing(self.results(provider_id)) as results:  # type: ignore[type-var]  # a generator
            async for result in results:
                return result.item_id
        return ""

    def _check_results_are_here(self, url: str | None) -> None:
        """Refuse an address at another host, because the package would send the key there."""
        own = urlsplit(str(self._client.base_url))
        if url and urlsplit(url)[:2] not in ((own.scheme, own.netloc), ("", "")):
            raise MalformedReplyError(f"the batch's results_url points at another service: {ascii(url)[:200]}")


def _result(data: dict[str, Any]) -> BatchResult | None:
    item_id, result = data.get("custom_id"), data.get("result")
    if not isinstance(item_id, str):
        return None
    kind = result.get("type") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(kind, str):
        return BatchResult(item_id, problem="the result has no type")
    if kind in _ITEM_STATES:
        return BatchResult(item_id, state=_ITEM_STATES[kind])
    if kind == "errored":
        return BatchResult(item_id, refusal=error_without_status(result.get("error"), {}))
    message = result.get("message")
    try:
        return BatchResult(item_id, reply_from(message if isinstance(message, dict) else {}))
    except MalformedReplyError as problem:
        return BatchResult(item_id, problem=str(problem))
