"""Page tokens: opaque to callers, refused where they do not fit the query."""

from __future__ import annotations

import base64
import json

from assay.errors import ResumeExpiredError

__all__ = ["make_token", "read_token"]


def make_token(query: str, position: tuple[str | int, ...]) -> str:
    """Return the token of the page that follows `position` in the pages of `query`."""
    text = json.dumps([query, *position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode()


def read_token(query: str, token: str, kinds: tuple[type, ...]) -> tuple[str | int, ...] | None:
    """Return the position that a token holds, or None for the first page.

    Raises:
        ResumeExpiredError: The token is damaged or belongs to another query.
    """
    if not token:
        return None
    try:
        made_for, *position = json.loads(base64.urlsafe_b64decode(token.encode()))
        if made_for == query and [type(part) for part in position] == list(kinds):
            return tuple(position)
    except (ValueError, TypeError):
        pass
    raise ResumeExpiredError("the page token does not belong to this query: start again without one")
