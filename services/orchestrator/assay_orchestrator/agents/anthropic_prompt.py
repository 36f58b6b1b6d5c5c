"""The Messages protocol, through the official package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic

from assay.model.agent_response import MalformedAnswerError
from assay.providers.http_client import TIMEOUT
from assay_orchestrator.agents.provider_answer import (
    REFUSAL,
    TRUNCATED,
    complete,
    count,
    failed_as,
    read_answer,
    text_of_parts,
    tokens,
)
from assay_orchestrator.agents.provider_connection import connection_to, failure_of, read_json
from assay_orchestrator.scoring.reply_mapping import excerpt

if TYPE_CHECKING:
    from assay.model.agent_response import AgentResponse
    from assay.spec.prompt_options import PromptOptions
    from assay_orchestrator.agents.prompt_template import Conversation
    from assay_orchestrator.agents.provider import Parameters


def connect(model: str, options: PromptOptions, url: str, key: str, concurrency: int) -> AnthropicService:
    """Return a model of Anthropic's protocol.

    Args:
        model: Its id.
        options: How it is asked.
        url: The service, without /v1.
        key: The key; anything where the service wants none.
        concurrency: Most calls at once.
    """
    client = anthropic.AsyncAnthropic(
        api_key=key,
        base_url=url,
        max_retries=0,  # attempts are ours, so that each is recorded and none makes a latency longer
        timeout=TIMEOUT,
        http_client=connection_to(url, concurrency),
    )
    # There is no public way to leave out what the environment adds. The package sends the key as a bearer token, and
    # gateways know it by the protocol's first header.
    client._custom_headers = {"x-api-key": key} if options.base_url else {}  # noqa: SLF001
    return AnthropicService(client, model, options)


class AnthropicService:
    """One model behind the Messages protocol."""

    def __init__(self, client: anthropic.AsyncAnthropic, model: str, options: PromptOptions) -> None:
        self._client = client
        self._model = model
        self._options = options

    async def ask(self, conversation: Conversation, parameters: Parameters) -> AgentResponse:
        """Return the model's answer."""
        said = conversation.messages
        # The protocol has no messages of the system: what a history holds of them joins the system text.
        system = "\n\n".join(filter(None, [conversation.system, *(m.content for m in said if m.role == "system")]))
        messages: Any = [{"role": m.role, "content": m.content} for m in said if m.role != "system"]
        extra: dict[str, Any] = {**self._options.extra}
        if system:
            extra["system"] = system
        if parameters.temperature is not None:
            # The package has no argument for it any more; the protocol still has the field.
            extra["temperature"] = parameters.temperature
        try:
            reply = await self._client.messages.with_raw_response.create(
                model=self._model, max_tokens=self._options.max_tokens, messages=messages, extra_body=extra
            )
        except anthropic.APIStatusError as problem:
            raise failure_of(problem, problem.status_code, problem.response) from None
        except anthropic.APIConnectionError as problem:
            raise failure_of(problem, None, None) from None
        return read_message(reply.http_response.content, reply.headers.get("request-id", ""))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def read_message(body: bytes, request_id: str) -> AgentResponse:
    """Return the answer that a reply of the Messages protocol holds.

    Raises:
        MalformedAnswerError: It holds none.
        AnswerTooLargeError: It is too large.
    """
    data = read_json(body)
    content = data.get("content")
    if not isinstance(content, list):
        raise MalformedAnswerError(f"the reply holds no message of a model: {excerpt(body)}")
    response = read_answer(
        {
            "text": text_of_parts(content),
            "tool_calls": [
                {"id": part.get("id"), "name": part.get("name"), "arguments": part.get("input")}
                for part in content
                if isinstance(part, dict) and part.get("type") == "tool_use"
            ],
            "usage": _usage(data.get("usage")),
            "finish_reason": data.get("stop_reason"),
            "model": data.get("model"),
        },
        request_id,
    )
    match response.finish_reason:
        case "refusal":
            said = f": {response.text[:500]}" if response.text else ""
            return failed_as(response, REFUSAL, f"the model refused to answer{said}")
        case "max_tokens":
            return failed_as(response, TRUNCATED, "the answer was cut off at max_tokens: raise agent.max_tokens")
        case "model_context_window_exceeded":
            return failed_as(response, TRUNCATED, "the answer was cut off where the model's context window ends")
        case "pause_turn":
            return failed_as(response, TRUNCATED, "the provider paused the turn before the answer was complete")
    return complete(response)


def _usage(usage: object) -> dict[str, int] | None:
    fresh, written = count(usage, "input_tokens"), count(usage, "output_tokens")
    cached, stored = count(usage, "cache_read_input_tokens"), count(usage, "cache_creation_input_tokens")
    # The protocol counts cached tokens beside the input; in an answer's usage they are part of it.
    read = None if fresh is None else fresh + (cached or 0) + (stored or 0)
    return tokens(
        input_tokens=read,
        output_tokens=written,
        total_tokens=None if read is None or written is None else read + written,
        cache_read_tokens=cached,
        cache_write_tokens=stored,
        reasoning_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
    )
