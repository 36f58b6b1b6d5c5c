"""Parameters that a model may refuse: their replacements, and those left out from then on."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from assay.providers.errors import ProviderStatusError

_TOKEN_FIELDS = ("max_tokens", "max_completion_tokens")
_UNKNOWN_CODES = ("unsupported_parameter", "unsupported_value", "unknown_parameter")
_UNKNOWN_WORDS = ("unsupported", "not support", "unrecognized", "unknown", "not permitted", "not allowed", "unexpected",
                  "deprecated", "invalid parameter", "invalid field",
                  # of models that take no value but their own
                  "only the default", "only 1 ", "only be set to 1")  # fmt: skip
_NEIGHBOURS = 4
_ESCAPES = re.compile(r"\\+(?:u[0-9a-f]{4}|x[0-9a-f]{2}|[nrtbf])|&#?[0-9a-z]{1,8};|%[0-9a-f]{2}")
_OTHERS = re.compile(r"[^0-9a-z]+")


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

    def without_refused(self, refusal: ProviderStatusError, request_text: str) -> Self | None:
        """Return replacement parameters if a refusal rejects one of these; otherwise None.

        A parameter that the model takes, with a wrong value, stays: that is the user's to correct.

        Args:
            refusal: The service's error.
            request_text: All texts of the refused request, which the error may quote.
        """
        if self.temperature is not None and refuses(refusal, "temperature", request_text):
            return dataclasses.replace(self, temperature=None)
        if not self.swapped and refuses(refusal, self.token_field, request_text):
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
    """The parameters that a model has refused, so that later requests leave them out."""

    def __init__(self) -> None:
        self._changes: dict[str, Any] = {}

    def apply(self, wanted: _P) -> _P:
        """Return the parameters without those that the model is known to refuse."""
        return dataclasses.replace(wanted, **self._changes)

    def learn(self, wanted: Parameters, accepted: Parameters) -> list[str]:
        """Remember the changes that got a request answered; return the names of new ones.

        Call it after the changed request has succeeded, never on a refusal alone: a refusal for another reason may
        quote the request and name any parameter. Requests that were in flight together each add their own.
        """
        values = {field.name: getattr(accepted, field.name) for field in dataclasses.fields(accepted)}
        new = {
            name: value
            for name, value in values.items()
            if value != getattr(wanted, name) and self._changes.get(name, getattr(wanted, name)) != value
        }
        self._changes |= new
        return list(new)


def refuses(refusal: ProviderStatusError, field: str, request_text: str) -> bool:
    """Return whether a refusal says that the model or the service does not support a field of the request."""
    is_unknown = refusal.code in _UNKNOWN_CODES or says_any(refusal, _UNKNOWN_WORDS, request_text)
    # Where the service says which field it means, its sentence need not be searched for one.
    is_named = refusal.parameter == field if refusal.parameter else says_any(refusal, (field,), request_text)
    return refusal.may_refuse_field and is_unknown and is_named


def says_any(refusal: ProviderStatusError, words: Iterable[str], request_text: str) -> bool:
    """Return whether a refusal's message contains one of some words outside anything it quotes from the request.

    Services quote prompts in their errors, and a prompt may hold any word: an answer that reads "the temperature is
    not supported" must not change how later answers are judged. A place is taken for a quotation where the word,
    together with the letters directly before or after it, stands in the request too.

    Args:
        refusal: The service's error.
        words: In lower case.
        request_text: All texts of the refused request.
    """
    message, sent = refusal.message.lower(), None
    for word in words:
        for match in re.finditer(re.escape(word), message):
            sent = _letters(request_text) if sent is None else sent
            core = _letters(word)
            before = _letters(message[: match.start()])[-_NEIGHBOURS:]
            after = _letters(message[match.end() :])[:_NEIGHBOURS]
            pieces = [before + core] * bool(before) + [core + after] * bool(after)
            if not any(piece in sent for piece in pieces or [core]):
                return True
    return False


def _letters(text: str) -> str:
    """Return the ASCII letters and digits of a text, so that escapes, spaces and quotation marks hide no quotation."""
    return _OTHERS.sub("", _ESCAPES.sub("", unicodedata.normalize("NFKC", text).lower()))
