"""The protocol of dispatchers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import sqlalchemy as sa

    from assay_orchestrator.store.shards.shards import ShardJob

    Work = Callable[[str, int, int], Awaitable[None]]
    """Takes a run's id, a shard's index and the job's ticket. Once it returns, the job is done and never runs again."""

FENCED_STATUS = 70
"""The exit status of a process that has lost its work to another process."""


def exit_at_once() -> None:
    """Exit at once: another process may already work on what is in flight here."""
    os._exit(FENCED_STATUS)


class TryAgainError(Exception):
    """The job is not done and must be requeued.

    Args:
        after_s: The minimum delay before it runs again, in seconds.
    """

    def __init__(self, after_s: float = 0.0) -> None:
        super().__init__(f"again after {after_s:g} s")
        self.after_s = after_s


class Dispatcher(Protocol):
    """Delivers jobs to workers: at least once each, the highest priority first.

    A job is a hint that a shard needs work. It may arrive twice, and it may be lost: `find_lost` returns lost jobs.

    Attributes:
        alone: Whether this process is the only worker.
        held_s: How long a shard stays with the process last seen working on it, in seconds.
    """

    alone: bool
    held_s: float

    def enqueue(self, connection: sa.Connection, jobs: Sequence[ShardJob]) -> None:
        """Enqueue jobs in the transaction of a connection; a rollback removes them again."""

    def remove_jobs(self, connection: sa.Connection, run_id: str) -> None:
        """Remove the waiting jobs of a run that was deleted with its team, in the transaction of a connection."""

    def committed(self, jobs: Iterable[ShardJob]) -> None:
        """Handle the commit of the transaction of `enqueue`."""

    def open(self, work: Work) -> None:
        """Start taking jobs."""

    def attend(self, run_id: str) -> None:
        """Take the jobs of a run whose agent a client of this process hosts; no other process can run them."""

    def leave(self, run_id: str) -> None:
        """Take no more jobs of such a run; jobs in progress continue."""

    async def until_sure(self) -> None:
        """Wait until this process knows its jobs: after a suspend, until it has reclaimed them.

        Raises:
            StorageError: The database refused the heartbeat; the next call waits for the next attempt.
        """

    async def find_lost(self, jobs: Sequence[ShardJob]) -> list[ShardJob]:
        """Return the jobs that are neither queued nor in progress."""

    async def aclose(self) -> None:
        """Stop taking jobs, and wait until the jobs in progress have returned."""
