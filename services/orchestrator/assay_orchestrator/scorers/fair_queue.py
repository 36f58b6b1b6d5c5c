"""A queue that serves its owners by the time they have used, so that an owner with slow jobs hardly delays others."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

_MOST_REMEMBERED = 1_000

J = TypeVar("J")


class FairQueue(Generic[J]):
    """Jobs of several owners; the next job is from the owner that has used the least time.

    A new owner, or one without jobs for a while, starts level with the waiting owners: unused time is not saved.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, deque[J]] = {}
        self._used: dict[str, float] = {}
        self._floor = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def put(self, owner: str, job: J) -> None:
        """Add a job behind the others of its owner."""
        self._used[owner] = max(self._floor, self._used.get(owner, 0.0))
        self._jobs.setdefault(owner, deque()).append(job)

    def take(self) -> tuple[str, J]:
        """Return the next job and its owner; there must be a job."""
        owner = min(self._jobs, key=self._used.__getitem__)
        jobs = self._jobs[owner]
        job = jobs.popleft()
        if not jobs:
            del self._jobs[owner]
        self._floor = self._used[owner]
        return owner, job

    def charge(self, owner: str, seconds: float) -> None:
        """Record the time of an owner's job."""
        self._used[owner] = max(self._floor, self._used.get(owner, 0.0)) + seconds
        if not self._jobs:  # with nothing waiting, there is nothing to be fair about
            self._floor = max(self._used.values())
            self._used.clear()
        elif len(self._used) > _MOST_REMEMBERED:
            self._used = {name: used for name, used in self._used.items() if name in self._jobs or used > self._floor}
