"""What the two providers of models have in common: parameters, failures, and a connection that trusts nobody."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.agent_response import AgentResponse
    from assay_orchestrator.agents.prompt_template import Conversation

_TOKEN_FIELDS = ("max_tokens", "max_completion_tokens")
_UNKNOWN_CODES = ("unsupported_parameter", "unsupported_value", "unknown_parameter")
_UNKNOWN_WORDS = ("unsupported", "not support", "unrecognized", "unknown", "not permitted", "not allowed", "unexpected",
                  "deprecated")  # fmt: skip


class ProviderStatusError(Exception):
    """The service answered with an HTTP error.

    Args:
        status: The HTTP status.
        headers: The reply's headers.
        body: What was decoded from the reply: usually a mapping with `error`.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers
        inner = body.get("error", body) if isinstance(body, dict) else body
        error: dict[str, Any] = inner if isinstance(inner, dict) else {}
        self.message = str(error.get("message", error.get("detail", inner or body)) or "")
        self.type = str(error.get("type") or "")
        self.code = str(error.get("code") or "")
        self.parameter = str(error.get("param") or "")


class UnreachableError(Exception):
    """The service cannot be reached, or the connection broke; `type` names the exception behind it."""

    def __init__(self, message: str, type: str) -> None:  # noqa: A002 - the name that it has in an AgentError
        super().__init__(message)
        self.type = type


@dataclass(frozen=True, slots=True)
class Parameters:
    """What of a request may turn out not to be accepted.

    Args:
        temperature: Sampling temperature; None where it is not sent.
        token_field: What OpenAI's protocol calls the limit of tokens: old services know only `max_tokens`, new
            models only `max_completion_tokens`.
        swapped: Whether the other name has been tried.
    """

    temperature: float | None
    token_field: str = _TOKEN_FIELDS[0]
    swapped: bool = False

    def without_refused(self, refusal: ProviderStatusError) -> Parameters | None:
        """Return other parameters where a refusal names one of these, else None."""
        if refusal.status != 400:
            return None
        said = refusal.message.lower()
        if refusal.code not in _UNKNOWN_CODES and not any(word in said for word in _UNKNOWN_WORDS):
            # It is known, and its value is wrong: that is the spec's to mend.
            return None
        if self.temperature is not None and _names("temperature", refusal, said):
            return dataclasses.replace(self, temperature=None)
        if not self.swapped and _names(self.token_field, refusal, said):
            other = _TOKEN_FIELDS[self.token_field == _TOKEN_FIELDS[0]]
            return dataclasses.replace(self, token_field=other, swapped=True)
        return None


def _names(field: str, refusal: ProviderStatusError, said: str) -> bool:
    # Where the service says which field it means, its sentence may quote the prompt, which may hold any word.
    return refusal.parameter == field if refusal.parameter else field in said


class Service(Protocol):
    """One model of one provider."""

    async def ask(self, conversation: Conversation, parameters: Parameters) -> AgentResponse:
        """Return the model's answer.

        Raises:
            ProviderStatusError: The service answered with an HTTP error.
            UnreachableError: It did not answer.
            MalformedAnswerError: What it answered is no answer.
            AnswerTooLargeError: It answered more than an answer may hold.
        """

    async def aclose(self) -> None:
        """Close the connections."""
