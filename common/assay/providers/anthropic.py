"""The Messages protocol, through Anthropic's official package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic

from assay.providers.errors import MalformedReplyError
from assay.providers.http_client import TIMEOUT, connection_to, provider_error, read_reply
from assay.providers.messages import (
    NO_HEADERS,
    Reply,
    Stop,
    TokenUsage,
    explanation_of,
    name_in,
    text_of_parts,
    token_count,
    token_usage,
)
from assay.providers.own_services import OWN_URLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2

    from assay.providers.messages import Request

_STOPS = {
    "refusal": Stop.REFUSED,
    "max_tokens": Stop.TRUNCATED,
    "model_context_window_exceeded": Stop.CONTEXT_FULL,
    "pause_turn": Stop.PAUSED,
}


def connect(url: str, key: str, concurrency: int) -> AnthropicClient:
    """Return a client of a service of Anthropic's protocol, see `assay.providers.client.connect`."""
    return AnthropicClient(package_client(url, key, connection_to(url, concurrency)))


def package_client(url: str, key: str, connection: httpx2.AsyncClient) -> anthropic.AsyncAnthropic:
    """Return the package's client, which takes nothing from the environment.

    Args:
        url: The service, without /v1.
        key: The key; anything where the service wants none.
        connection: The HTTP client below it; closed with it.
    """
    client = anthropic.AsyncAnthropic(
        api_key=key,
        auth_token=None,
        base_url=url,
        max_retries=0,  # attempts are ours, so that each is recorded and paid for, and none makes a latency longer
        timeout=TIMEOUT,
        http_client=connection,
    )
    # The package reads these from the environment; no spec or setting names them, so they are not sent. It sends the
    # key as a bearer token, and gateways know it by the protocol's first header.
    client.auth_token = None
    client._custom_headers = {} if url == OWN_URLS["anthropic"] else {"x-api-key": key}  # noqa: SLF001 - no public way
    return client


class AnthropicClient:
    """A client of one service of Anthropic's protocol."""

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client

    async def ask(self, request: Request) -> Reply:
        """Return a model's reply."""
        body = request_body(request)
        messages: Any = body.pop("messages")
        try:
            reply = await self._client.messages.with_raw_response.create(
                model=body.pop("model"), max_tokens=body.pop("max_tokens"), messages=messages, extra_body=body
            )
        except (anthropic.APIStatusError, anthropic.APIConnectionError) as problem:
            raise provider_error(problem) from None
        return read_reply(reply.http_response, reply_from)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def request_body(request: Request) -> dict[str, Any]:
    """Return a request as the protocol has it."""
    parameters = request.parameters
    body: dict[str, Any] = {
        **request.extra,
        "model": request.model,
        "max_tokens": parameters.max_tokens,
        "messages": [
            {"role": message.role, "content": message.content}
            for message in request.messages
            if message.role != "system"
        ],
    }
    if system := _system(request):
        body["system"] = system
    if parameters.temperature is not None:
        # The package has no argument for it any more; the protocol still has the field.
        body["temperature"] = parameters.temperature
    return body


def _system(request: Request) -> str | list[dict[str, Any]]:
    # The protocol has no messages of the system: what a history holds of them joins the system text.
    texts = [request.system, *(message.content for message in request.messages if message.role == "system")]
    system = "\n\n".join(filter(None, texts))
    if not request.shared_system:
        return system
    shared = {"type": "text", "text": request.shared_system, "cache_control": {"type": "ephemeral"}}
    return [shared, {"type": "text", "text": system}] if system else [shared]


def reply_from(data: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """Return the reply that a message of a model is.

    Raises:
        MalformedReplyError: It is none.
    """
    content = data.get("content")
    if not isinstance(content, list):
        raise MalformedReplyError("the reply does not hold a message of a model")
    text, finish = text_of_parts(content), name_in(data.get("stop_reason"))
    stop = _STOPS.get(finish, Stop.COMPLETE)
    return Reply(
        text=text,
        stop=stop,
        explanation=explanation_of(text) if stop is Stop.REFUSED else "",
        tokens=_tokens(data.get("usage")),
        model=name_in(data.get("model")),
        finish_reason=finish,
        tool_calls=tuple(
            {"id": part.get("id"), "name": part.get("name"), "arguments": part.get("input")}
            for part in content
            if isinstance(part, dict) and part.get("type") == "tool_use"
        ),
        headers=headers,
    )


def _tokens(usage: object) -> TokenUsage | None:
    fresh, written = token_count(usage, "input_tokens"), token_count(usage, "output_tokens")
    cached = token_count(usage, "cache_read_input_tokens")
    stored = token_count(usage, "cache_creation_input_tokens")
    # The protocol counts cached tokens beside the input.
    read = None if fresh is None else fresh + (cached or 0) + (stored or 0)
    return token_usage(
        input=read,
        output=written,
        total=None if read is None or written is None else read + written,
        cache_read=cached,
        cache_write=stored,
        reasoning=token_count(usage, "output_tokens_details", "thinking_tokens"),
    )
