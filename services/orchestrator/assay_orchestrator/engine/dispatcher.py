"""What a dispatcher promises, whichever it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import sqlalchemy as sa

    from assay_orchestrator.store.shards import ShardJob

    Work = Callable[[str, int, int], Awaitable[None]]
    """Takes a run's id, a shard's index and the job's ticket; when it returns, the job is over for good."""

__all__ = ["FENCED_STATUS", "Dispatcher", "TryAgainError", "exit_at_once"]


FENCED_STATUS = 70
"""How a process ends whose work somebody else has."""


def exit_at_once() -> None:
    """End this process without another word: whatever it has in flight, somebody else may have too."""
    os._exit(FENCED_STATUS)


class TryAgainError(Exception):
    """The job is not over: give it to somebody again.

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
        held_s: For so many seconds after a process was seen to have a shard nobody else gets it.
    """

    alone: bool
    held_s: float

    def enqueue(self, connection: sa.Connection, jobs: Sequence[ShardJob]) -> None:
        """Enqueue jobs in the transaction of a connection: if that is rolled back, they were never there."""
        ...

    def committed(self, jobs: Iterable[ShardJob]) -> None:
        """Hear that the transaction of `enqueue` has been committed."""
        ...

    def open(self, work: Work) -> None:
        """Begin to take jobs."""
        ...

    def attend(self, run_id: str) -> None:
        """Take the jobs of a run whose agent a client of this process hosts: nobody else can do them."""
        ...

    def leave(self, run_id: str) -> None:
        """Take no more jobs of such a run; those that were taken go on."""
        ...

    async def until_sure(self) -> None:
        """Wait until this process knows which jobs it has: after a suspend, until it has taken back its own.

        Raises:
            StorageError: The database refuses what it takes; the next call waits for the next attempt.
        """
        ...

    async def find_lost(self, jobs: Sequence[ShardJob]) -> list[ShardJob]:
        """Return those of the jobs that nobody has and that wait nowhere."""
        ...

    async def aclose(self) -> None:
        """Take no more jobs, once and for all, and wait until those that were taken have returned."""
        ...
