"""What a dispatcher promises, whichever it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import sqlalchemy as sa

    from assay_orchestrator.store.shards.shards import ShardJob

    Work = Callable[[str, int, int], Awaitable[None]]
    """Takes a run's id, a shard's index and the job's ticket; when it returns, the job is over and is not run again."""

FENCED_STATUS = 70
"""The exit status of a process whose work another process has."""


def exit_at_once() -> None:
    """Exit at once: another process may have what this one has in flight."""
    os._exit(FENCED_STATUS)


class TryAgainError(Exception):
    """The job is not done: requeue it.

    Args:
        after_s: Not before this many seconds have passed.
    """

    def __init__(self, after_s: float = 0.0) -> None:
        super().__init__(f"again after {after_s:g} s")
        self.after_s = after_s


class Dispatcher(Protocol):
    """Brings jobs to workers: at least once each, the highest priority first.

    A job is a hint that a shard needs work. It may come twice, and it may be lost: `lost` finds those.

    Attributes:
        alone: Whether this process is the only one that works.
        held_s: Seconds after a process was seen to have a shard in which no other process gets it.
    """

    alone: bool
    held_s: float

    def enqueue(self, connection: sa.Connection, jobs: Sequence[ShardJob]) -> None:
        """Enqueue jobs in the transaction of a connection: if that is rolled back, they were never there."""
        ...

    def remove_jobs(self, connection: sa.Connection, run_id: str) -> None:
        """Remove the waiting jobs of a run that was deleted with its team, in the transaction of a connection."""
        ...

    def committed(self, jobs: Iterable[ShardJob]) -> None:
        """Handle that the transaction of `enqueue` has been committed."""
        ...

    def open(self, work: Work) -> None:
        """Begin to take jobs."""
        ...

    def attend(self, run_id: str) -> None:
        """Take the jobs of a run whose agent a client of this process hosts: no other process can do them."""
        ...

    def leave(self, run_id: str) -> None:
        """Take no more jobs of such a run; jobs in progress continue."""
        ...

    async def until_sure(self) -> None:
        """Wait until this process knows which jobs it has: after a suspend, until it has taken back its own.

        Raises:
            StorageError: The database refuses what it takes; the next call waits for the next attempt.
        """
        ...

    async def find_lost(self, jobs: Sequence[ShardJob]) -> list[ShardJob]:
        """Return those of the jobs that are neither queued nor in progress."""
        ...

    async def aclose(self) -> None:
        """Take no more jobs, once and for all, and wait until those that were taken have returned."""
        ...
