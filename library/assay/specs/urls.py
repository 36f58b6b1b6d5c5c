"""URLs in a spec."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

_END_OF_AUTHORITY = re.compile(r"[/?#]")


def has_user(url: str) -> bool:
    """Return whether a URL contains a user or password, which would be stored and reported with the run."""
    return "@" in _END_OF_AUTHORITY.split(url.partition("//")[2], maxsplit=1)[0]


def http_parts(url: str) -> SplitResult | None:
    """Return the parts of an http or https URL with a host; None if it is none."""
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in ("http", "https") and parts.hostname else None
    except ValueError:
        return None
