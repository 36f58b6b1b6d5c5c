"""URLs in a spec: refusing credentials in them."""

from __future__ import annotations

import re

_END_OF_AUTHORITY = re.compile(r"[/?#]")


def has_user(url: str) -> bool:
    """Return whether a URL contains a user or password, which would be stored and reported with the run."""
    return "@" in _END_OF_AUTHORITY.split(url.partition("//")[2], maxsplit=1)[0]
