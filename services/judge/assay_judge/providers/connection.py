"""The connections to the providers of judges, and what goes wrong on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2

from assay.providers.http_client import ReplyRules
from assay_judge.providers.messages import MalformedReplyError, ProviderStatusError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BATCH_CALLS_AT_ONCE = 8
_MAX_RESULTS_BYTES = 1024 * 1024 * 1024  # of a batch; they are read line by line
_EXCERPT_CHARS = 200
_NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_WEB_PAGE = "the reply is a web page and not a model's: check base_url"


def _excerpt(body: bytes) -> str:
    return ascii(body[:_EXCERPT_CHARS].decode("utf-8", "replace"))


_RULES = ReplyRules(MalformedReplyError, MalformedReplyError, _excerpt, max_body_bytes=4 * 1024 * 1024)
connection_to = _RULES.client


def wide_connection_to(url: str) -> httpx2.AsyncClient:
    """Return a client for the batch API of one service, whose files may be long; close it."""
    return replace(_RULES, max_body_bytes=_MAX_RESULTS_BYTES).client(url, _BATCH_CALLS_AT_ONCE)


def provider_error(problem: Exception, status: int | None, reply: httpx2.Response | None) -> Exception:
    """Return what an exception of a provider's package is here.

    Args:
        problem: The exception.
        status: The HTTP status, where there was a reply.
        reply: The reply, where there was one.
    """
    if status is not None and reply is not None:
        said = _WEB_PAGE if status < 500 and _is_web_page(reply.content) else _RULES.error_in(reply.content)
        return ProviderStatusError(status, headers_of(reply), said)
    cause = problem.__cause__ or problem
    if isinstance(cause, MalformedReplyError):
        return cause
    return UnreachableError(
        f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__,
        sent=not isinstance(cause, _NOTHING_SENT),
    )


def headers_of(reply: httpx2.Response) -> Mapping[str, str]:
    """Return the headers by lower-case name."""
    return {name.lower(): value for name, value in reply.headers.items()}


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a reply is.

    Raises:
        MalformedReplyError: It is none.
    """
    if _is_web_page(body):
        raise MalformedReplyError(f"{_WEB_PAGE}: {_excerpt(body)}")
    return _RULES.require_object(_RULES.json_in(body), body)


def _is_web_page(body: bytes) -> bool:
    return body.lstrip()[:1] == b"<"
