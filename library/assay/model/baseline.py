"""Baselines: named runs that other runs are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SPEC_BASELINE = "baseline"
"""The placeholder for a spec's own baseline, which has the spec's name."""
MAX_NAME_CHARS = 100
MOST_BASELINES = 1_000
"""Maximum number of baselines per team."""


def named(names: Sequence[str]) -> str:
    """Return a phrase for baselines, such as "baseline 'a'" or "the baselines 'a' and 'b'"."""
    *first, last = map(repr, names)
    return f"the baselines {', '.join(first)} and {last}" if first else f"baseline {last}"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A name for a run.

    Args:
        name: The name.
        run_id: The run.
        set_at: When the name was assigned, ISO 8601, UTC.
        exists: Whether the run is still stored.
    """

    name: str
    run_id: str
    set_at: str
    exists: bool = False
