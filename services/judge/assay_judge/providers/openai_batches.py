"""OpenAI's batch API: the requests are a JSON Lines file, the results one or two further files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import httpx2
import openai

from assay.model.answers.agent_response import clean_text
from assay.providers.chat_completions import reply_from, request_body
from assay.providers.errors import MalformedReplyError, ProviderStatusError
from assay.providers.http_client import connection_to, provider_error
from assay.providers.openai import package_client
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
from assay_judge.providers.verdict_request import openai_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from assay.providers.client import Service
    from assay_judge.providers.batch_api import BatchRequest

_ENDPOINT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
_MARK = "assay_batch"
_SLACK_S = 3_600  # largest difference between our clock and the provider's
_PAGE = 100
_MOST_PAGES = 100
_STATES = {
    "completed": BatchState.ENDED,
    "failed": BatchState.FAILED,
    "expired": BatchState.EXPIRED,
    "cancelled": BatchState.CANCELLED,
}
_ITEM_STATES = {"batch_expired": BatchState.EXPIRED, "batch_cancelled": BatchState.CANCELLED}
_Failures = (openai.APIStatusError, openai.APIConnectionError, httpx2.HTTPError)


def connect(service: Service) -> OpenAIBatches:
    """Return the batch API of a service, over a connection that accepts large files."""
    return OpenAIBatches(package_client(service, connection_to(service, BATCH_CALLS_AT_ONCE, MAX_RESULTS_BYTES)))


class OpenAIBatches:
    """The batch API of a service that speaks OpenAI's protocol.

    Args:
        client: The package's client; its connection must accept large files.
    """

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client

    async def submit(
        self, batch_id: str, model: str, requests: Sequence[BatchRequest], confirm: Callable[[], Awaitable[None]]
    ) -> str:
        """Submit a batch; return the provider's id."""
        lines = [
            json.dumps(
                {
                    "custom_id": request.item_id,
                    "method": "POST",
                    "url": _ENDPOINT,
                    "body": request_body(openai_request(model, request.prompt, request.schema, request.parameters)),
                },
                ensure_ascii=False,
            )
            for request in requests
        ]
        try:
            content = "\n".join(lines).encode()
            file = await self._client.files.create(file=(f"{batch_id}.jsonl", content), purpose="batch")
            file_id = require_id(file)
            await confirm()
            batch = await self._client.batches.create(
                input_file_id=file_id,
                endpoint=_ENDPOINT,
                completion_window="24h",
                metadata={_MARK: batch_id},
            )
        except _Failures as problem:
            raise provider_error(problem) from None
        return require_id(batch)

    async def search(self, batch_id: str, item_ids: Collection[str], since: float) -> BatchSearch:
        """Search for a batch by the metadata of its submission."""
        after: Any = openai.omit
        try:
            for _ in range(_MOST_PAGES):
                page = await self._client.batches.list(limit=_PAGE, after=after)
                for batch in page.data or []:
                    if (batch.metadata or {}).get(_MARK) == batch_id:
                        return BatchSearch(require_id(batch))
                if not page.data or not page.has_more or (page.data[-1].created_at or 0) < since - _SLACK_S:
                    break
                after = page.data[-1].id
        except _Failures as problem:
            raise provider_error(problem) from None
        return BatchSearch()

    async def status(self, provider_id: str) -> BatchStatus:
        """Return the status of a batch."""
        batch = await self._batch(provider_id)
        counts = batch.request_counts
        errors = (batch.errors.data if batch.errors else None) or []
        return BatchStatus(
            _STATES.get(batch.status, BatchState.RUNNING),
            (counts.completed or 0) + (counts.failed or 0) if counts else 0,
            "; ".join(clean_text(str(error.message or error.code or "")) for error in errors[:3])[:500],
        )

    async def results(self, provider_id: str) -> AsyncIterator[BatchResult]:
        """Return the results of a finished batch."""
        batch = await self._batch(provider_id)
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id:
                async for data in self._clients(file_id):
                    result = _result(data)
                    if result is not None:
                        yield result

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _batch(self, provider_id: str) -> Any:
        try:
            return await self._client.batches.retrieve(provider_id)
        except _Failures as problem:
            raise provider_error(problem) from None

    async def _clients(self, file_id: str) -> AsyncIterator[dict[str, Any]]:
        try:
            async with self._client.files.with_streaming_response.content(file_id) as content:
                async for data in read_json_lines(content.iter_bytes()):
                    yield data
        except _Failures as problem:
            raise provider_error(problem) from None


def _result(data: dict[str, Any]) -> BatchResult | None:
    item_id, response, error = data.get("custom_id"), data.get("response"), data.get("error")
    if not isinstance(item_id, str):
        return None
    if isinstance(error, dict):
        code = str(error.get("code") or "")
        if code in _ITEM_STATES:
            return BatchResult(item_id, state=_ITEM_STATES[code])
        return BatchResult(item_id, refusal=ProviderStatusError(500, {}, {"error": error}))
    if not isinstance(response, dict):
        return BatchResult(item_id, problem="the result holds neither a response nor an error")
    status, body = response.get("status_code"), response.get("body")
    if isinstance(status, int) and status != 200:
        return BatchResult(item_id, refusal=ProviderStatusError(status, {}, body))
    try:
        return BatchResult(item_id, reply_from(body if isinstance(body, dict) else {}))
    except MalformedReplyError as problem:
        return BatchResult(item_id, problem=str(problem))
