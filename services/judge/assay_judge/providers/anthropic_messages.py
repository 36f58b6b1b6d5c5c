"""Requests and replies of the Messages protocol."""

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

_STOPS = {
    "refusal": Stop.REFUSED,
    "max_tokens": Stop.TRUNCATED,
    "model_context_window_exceeded": Stop.TRUNCATED,
    "pause_turn": Stop.TRUNCATED,
}


def message_request(model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: Parameters) -> dict[str, Any]:
    """Return a request for a message, as the protocol has it."""
    request: dict[str, Any] = {
        "model": model,
        "max_tokens": parameters.max_tokens,
        "messages": [{"role": "user", "content": prompt.user}],
        "system": [
            # The part that all calls by a rubric share is read from the provider's cache after the first one.
            {"type": "text", "text": prompt.system, "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": prompt.call},
        ],
    }
    if parameters.temperature is not None:
        # The package has no argument for it any more; the protocol still has the field.
        request["temperature"] = parameters.temperature
    if parameters.form is Form.SCHEMA:
        request["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return request


def reply_from_message(data: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """Return what a message of a model says.

    Raises:
        MalformedReplyError: It is none.
    """
    content, finish, model = data.get("content"), data.get("stop_reason"), data.get("model")
    if not isinstance(content, list):
        raise MalformedReplyError("the reply does not hold a message of a model")
    return Reply(
        clean_text(text_of_parts(content)),
        _STOPS.get(finish, Stop.COMPLETE) if isinstance(finish, str) else Stop.COMPLETE,
        _tokens(data.get("usage")),
        clean_text(model)[:200] if isinstance(model, str) else "",
        headers,
    )


def _tokens(usage: object) -> Tokens | None:
    fresh, said = token_count(usage, "input_tokens"), token_count(usage, "output_tokens")
    if fresh is None or said is None:
        return None
    read = token_count(usage, "cache_read_input_tokens") or 0
    written = token_count(usage, "cache_creation_input_tokens") or 0
    return Tokens(
        # The protocol counts cached tokens beside the input.
        fresh + read + written,
        said,
        read,
        written,
        min(token_count(usage, "output_tokens_details", "thinking_tokens") or 0, said),
    )
