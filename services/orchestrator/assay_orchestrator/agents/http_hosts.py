"""Which hosts agents may have: a shared orchestrator must not become a way into its own network."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assay.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["check_http_target"]


def check_http_target(target: str, allowed_hosts: Sequence[str], field: str = "agent.target") -> list[Problem]:
    """Return a problem if agents at this URL, which stands in `field`, may not be called from here."""
    try:
        host = (urlsplit(target).hostname or "").lower()
    except ValueError:
        return [Problem("is not a valid URL", field)]
    if any(fnmatch.fnmatchcase(host, pattern.lower()) for pattern in allowed_hosts):
        return []
    return [
        Problem(
            f"this orchestrator may not call {host or target!r}: its operator allows hosts with --http-hosts",
            field,
        )
    ]
