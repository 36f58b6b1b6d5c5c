"""Chat Completions, OpenAI's protocol and that of most local servers, through the official package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from assay.providers.errors import MalformedReplyError
from assay.providers.http_client import TIMEOUT, connection_to, provider_error, read_reply
from assay.providers.messages import (
    NO_HEADERS,
    Reply,
    Stop,
    TokenUsage,
    explanation_of,
    name_in,
    text_in,
    text_of_parts,
    token_count,
    token_usage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    from assay.providers.messages import Request

_STOPS = {
    "length": Stop.TRUNCATED,
    "content_filter": Stop.FILTERED,
    # Words of vLLM and of gateways, which have sent their 200 by then.
    "abort": Stop.BROKEN_OFF,
    "error": Stop.BROKEN_OFF,
}


def connect(url: str, key: str, concurrency: int) -> OpenAIClient:
    """Return a client of a service of OpenAI's protocol, see `assay.providers.client.connect`."""
    return OpenAIClient(package_client(url, key, connection_to(url, concurrency)))


def package_client(url: str, key: str, connection: httpx2.AsyncClient) -> openai.AsyncOpenAI:
    """Return the package's client, which takes nothing from the environment.

    Args:
        url: The service, up to and without /chat/completions.
        key: The key; anything where the service wants none.
        connection: The HTTP client below it; closed with it.
    """
    client = openai.AsyncOpenAI(
        api_key=key,
        base_url=url,
        max_retries=0,  # attempts are ours, so that each is recorded and paid for, and none makes a latency longer
        timeout=TIMEOUT,
        http_client=connection,
    )
    # The package reads these from the environment; no spec or setting names them, so they are not sent.
    client.organization = client.project = client.admin_api_key = None
    client._custom_headers = {}  # noqa: SLF001 - there is no public way to leave out what the environment adds
    return client


class OpenAIClient:
    """A client of one service of OpenAI's protocol."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client

    async def ask(self, request: Request) -> Reply:
        """Return a model's reply."""
        body = request_body(request)
        messages: Any = body.pop("messages")
        try:
            reply = await self._client.chat.completions.with_raw_response.create(
                model=body.pop("model"), messages=messages, extra_body=body
            )
        except (openai.APIStatusError, openai.APIConnectionError) as problem:
            raise provider_error(problem) from None
        return read_reply(reply.http_response, reply_from)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def request_body(request: Request) -> dict[str, Any]:
    """Return a request as the protocol has it."""
    parameters = request.parameters
    system = "\n\n".join(filter(None, (request.shared_system, request.system)))
    body: dict[str, Any] = {
        **request.extra,
        "model": request.model,
        "messages": [
            *([{"role": "system", "content": system}] if system else []),
            *({"role": message.role, "content": message.content} for message in request.messages),
        ],
        parameters.token_field: parameters.max_tokens,
    }
    if parameters.temperature is not None:
        body["temperature"] = parameters.temperature
    return body


def reply_from(data: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """Return the reply that a completion is.

    Raises:
        MalformedReplyError: It is none.
    """
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise MalformedReplyError("the reply does not hold one message of a model")
    refusal = text_in(message.get("refusal") or _refusal_in(message.get("content")))
    finish = name_in(choice.get("finish_reason"))
    stop = Stop.REFUSED if refusal else _STOPS.get(finish, Stop.COMPLETE)
    return Reply(
        text=_text_of(message.get("content")) or refusal,
        stop=stop,
        explanation=explanation_of(refusal or (_error_of(choice) if stop is Stop.BROKEN_OFF else "")),
        tokens=_tokens(data.get("usage")),
        model=name_in(data.get("model")),
        finish_reason=finish,
        tool_calls=tuple(_tool_calls(message.get("tool_calls"))),
        headers=headers,
    )


def _text_of(content: object) -> str:
    if isinstance(content, list):  # of parts, as Mistral's reasoning models answer
        return text_of_parts(content)
    if content is not None and not isinstance(content, str):
        raise MalformedReplyError("the content of the model's message is no text")
    return text_in(content)


def _refusal_in(content: object) -> object:
    parts: Sequence[object] = content if isinstance(content, list) else ()
    found = (part.get("refusal") for part in parts if isinstance(part, dict) and part.get("type") == "refusal")
    return next(found, None)


def _error_of(choice: Mapping[str, Any]) -> str:
    error = choice.get("error")
    return text_in(error.get("message") if isinstance(error, dict) else error)


def _tool_calls(value: object) -> list[dict[str, Any]]:
    calls = []
    for call in value if isinstance(value, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            # A text is what the model wrote in place of JSON; some local servers send the value itself.
            key = "arguments_json" if isinstance(arguments, str) else "arguments"
            calls.append({"id": call.get("id"), "name": function.get("name"), key: arguments})
    return calls


def _tokens(usage: object) -> TokenUsage | None:
    return token_usage(
        input=token_count(usage, "prompt_tokens"),
        output=token_count(usage, "completion_tokens"),
        total=token_count(usage, "total_tokens"),
        cache_read=token_count(usage, "prompt_tokens_details", "cached_tokens"),
        cache_write=token_count(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning=token_count(usage, "completion_tokens_details", "reasoning_tokens"),
    )
