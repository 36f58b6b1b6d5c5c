"""Chat Completions, OpenAI's protocol and that of most local servers, through the official package."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import openai

from assay.model.agent_response import MalformedAnswerError, clean_text
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


def connect(model: str, options: PromptOptions, url: str, key: str, concurrency: int) -> OpenAIService:
    """Return a model of OpenAI's protocol.

    Args:
        model: Its id.
        options: How it is asked.
        url: The service, up to and without /chat/completions.
        key: The key; anything where the service wants none.
        concurrency: Most calls at once.
    """
    client = openai.AsyncOpenAI(
        api_key=key,
        base_url=url,
        max_retries=0,  # attempts are ours, so that each is recorded and none makes a latency longer
        timeout=TIMEOUT,
        http_client=connection_to(url, concurrency),
    )
    # The package reads these from the environment; a spec did not name them, so they go nowhere.
    client.organization = client.project = client.admin_api_key = None
    client._custom_headers = {}  # noqa: SLF001 - there is no public way to leave out what the environment adds
    return OpenAIService(client, model, options)


class OpenAIService:
    """One model behind Chat Completions."""

    def __init__(self, client: openai.AsyncOpenAI, model: str, options: PromptOptions) -> None:
        self._client = client
        self._model = model
        self._options = options

    async def ask(self, conversation: Conversation, parameters: Parameters) -> AgentResponse:
        """Return the model's answer."""
        system = [{"role": "system", "content": conversation.system}] if conversation.system else []
        said = [{"role": message.role, "content": message.content} for message in conversation.messages]
        extra: dict[str, Any] = {**self._options.extra, parameters.token_field: self._options.max_tokens}
        if parameters.temperature is not None:
            extra["temperature"] = parameters.temperature
        messages: Any = [*system, *said]
        try:
            reply = await self._client.chat.completions.with_raw_response.create(
                model=self._model, messages=messages, extra_body=extra
            )
        except openai.APIStatusError as problem:
            raise failure_of(problem, problem.status_code, problem.response) from None
        except openai.APIConnectionError as problem:
            raise failure_of(problem, None, None) from None
        return read_completion(reply.http_response.content, reply.headers.get("x-request-id", ""))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def read_completion(body: bytes, request_id: str) -> AgentResponse:
    """Return the answer that a reply of Chat Completions holds.

    Raises:
        MalformedAnswerError: It holds none.
        AnswerTooLargeError: It is too large.
    """
    data = read_json(body)
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise MalformedAnswerError(f"the reply holds no message of a model: {excerpt(body)}")
    content = message.get("content")
    response = read_answer(
        {
            "text": text_of_parts(content) if isinstance(content, list) else content,
            "tool_calls": _tool_calls(message.get("tool_calls")),
            "usage": _usage(data.get("usage")),
            "finish_reason": choice.get("finish_reason"),
            "model": data.get("model"),
        },
        request_id,
    )
    refusal = message.get("refusal")
    match response.finish_reason:
        case _ if isinstance(refusal, str) and refusal:
            said = dataclasses.replace(response, text=response.text or clean_text(refusal))
            return failed_as(said, REFUSAL, f"the model refused to answer: {clean_text(refusal)[:500]}")
        case "content_filter":
            return failed_as(response, REFUSAL, "the provider's content filter held the answer back")
        case "length":
            return failed_as(response, TRUNCATED, "the answer was cut off at max_tokens: raise agent.max_tokens")
        case "abort" | "error":
            # Words of vLLM and of gateways, which have sent their 200 by then.
            return failed_as(response, TRUNCATED, f"the service broke the answer off{_reason(choice.get('error'))}")
    return complete(response)


def _reason(error: object) -> str:
    said = error.get("message") if isinstance(error, dict) else error
    return f": {clean_text(said)[:500]}" if isinstance(said, str) and said else ""


def _tool_calls(value: object) -> list[dict[str, Any]]:
    calls = []
    for call in value if isinstance(value, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            # A text is whatever the model wrote in place of JSON; some local servers send the value itself.
            key = "arguments_json" if isinstance(arguments, str) else "arguments"
            calls.append({"id": call.get("id"), "name": function.get("name"), key: arguments})
    return calls


def _usage(usage: object) -> dict[str, int] | None:
    # Cached tokens are part of the input and reasoning is part of the output here, as in an answer's usage.
    return tokens(
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        total_tokens=count(usage, "total_tokens"),
        cache_read_tokens=count(usage, "prompt_tokens_details", "cached_tokens"),
        cache_write_tokens=count(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens=count(usage, "completion_tokens_details", "reasoning_tokens"),
    )
