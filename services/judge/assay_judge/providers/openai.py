"""Chat Completions, OpenAI's protocol and that of most local servers, through the official package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from assay.providers.http_client import TIMEOUT
from assay_judge.providers.connection import (
    connection_to,
    headers_of,
    provider_error,
    read_object,
    wide_connection_to,
)
from assay_judge.providers.openai_messages import completion_request, reply_from_completion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx2

    from assay_judge.model import Prompt
    from assay_judge.providers.batch_api import BatchApi
    from assay_judge.providers.messages import Parameters, Reply


def connect(url: str, key: str, concurrency: int) -> OpenAIProvider:
    """Return a service of OpenAI's protocol.

    Args:
        url: The service, up to and without /chat/completions.
        key: The key; anything where the service wants none.
        concurrency: Most calls at once.
    """
    return OpenAIProvider(
        _client(url, key, connection_to(url, concurrency)),
        lambda: _client(url, key, wide_connection_to(url)),
    )


def _client(url: str, key: str, connection: httpx2.AsyncClient) -> openai.AsyncOpenAI:
    client = openai.AsyncOpenAI(
        api_key=key,
        base_url=url,
        max_retries=0,  # attempts are ours, so that each is counted and paid for knowingly
        timeout=TIMEOUT,
        http_client=connection,
    )
    # The package reads these from the environment; no setting names them, so they are not sent.
    client.organization = client.project = client.admin_api_key = None
    client._custom_headers = {}  # noqa: SLF001 - there is no public way to leave out what the environment adds
    return client


class OpenAIProvider:
    """One service of OpenAI's protocol.

    Args:
        client: For single calls.
        connect_batches: Returns another client, which lets long files through; called where batches are used.
    """

    def __init__(self, client: openai.AsyncOpenAI, connect_batches: Callable[[], openai.AsyncOpenAI]) -> None:
        self._client = client
        self._connect_batches = connect_batches
        self._batch_client: openai.AsyncOpenAI | None = None

    @property
    def batches(self) -> BatchApi:
        """The batch API of the service."""
        from assay_judge.providers.openai_batches import OpenAIBatches

        if self._batch_client is None:
            self._batch_client = self._connect_batches()
        return OpenAIBatches(self._batch_client)

    async def ask(self, model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: Parameters) -> Reply:
        """Return what a model says."""
        extra = completion_request(model, prompt, schema, parameters)
        messages: Any = extra.pop("messages")
        try:
            reply = await self._client.chat.completions.with_raw_response.create(
                model=extra.pop("model"), messages=messages, extra_body=extra
            )
        except openai.APIStatusError as problem:
            raise provider_error(problem, problem.status_code, problem.response) from None
        except openai.APIConnectionError as problem:
            raise provider_error(problem, None, None) from None
        return reply_from_completion(read_object(reply.http_response.content), headers_of(reply.http_response))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
        if self._batch_client is not None:
            await self._batch_client.close()
