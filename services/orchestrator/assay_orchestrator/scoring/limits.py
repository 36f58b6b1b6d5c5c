"""What scoring may take."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["ScoringLimits", "most_scorers"]


@dataclass(frozen=True, slots=True)
class ScoringLimits:
    """What scoring may take.

    Args:
        scorers: Most scorer processes.
        timeout_s: Most processor time of one row's scoring, or of reading one reply, in seconds.
        memory_mib: Most memory of one scorer beyond what it needs idle, in MiB.
    """

    scorers: int = 1
    timeout_s: float = 5.0
    memory_mib: int = 1024


def most_scorers() -> int:
    """Return how many scorers leave a core to the event loop: one less than the cores, at least one."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable - 1)
