"""Chat Completions, OpenAI's protocol and that of most local servers, through the official package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from assay.answers import clean_text
from assay_judge.providers.connection import TIMEOUT, connection_to, failure_of, headers_of, read_object
from assay_judge.providers.protocol import Form, MalformedReplyError, Reply, Stop, Tokens, token_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay_judge.prompting import Prompt
    from assay_judge.providers.protocol import Parameters

__all__ = ["OpenAIProvider", "connect"]

_STOPS = {"length": Stop.TRUNCATED, "content_filter": Stop.REFUSED}


def connect(url: str, key: str, concurrency: int) -> OpenAIProvider:
    """Return a service of OpenAI's protocol.

    Args:
        url: The service, up to and without /chat/completions.
        key: The key; anything where the service wants none.
        concurrency: Most calls at once.
    """
    client = openai.AsyncOpenAI(
        api_key=key,
        base_url=url,
        max_retries=0,  # attempts are ours, so that each is counted and paid for knowingly
        timeout=TIMEOUT,
        http_client=connection_to(url, concurrency),
    )
    # The package reads these from the environment; nobody asked for them, so they go nowhere.
    client.organization = client.project = client.admin_api_key = None
    client._custom_headers = {}  # noqa: SLF001 - there is no public way to leave out what the environment adds
    return OpenAIProvider(client)


class OpenAIProvider:
    """One service of OpenAI's protocol."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client

    async def ask(self, model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: Parameters) -> Reply:
        """Return what a model says."""
        messages: Any = [
            {"role": "system", "content": f"{prompt.system}\n\n{prompt.call}"},
            {"role": "user", "content": prompt.user},
        ]
        extra: dict[str, Any] = {parameters.token_field: parameters.max_tokens}
        if parameters.temperature is not None:
            extra["temperature"] = parameters.temperature
        if parameters.form is Form.SCHEMA:
            named = {"name": "verdict", "strict": True, "schema": schema}
            extra["response_format"] = {"type": "json_schema", "json_schema": named}
        elif parameters.form is Form.OBJECT:
            extra["response_format"] = {"type": "json_object"}
        try:
            reply = await self._client.chat.completions.with_raw_response.create(
                model=model, messages=messages, extra_body=extra
            )
        except openai.APIStatusError as problem:
            raise failure_of(problem, problem.status_code, problem.response) from None
        except openai.APIConnectionError as problem:
            raise failure_of(problem, None, None) from None
        return _reply(reply.http_response.content, headers_of(reply.http_response))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def _reply(body: bytes, headers: Mapping[str, str]) -> Reply:
    data = read_object(body)
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise MalformedReplyError("the reply does not hold one message of a model")
    content, refusal = message.get("content"), message.get("refusal")
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


def _tokens(usage: object) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    return Tokens(
        token_count(usage, "prompt_tokens"),
        token_count(usage, "completion_tokens"),
        token_count(usage, "prompt_tokens_details", "cached_tokens"),
        token_count(usage, "prompt_tokens_details", "cache_write_tokens"),
        token_count(usage, "completion_tokens_details", "reasoning_tokens"),
    )
