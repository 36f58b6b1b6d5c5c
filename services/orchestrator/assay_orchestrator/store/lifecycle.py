"""The life of a run."""

from __future__ import annotations

import dataclasses

from assay.model.run import PauseCause, Run, RunState

__all__ = ["ACTIVE_STATES", "client_view"]

ACTIVE_STATES = (RunState.PENDING, RunState.RUNNING)
"""States of runs that have not ended and are not paused."""


def client_view(run: Run, storage_problem: str) -> Run:
    """Return a run as clients see it: PAUSED where its rows cannot be stored, here or in the process that has them.

    Args:
        run: The run as it is stored.
        storage_problem: Why its rows cannot be stored in this process; empty where they can. Where not even the pause
            can be stored, this process alone shows it.
    """
    if run.state not in ACTIVE_STATES or run.pause_cause not in (None, PauseCause.STORAGE):
        return run
    if not storage_problem and run.pause_cause is None:
        return run
    return dataclasses.replace(
        run, state=RunState.PAUSED, pause_cause=PauseCause.STORAGE, state_reason=storage_problem or run.state_reason
    )
