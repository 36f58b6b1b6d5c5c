"""Chat Completions, OpenAI's protocol and that of most local servers, through the official package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from assay.model.agent_response import clean_text
from assay_judge.providers.connection import (
    TIMEOUT,
    connection_to,
    failure_of,
    headers_of,
    read_object,
    wide_connection_to,
)
from assay_judge.providers.protocol import (
    NO_HEADERS,
    Form,
    MalformedReplyError,
    Reply,
    Stop,
    Tokens,
    text_of_parts,
    token_count,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx2

    from assay_judge.prompting import Prompt
    from assay_judge.providers.batching import BatchApi
    from assay_judge.providers.protocol import Parameters

__all__ = ["OpenAIProvider", "completion_of", "completion_request", "connect"]

_STOPS = {"length": Stop.TRUNCATED, "content_filter": Stop.REFUSED}


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
    # The package reads these from the environment; nobody asked for them, so they go nowhere.
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
            raise failure_of(problem, problem.status_code, problem.response) from None
        except openai.APIConnectionError as problem:
            raise failure_of(problem, None, None) from None
        return completion_of(read_object(reply.http_response.content), headers_of(reply.http_response))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
        if self._batch_client is not None:
            await self._batch_client.close()


def completion_request(model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: Parameters) -> dict[str, Any]:
    """Return a request for a completion, as the protocol has it."""
    request: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": f"{prompt.system}\n\n{prompt.call}"},
            {"role": "user", "content": prompt.user},
        ],
        parameters.token_field: parameters.max_tokens,
    }
    if parameters.temperature is not None:
        request["temperature"] = parameters.temperature
    if parameters.form is Form.SCHEMA:
        named = {"name": "verdict", "strict": True, "schema": schema}
        request["response_format"] = {"type": "json_schema", "json_schema": named}
    elif parameters.form is Form.OBJECT:
        request["response_format"] = {"type": "json_object"}
    return request


def completion_of(data: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """Return what a completion says.

    Raises:
        MalformedReplyError: It is none.
    """
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise MalformedReplyError("the reply does not hold one message of a model")
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, list):  # of parts, as Mistral's reasoning models answer
        refusal = refusal or _refusal_in(content)
        content = text_of_parts(content)
    finish = choice.get("finish_reason")
    stop = _STOPS.get(finish, Stop.COMPLETE) if isinstance(finish, str) else Stop.COMPLETE
    if isinstance(refusal, str) and refusal:
        stop, content = Stop.REFUSED, content or refusal
    model = data.get("model")
    return Reply(
        clean_text(content) if isinstance(content, str) else "",
        stop,
        _tokens(data.get("usage")),
        clean_text(model)[:200] if isinstance(model, str) else "",
        headers,
    )


def _refusal_in(parts: list[Any]) -> object:
    found = (part.get("refusal") for part in parts if isinstance(part, dict) and part.get("type") == "refusal")
    return next(found, None)


def _tokens(usage: object) -> Tokens | None:
    read, written = token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens")
    if read is None or written is None:
        return None
    cached = min(token_count(usage, "prompt_tokens_details", "cached_tokens") or 0, read)
    return Tokens(
        read,
        written,
        cached,
        min(token_count(usage, "prompt_tokens_details", "cache_write_tokens") or 0, read - cached),
        min(token_count(usage, "completion_tokens_details", "reasoning_tokens") or 0, written),
    )
