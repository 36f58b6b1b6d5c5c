"""Parameters that a model may refuse: what is sent instead, and what is left out from then on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing import Self

    from assay.providers.errors import ProviderStatusError

_TOKEN_FIELDS = ("max_tokens", "max_completion_tokens")
_UNKNOWN_CODES = ("unsupported_parameter", "unsupported_value", "unknown_parameter")
_UNKNOWN_WORDS = ("unsupported", "not support", "unrecognized", "unknown", "not permitted", "not allowed", "unexpected",
                  "deprecated", "invalid parameter", "invalid field",
                  # of models that take no value but their own
                  "only the default", "only 1 ", "only be set to 1")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a request, some of which a service may refuse.

    Args:
        max_tokens: Most tokens of the reply.
        temperature: Sampling temperature; None where it is not sent.
        token_field: What OpenAI's protocol calls max_tokens, see `token_field_of`.
        swapped: Whether the other name has been tried.
    """

    max_tokens: int
    temperature: float | None = None
    token_field: str = _TOKEN_FIELDS[0]
    swapped: bool = False

    def without_refused(self, refusal: ProviderStatusError) -> Self | None:
        """Return other parameters where a refusal says that the model does not take one of these, else None.

        A parameter that the model takes, with a wrong value, stays: that is the user's to correct.
        """
        if self.temperature is not None and refuses(refusal, "temperature"):
            return dataclasses.replace(self, temperature=None)
        if not self.swapped and refuses(refusal, self.token_field):
            other = _TOKEN_FIELDS[self.token_field == _TOKEN_FIELDS[0]]
            return dataclasses.replace(self, token_field=other, swapped=True)
        return None


def token_field_of(base_url: str | None) -> str:
    """Return the name of max_tokens that a service is likely to know.

    OpenAI's new models know only `max_completion_tokens`; many other services know only the older name.

    Args:
        base_url: The service; empty or None for the provider's own.
    """
    return _TOKEN_FIELDS[0] if base_url else _TOKEN_FIELDS[1]


_P = TypeVar("_P", bound=Parameters)


class LearnedParameters:
    """What one model was found to refuse, so that later requests need not be refused for it."""

    def __init__(self) -> None:
        self._changes: dict[str, Any] = {}

    def apply(self, wanted: _P) -> _P:
        """Return the parameters without what the model is known to refuse."""
        return dataclasses.replace(wanted, **self._changes)

    def learn(self, sent: Parameters, adapted: Parameters) -> None:
        """Remember what a refusal changed; requests that were in flight together each add their own."""
        for field in dataclasses.fields(adapted):
            value = getattr(adapted, field.name)
            if value != getattr(sent, field.name):
                self._changes[field.name] = value


def refuses(refusal: ProviderStatusError, field: str) -> bool:
    """Return whether a refusal says that the model, or the service, does not know a field of the request."""
    said = refusal.message.lower()
    is_unknown = refusal.code in _UNKNOWN_CODES or any(word in said for word in _UNKNOWN_WORDS)
    # Where the service says which field it means, its sentence may quote the prompt, which may hold any word.
    is_named = refusal.parameter == field if refusal.parameter else field in said
    return refusal.may_refuse_field and is_unknown and is_named
