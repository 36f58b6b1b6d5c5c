"""Turns a provider's reply into an answer: refusals, truncated texts and empty replies are failures."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentStatus,
    clean_text,
    error_response,
    response_from_json,
)
from assay.model.answers.response_limits import check_bounds
from assay.providers.hosted_tools import is_hosted
from assay.providers.messages import Stop
from assay.providers.prices import cost_of
from assay.providers.retry_after import retry_after_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.model_price import ModelPrice
    from assay.providers.errors import ProviderStatusError
    from assay.providers.messages import Reply, TokenUsage

_STOPPED = {
    Stop.REFUSED: ("refusal", "the model refused to answer"),
    Stop.FILTERED: ("refusal", "the provider's content filter withheld the answer"),
    Stop.TRUNCATED: ("truncated", "the answer was cut off at max_tokens: raise agent.max_tokens"),
    Stop.CONTEXT_FULL: ("truncated", "the answer was cut off at the end of the model's context window"),
    Stop.PAUSED: ("truncated", "the provider paused the turn before the answer was complete"),
    Stop.BROKEN_OFF: ("truncated", "the service broke the answer off"),
}

_FILTERED_CODES = frozenset({"content_filter", "content_policy_violation"})
"""Codes of services that refuse a question for its content."""


def response_from_reply(reply: Reply, temperature: float | None, price: ModelPrice | None = None) -> AgentResponse:
    """Return the answer in a model's reply; if the reply is incomplete, a failed answer with its text.

    Args:
        reply: The reply.
        temperature: The temperature that was sent; None if none was.
        price: The price of the model; None if unknown.

    Raises:
        MalformedAnswerError: A field has the wrong type.
        AnswerTooLargeError: It exceeds the size of an answer.
    """
    request_id = _request_id(reply.headers)
    fields = {
        "text": reply.text,
        "tool_calls": list(reply.tool_calls),
        "sources": list(reply.citations),
        "usage": _usage(reply.tokens, price),
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "time_to_first_token_ms": None if reply.first_text_s is None else reply.first_text_s * 1000,
        "metadata": {**({"request_id": request_id} if request_id else {}), "temperature": temperature},
        **({"status": "interrupted", "interrupts": list(reply.waits)} if reply.waits else {}),
    }
    check_bounds(fields)
    response = response_from_json(fields)
    if reply.stop in _STOPPED:
        kind, message = _STOPPED[reply.stop]
        return _failed(response, kind, f"{message}: {reply.explanation}" if reply.explanation else message)
    if response.text.strip() or response.is_failed or not all(map(is_hosted, reply.tool_calls)):
        return response
    reason = f" (it stopped with {reply.finish_reason[:100]!r})" if reply.finish_reason else ""
    return _failed(response, "empty", f"the model returned an empty answer{reason}")


def refused_status(refusal: ProviderStatusError, model: str, url: str, key_names: str) -> AgentResponse:
    """Return the failure for an HTTP error of a provider.

    Args:
        refusal: The error.
        model: The requested model.
        url: The service.
        key_names: The key's variables as the spec writes them; empty if no key was sent.
    """
    status = refusal.status
    match status:
        case 401 | 403 if not key_names:
            hint = "the service needs a key and none was sent: name its variable with api_key: ${NAME}"
        case 401 | 403:
            hint = f"the service does not accept the key in {key_names}"
        case 404:
            hint = f"model {model!r} is not available at {url}: check agent.target and agent.base_url"
        case 301 | 302 | 303 | 307 | 308:
            hint = "the service redirects, which is not followed: use its final URL as base_url"
        case _:
            hint = ""
    request_id = _request_id(refusal.headers)
    named = f", request {request_id[:100]}" if request_id else ""
    if refusal.code in _FILTERED_CODES:
        # A filter before the model counts like one after it: either way the request was refused.
        kind, message = _STOPPED[Stop.FILTERED]
        failure = message.replace("answer", "question")
        failure += f" (HTTP {status}{named}): {refusal.message or '(no explanation)'}"
        return error_response(AgentErrorKind.RAISED, failure, type=kind, http_status=status)
    return error_response(
        AgentErrorKind.HTTP_STATUS,
        f"HTTP {status}{named}: {hint + ': ' if hint else ''}{refusal.message or '(no explanation)'}",
        type=clean_text(refusal.code or refusal.type)[:200],
        http_status=status,
        retryable=refusal.may_pass,
        retry_after_s=retry_after_s(refusal.headers),
    )


def _failed(response: AgentResponse, kind: str, message: str) -> AgentResponse:
    """Return the answer as failed; it keeps the model's text, and asking again would not help."""
    error = AgentError(AgentErrorKind.RAISED, message, type=kind)
    return dataclasses.replace(response, status=AgentStatus.ERROR, error=error)


def _request_id(headers: Mapping[str, str]) -> str:
    return clean_text(headers.get("x-request-id") or headers.get("request-id") or "")[:200]


def _usage(tokens: TokenUsage | None, price: ModelPrice | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    counts = {f"{name}_tokens": count for name, count in dataclasses.asdict(tokens).items() if count is not None}
    return {**counts, "requests": 1, "cost_usd": None if price is None else cost_of(price, tokens)}
