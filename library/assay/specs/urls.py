"""URLs of a spec: what must not stand in one."""

from __future__ import annotations

import re

_END_OF_AUTHORITY = re.compile(r"[/?#]")


def has_user(url: str) -> bool:
    """Return whether a URL names a user or a password, which would be stored and reported with the run."""
    return "@" in _END_OF_AUTHORITY.split(url.partition("//")[2], maxsplit=1)[0]
