"""The requests and replies of a scripted provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tokens:
    """The usage of a reply, inclusive: cached tokens are part of the input, reasoning is part of the output."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the provider.

    Args:
        text: What the model says, or the message of an HTTP error.
        stop: Why the model stopped: "stop", "length", "tool_calls", "content_filter", or a protocol's own word.
        status: The HTTP status; other than 200 the reply is an error of the protocol.
        headers: Further headers.
        usage: Tokens; None leaves usage out, as local servers do.
        raw_usage: Any value in place of usage.
        thinking: Thoughts, which are no part of the answer.
        tool_calls: Names and arguments of tools that the model calls.
        cites: URLs and titles of the web pages that the text cites.
        error: Further fields of an error, e.g. {"param": "temperature"}.
        raw: The body as it is, in place of all that.
        cut: Whether the connection is closed in the middle of the body.
        delay_s: How long the answer takes, in seconds; a provider that is closed lets go at once.
        drip_s: Pause after every byte of the body, in seconds.
        twice: Whether the whole reply is sent a second time, which no request asked for.
    """

    text: str = ""
    stop: str = "stop"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: Tokens | None = None
    raw_usage: Any = ...
    thinking: str = ""
    tool_calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    cites: Sequence[tuple[str, str]] = ()
    error: Mapping[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    cut: bool = False
    delay_s: float = 0.0
    drip_s: float = 0.0
    twice: bool = False


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One received request; header names are lower-case."""

    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def question(self) -> str:
        """The last message."""
        messages = self.body["input"] if "input" in self.body else self.body["messages"]
        return str(messages[-1]["content"])

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of the reply, by whichever name; None where the request does not say."""
        names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
        body = self.body if isinstance(self.body, dict) else {}
        return next((body[name] for name in names if isinstance(body.get(name), int)), None)

    @property
    def wants_stream(self) -> bool:
        """Whether the reply is to be streamed."""
        return isinstance(self.body, dict) and self.body.get("stream") is True
