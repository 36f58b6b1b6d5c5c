"""What a provider's refusals are to the person who reads a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.agent_response import AgentErrorKind, clean_text, error_response
from assay.providers.retry_after import retry_after_s

if TYPE_CHECKING:
    from assay.model.agent_response import AgentResponse
    from assay_orchestrator.agents.provider import ProviderStatusError

_RETRYABLE_STATUSES = frozenset({408, 425, 429})
_HOPELESS_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_MESSAGE_CHARS = 500


def refused_status(refusal: ProviderStatusError, model: str, url: str, key_name: str | None) -> AgentResponse:
    """Return the failure that an HTTP error of a provider is.

    Args:
        refusal: The error.
        model: The model that was asked for.
        url: The service.
        key_name: The key's variable as the spec writes it; None where no key was sent.
    """
    status = refusal.status
    said = clean_text(" ".join(refusal.message.split()))[:_MESSAGE_CHARS] or "(no explanation)"
    match status:
        case 401 | 403 if key_name is None:
            what = "the service wants a key and none was sent: name its variable with api_key: ${NAME}"
        case 401 | 403:
            what = f"the service does not accept the key in {key_name}"
        case 404:
            what = f"model {model!r} is not available at {url}: check agent.target and agent.base_url"
        case _ if 300 <= status < 400:
            what = "the service redirects, which is not followed: use its final URL as base_url"
        case _:
            what = ""
    request_id = refusal.headers.get("x-request-id") or refusal.headers.get("request-id") or ""
    told = f", request {clean_text(request_id)[:100]}" if request_id else ""
    return error_response(
        AgentErrorKind.HTTP_STATUS,
        f"HTTP {status}{told}: {what + ': ' if what else ''}{said}",
        type=clean_text(refusal.code or refusal.type)[:200],
        http_status=status,
        retryable=_may_pass(refusal),
        retry_after_s=retry_after_s(refusal.headers),
    )


def _may_pass(refusal: ProviderStatusError) -> bool:
    if refusal.code in _HOPELESS_CODES or refusal.type in _HOPELESS_CODES:
        return False
    said = refusal.headers.get("x-should-retry", "")
    if said in ("true", "false"):
        return said == "true"
    return refusal.status in _RETRYABLE_STATUSES or refusal.status >= 500
