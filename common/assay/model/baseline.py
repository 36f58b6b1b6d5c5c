"""Baselines: names for the runs that others are compared with."""

from __future__ import annotations

from assay.records import dataclass

DEFAULT_BASELINE = "baseline"
"""The name that is meant where none is given."""
MAX_NAME_CHARS = 100
MOST_BASELINES = 1_000
"""Most baselines of a team."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A name for a run.

    Args:
        name: The name.
        run_id: The run.
        set_at: When the name was given to it, ISO 8601, UTC.
        exists: Whether the run is still stored.
    """

    name: str
    run_id: str
    set_at: str
    exists: bool = False
