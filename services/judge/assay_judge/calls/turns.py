"""Whose call is next: teams take turns, and the runs of each, so that many runs are no reason to wait for others."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from assay_judge.model import RunKey


class Leaving(Protocol):
    """What may leave its queue before its turn."""

    @property
    def has_left(self) -> bool:
        """Whether it has."""
        ...


T = TypeVar("T", bound=Leaving)


class Turns(Generic[T]):
    """What waits, by team and run."""

    def __init__(self) -> None:
        self._teams: dict[str, dict[str, deque[T]]] = {}  # both in the order of their turns

    def __bool__(self) -> bool:
        return bool(self._teams)

    def add(self, run: RunKey, waiting: T, *, first: bool = False) -> None:
        """Let something wait for a turn of a run; `first` puts it before others of the run."""
        queue = self._teams.setdefault(run.team, {}).setdefault(run.run_id, deque())
        (queue.appendleft if first else queue.append)(waiting)

    def next(self) -> T | None:
        """Return what is next, and forget what has left; None where nothing waits."""
        while self._teams:
            team, runs = next(iter(self._teams.items()))
            while runs:
                run_id, queue = next(iter(runs.items()))
                while queue and queue[0].has_left:
                    queue.popleft()
                if queue:
                    return queue[0]
                del runs[run_id]
            del self._teams[team]
        return None

    def take(self) -> T:
        """Remove what `next` has returned; its run and its team are now the last in turn."""
        team, runs = next(iter(self._teams.items()))
        run_id, queue = next(iter(runs.items()))
        taken = queue.popleft()
        del runs[run_id]
        if queue:
            runs[run_id] = queue
        del self._teams[team]
        if runs:
            self._teams[team] = runs
        return taken
