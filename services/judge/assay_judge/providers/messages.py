"""What every provider of models is to the rest of the judge."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from assay.model.agent_response import clean_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOKEN_FIELDS = ("max_tokens", "max_completion_tokens")
_UNKNOWN_WORDS = ("unsupported", "not supported", "unrecognized", "unknown", "not permitted", "unexpected", "invalid")
_FORM_WORDS = ("response_format", "json_schema", "output_config", "output_format", "json_object", "guided")
_HOPELESS = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_RETRYABLE = frozenset({408, 409, 425})
_MESSAGE_CHARS = 500
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
"""What a reply has that came in a batch."""


class ProviderStatusError(Exception):
    """The service answered with an HTTP error.

    Args:
        status: The HTTP status.
        headers: The reply's headers, by lower-case name.
        body: What was decoded from the reply: usually a mapping with `error`.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers
        inner = body.get("error", body) if isinstance(body, dict) else body
        error: dict[str, Any] = inner if isinstance(inner, dict) else {}
        said = str(error.get("message", error.get("detail", "" if error else inner)) or "")
        self.message = clean_text(" ".join(said.split()))[:_MESSAGE_CHARS]
        self.words = {str(error.get(name) or "") for name in ("type", "code")}
        self.parameter = str(error.get("param") or "")

    @property
    def throttles(self) -> bool:
        """Whether the same request is welcome later."""
        return self.status == 429 and not self.words & _HOPELESS

    @property
    def may_pass(self) -> bool:
        """Whether another attempt may succeed."""
        advice = self.headers.get("x-should-retry", "")
        if advice in ("true", "false") and not self.throttles:
            return advice == "true"
        return self.throttles or self.status in _RETRYABLE or self.status >= 500


class UnreachableError(Exception):
    """The service did not answer; `sent` says whether it may have worked on the request, and bill it."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class MalformedReplyError(Exception):
    """What the service answered is no answer."""


class Stop(StrEnum):
    """Why a model stopped."""

    COMPLETE = "complete"
    REFUSED = "refused"
    TRUNCATED = "truncated"


class Form(StrEnum):
    """How a model is made to answer in the form of a verdict; each is for services that refuse the one before."""

    SCHEMA = "schema"
    OBJECT = "object"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a call counted, inclusive: cached tokens are part of the input, thoughts are part of the output.

    `estimated` ones are Assay's own, see `token_usage`.
    """

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply.

    Args:
        text: All of it but its thoughts.
        stop: Why it stopped.
        tokens: What it counted; None where the service does not say.
        model: The model as it names itself.
        headers: The reply's headers, by lower-case name.
    """

    text: str
    stop: Stop = Stop.COMPLETE
    tokens: Tokens | None = None
    model: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a request, some of which a service may refuse.

    Args:
        max_tokens: Most tokens of the reply.
        temperature: Sampling temperature; None where it is not sent.
        form: How the reply's form is enforced.
        token_field: What OpenAI's protocol calls max_tokens: old services know only that name, new models only
            max_completion_tokens.
        swapped: Whether the other name has been tried.
    """

    max_tokens: int
    temperature: float | None = None
    form: Form = Form.SCHEMA
    token_field: str = _TOKEN_FIELDS[0]
    swapped: bool = False

    def without_refused(self, refusal: ProviderStatusError) -> Parameters | None:
        """Return other parameters where a refusal names one of these, else None."""
        if refusal.status not in (400, 422):
            return None
        said = f"{refusal.parameter} {refusal.message}".lower()
        if self.temperature is not None and "temperature" in said:
            return dataclasses.replace(self, temperature=None)
        if self.form is not Form.WORDS and any(word in said for word in _FORM_WORDS):
            forms = list(Form)
            return dataclasses.replace(self, form=forms[forms.index(self.form) + 1])
        is_unknown = "unsupported_parameter" in refusal.words or any(word in said for word in _UNKNOWN_WORDS)
        if is_unknown and self.token_field in said and not self.swapped:
            other = _TOKEN_FIELDS[self.token_field == _TOKEN_FIELDS[0]]
            return dataclasses.replace(self, token_field=other, swapped=True)
        return None


def text_of_parts(parts: list[Any]) -> str:
    """Return the text of a message that comes in parts; thoughts, and parts of other kinds, are no text of it."""
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def token_count(data: object, *path: str) -> int | None:
    """Return the number of tokens at a path of a reply; None where there is no such number."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, int) and not isinstance(data, bool) and data >= 0 else None
