"""Requests and replies of the Chat Completions protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.agent_response import clean_text
from assay_judge.providers.messages import (
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
    from collections.abc import Mapping

    from assay_judge.model import Prompt
    from assay_judge.providers.messages import Parameters

_STOPS = {"length": Stop.TRUNCATED, "content_filter": Stop.REFUSED}


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


def reply_from_completion(data: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> Reply:
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
