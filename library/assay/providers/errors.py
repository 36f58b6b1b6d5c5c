"""The errors of calls to providers, shared by agents and judges.

ProviderStatusError     the service answered with an HTTP error
UnreachableError        the service did not answer
MalformedReplyError     the service answered something that is no reply of a model
└── ReplyTooLargeError  more of it than is read
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.model.answers.response_fields import clean_text
from assay.model.answers.retrying import is_hopeless_code, is_retryable_status

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELD_STATUSES = (400, 422)  # the latter is FastAPI's, on which many compatible services are built
_MESSAGE_CHARS = 500
_ERROR_STATUSES = {
    # Anthropic's types, which OpenAI's share in part, and OpenAI's codes.
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class ProviderStatusError(Exception):
    """The service answered with an HTTP error.

    Args:
        status: The HTTP status.
        headers: The reply's headers, by lower-case name.
        body: What was decoded from the reply: usually a mapping with `error`.

    Attributes:
        message: The service's words, in one line of at most 500 characters; untrusted text, empty where it said none.
        type, code: The service's own names for the error; empty where there are none.
        parameter: The field of the request that the service names; empty where it names none.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers
        inner = body.get("error", body) if isinstance(body, dict) else body
        error: dict[str, Any] = inner if isinstance(inner, dict) else {}
        detail = error.get("detail")
        message = str(error.get("message") or detail or inner or "")
        self.message = clean_text(" ".join(message.split()))[:_MESSAGE_CHARS]
        self.type = str(error.get("type") or "")
        self.code = str(error.get("code") or "")
        self.parameter = str(error.get("param") or _invalid_field(detail))

    @property
    def may_refuse_field(self) -> bool:
        """Whether the refusal may be of one field of the request."""
        return self.status in _FIELD_STATUSES

    @property
    def throttles(self) -> bool:
        """Whether the same request may be accepted later."""
        return self.status == 429 and self.may_pass

    @property
    def may_pass(self) -> bool:
        """Whether another attempt may succeed."""
        if is_hopeless_code(self.code) or is_hopeless_code(self.type):
            return False
        advice = self.headers.get("x-should-retry", "")
        if advice in ("true", "false"):
            return advice == "true"
        return is_retryable_status(self.status) or self.status < 300


class UnreachableError(Exception):
    """The service did not answer.

    Args:
        message: What happened.
        type: Name of the exception behind it; empty where there is none.
        sent: Whether the service may have worked on the request, and bill it.
        may_pass: Whether another attempt may succeed.
    """

    def __init__(
        self,
        message: str,
        *,
        type: str = "",  # noqa: A002 - as in an AgentError
        sent: bool,
        may_pass: bool = True,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.sent = sent
        self.may_pass = may_pass


class MalformedReplyError(Exception):
    """The service's answer is not a model's reply."""


class ReplyTooLargeError(MalformedReplyError):
    """The service's answer exceeds the limit."""


def error_without_status(body: object, headers: Mapping[str, str]) -> ProviderStatusError:
    """Return the HTTP error that corresponds to an error inside a reply, such as in a stream or a batch.

    Args:
        body: What the service says, usually a mapping with `error`; HTTP 500 where it names no known kind of error.
        headers: The headers of the reply that it came in.
    """
    refusal = ProviderStatusError(500, headers, body)
    if re.fullmatch("[45][0-9]{2}", refusal.code):  # as gateways have it
        refusal.status = int(refusal.code)
    else:
        refusal.status = _ERROR_STATUSES.get(refusal.code) or _ERROR_STATUSES.get(refusal.type) or 500
    return refusal


def _invalid_field(detail: object) -> str:
    """Return the field that FastAPI's list of errors is about first, e.g. "temperature"; empty for anything else."""
    first = detail[0] if isinstance(detail, list) and detail else None
    place = first.get("loc") if isinstance(first, dict) else None
    names = [name for name in place if isinstance(name, str) and name != "body"] if isinstance(place, list) else []
    return names[0] if names else ""
