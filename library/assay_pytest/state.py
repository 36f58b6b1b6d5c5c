"""What one pytest process knows of its evaluations; imports nothing of Assay."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from assay_pytest.evaluation import MarkedEvaluation


class State:
    """The evaluations of a session by their spec, and what is to be closed at its end."""

    def __init__(self) -> None:
        self.evaluations: dict[object, MarkedEvaluation] = {}
        self.closing = ExitStack()


_KEY = pytest.StashKey[State]()


def state_of(config: pytest.Config) -> State:
    """Return the state of a session; it is made when it is first wanted."""
    return config.stash.setdefault(_KEY, State())


def close(config: pytest.Config) -> None:
    """Close what the session opened."""
    found = config.stash.get(_KEY, None)
    if found is not None:
        found.closing.close()
