"""Duration of a run, from its document."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def run_time_s(head: Mapping[str, Any]) -> float | None:
    """Return the seconds from a run's start to its end; None if either is unknown."""
    try:
        started, ended = (datetime.fromisoformat(head["run"].get(name) or "") for name in ("started_at", "ended_at"))
        return (ended - started).total_seconds()
    except (TypeError, ValueError):
        return None
