"""Evaluations of a pytest process; this module imports nothing of Assay."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from assay_pytest.evaluation import MarkedEvaluation


class State:
    """Evaluations of a session by spec, and the resources to close at its end."""

    def __init__(self) -> None:
        self.evaluations: dict[object, MarkedEvaluation] = {}
        self.closing = ExitStack()


_KEY = pytest.StashKey[State]()


def state_of(config: pytest.Config) -> State:
    """Return the state of a session, created on first use."""
    return config.stash.setdefault(_KEY, State())


def close(config: pytest.Config) -> None:
    """Close the session's resources."""
    state = config.stash.get(_KEY, None)
    if state is not None:
        state.closing.close()
