"""From what a model said to an answer: refusals, texts that were cut off and silence are told apart from answers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from assay.model.agent_response import AgentError, AgentErrorKind, AgentStatus, clean_text, response_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.model.agent_response import AgentResponse

REFUSAL = "refusal"
TRUNCATED = "truncated"
_EMPTY = "empty"


def read_answer(found: Mapping[str, Any], request_id: str) -> AgentResponse:
    """Return the answer with these fields, cleaned and checked.

    Args:
        found: Fields of an answer as JSON.
        request_id: The provider's id of the request, empty where there is none.

    Raises:
        MalformedAnswerError: A field has another type than it should.
    """
    metadata = {"request_id": clean_text(request_id)[:200]} if request_id else {}
    return response_from_json({**found, "metadata": metadata})


def failed_as(response: AgentResponse, failure: str, message: str) -> AgentResponse:
    """Return the answer as one that failed; what the model said is kept, asking again would not help.

    Args:
        response: What the model said.
        failure: "refusal", "truncated" or "empty": the error's type.
        message: A sentence for people.
    """
    error = AgentError(AgentErrorKind.RAISED, message, type=failure)
    return dataclasses.replace(response, status=AgentStatus.ERROR, error=error)


def complete(response: AgentResponse) -> AgentResponse:
    """Return an answer that the model ended by itself: it failed if there is neither text nor a call of a tool."""
    if response.text.strip() or response.tool_calls:
        return response
    reason = f" (it stopped with {response.finish_reason[:100]!r})" if response.finish_reason else ""
    return failed_as(response, _EMPTY, f"the model answered without a word{reason}")


def text_of_parts(parts: Iterable[object]) -> str:
    """Return the joined texts of the parts of a message that are text, thoughts left out."""
    return "".join(
        part["text"]
        for part in parts
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )


def count(data: object, *path: str) -> int | None:
    """Return the number of tokens at a path of a reply, None where there is no such number."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, int) and not isinstance(data, bool) and data >= 0 else None


def tokens(**counts: int | None) -> dict[str, int] | None:
    """Return usage with what is known of it, None where nothing is."""
    known = {name: number for name, number in counts.items() if number is not None}
    return {**known, "requests": 1} if known else None
