"""Requests to a model and its replies, in the terms that both protocols share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from assay.model.answers.possible_usage import possible_tokens
from assay.model.answers.response_fields import clean_text
from assay.model.answers.usage_names import output_with_thoughts, read_counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.model.answers.agent_request import Message
    from assay.providers.parameters import Parameters

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
"""What a reply has that came in a batch."""

_NAME_CHARS = 200
_EXPLANATION_CHARS = 500


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model.

    Args:
        model: Its id.
        messages: With the roles system, user and assistant, oldest first; the last is the user's.
        parameters: How the model is asked.
        shared_system: The beginning of the system text that many requests have in common: a protocol that lets the
            client mark it has the provider cache it. Empty for none.
        system: The rest of the system text; empty for none.
        extra: Further fields of the request, as the protocol names them.
        stream: Whether the reply is to come in pieces, while it is made.
        stream_usage: Whether a reply in pieces is asked for its usage, where the protocol leaves it out by itself.
    """

    model: str
    messages: tuple[Message, ...]
    parameters: Parameters
    shared_system: str = ""
    system: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    stream_usage: bool = True


class Stop(StrEnum):
    """Why a model stopped."""

    COMPLETE = "complete"
    REFUSED = "refused"
    FILTERED = "filtered"
    """The provider's content filter held the reply back."""
    TRUNCATED = "truncated"
    """The reply reached max_tokens."""
    CONTEXT_FULL = "context_full"
    """The reply reached the end of the model's context window."""
    PAUSED = "paused"
    """The provider paused the turn."""
    BROKEN_OFF = "broken_off"
    """The service failed after it had begun to answer."""


STOPS: Mapping[str, Stop] = MappingProxyType(
    {
        "refusal": Stop.REFUSED,
        "content_filter": Stop.FILTERED,
        "length": Stop.TRUNCATED,
        "max_tokens": Stop.TRUNCATED,
        "max_output_tokens": Stop.TRUNCATED,
        "model_context_window_exceeded": Stop.CONTEXT_FULL,
        "pause_turn": Stop.PAUSED,
        # Words of vLLM and of gateways, which have sent their 200 by then.
        "abort": Stop.BROKEN_OFF,
        "error": Stop.BROKEN_OFF,
    }
)
"""Why a model stopped by the words of all protocols, as gateways pass on those of another one; others are COMPLETE."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The usage that a service counted; None where it does not say.

    Inclusive: cached tokens are part of the input, thoughts are part of the output. No part is more than its whole.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply.

    Args:
        text: All of it but its thoughts; where the model refused without a text, its refusal.
        stop: Why it stopped.
        explanation: What the service or the model says about that; untrusted text, empty where it says nothing.
        tokens: What the service counted; None where it does not say.
        model: The model as it names itself.
        finish_reason: Why it stopped, in the protocol's own word; empty where the service does not say.
        tool_calls: Calls of tools, each with id, name, and arguments or arguments_json, and a result where the service
            ran the tool; unchecked.
        headers: The reply's headers, by lower-case name.
        first_text_s: From sending the request to the first piece of the text; None where the reply came whole.
        citations: What the model cites, or else what its searches found, each with uri, title or content; unchecked.
        has_thoughts: Whether the service sent thoughts beside the text.
        waits: Calls of tools that the service runs once a person approves, as interrupts; unchecked.
    """

    text: str
    stop: Stop = Stop.COMPLETE
    explanation: str = ""
    tokens: TokenUsage | None = None
    model: str = ""
    finish_reason: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    first_text_s: float | None = None
    citations: tuple[Mapping[str, Any], ...] = ()
    has_thoughts: bool = False
    waits: tuple[Mapping[str, Any], ...] = ()


_TEXT_PARTS = ("text", "output_text", None)


def text_of_parts(parts: Iterable[object]) -> str:
    """Return the text of a message in parts; thoughts and parts of other kinds are left out."""
    texts = (part.get("text") for part in parts if isinstance(part, dict) and part.get("type") in _TEXT_PARTS)
    return clean_text("".join(text for text in texts if isinstance(text, str)))


def text_in(value: object) -> str:
    """Return a value of a reply if it is a text; empty otherwise."""
    return clean_text(value) if isinstance(value, str) else ""


def name_in(value: object) -> str:
    """Return a model's name or another short word of a reply; empty if it is not a text."""
    return text_in(value)[:_NAME_CHARS]


def explanation_of(text: str) -> str:
    """Return a text in one line of at most 500 characters."""
    return " ".join(text.split())[:_EXPLANATION_CHARS]


def tool_call(id: object, name: object, arguments: object) -> dict[str, Any]:  # noqa: A002 - the name of the field
    """Return a call of a tool, unchecked.

    Args:
        id: The call's id.
        name: The tool's name.
        arguments: A text is what the model wrote in place of JSON, which may be none; else the value itself.
    """
    return {"id": id, "name": name, "arguments_json" if isinstance(arguments, str) else "arguments": arguments}


def tokens_in(usage: object) -> TokenUsage | None:
    """Return the usage of a reply, whichever service's names it uses; None if it counts nothing."""
    counts = read_counts(usage, _token_count) if isinstance(usage, Mapping) else {}
    given, produced, total = (counts.get(name) for name in ("input_tokens", "output_tokens", "total_tokens"))
    return token_usage(
        input=given,
        output=produced,
        total=given + produced if total is None and given and produced is not None else total,
        cache_read=counts.get("cache_read_tokens"),
        cache_write=counts.get("cache_write_tokens"),
        reasoning=counts.get("reasoning_tokens"),
    )


def _token_count(value: object, where: str) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def token_usage(
    *,
    input: int | None,  # noqa: A002 - the name of the field
    output: int | None,
    total: int | None,
    cache_read: int | None,
    cache_write: int | None,
    reasoning: int | None,
) -> TokenUsage | None:
    """Return inclusive usage with each part cut to its whole; None if nothing is known.

    A count that no call can have is not known. Thoughts that the service counts beside the output are added to it.
    """
    if output is not None:
        output = output_with_thoughts(output, input, total, reasoning)
    read = _part(cache_read, input)
    written = _part(cache_write, None if input is None else input - (read or 0))
    counts = (input, output, total, read, written, _part(reasoning, output))
    known = [possible_tokens(count) for count in counts]
    return None if all(count is None for count in known) else TokenUsage(*known)


def _part(count: int | None, whole: int | None) -> int | None:
    return count if count is None or whole is None else min(count, whole)
