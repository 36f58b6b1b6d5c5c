"""Jobs of tests, and what does them: a dispatcher over PostgreSQL that notices a dead worker soon."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from assay_orchestrator.engine.queue import QueueDispatcher
from assay_orchestrator.store import queue_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay_orchestrator.engine.dispatcher import Dispatcher
    from assay_orchestrator.store.shards.shards import ShardJob


def queue_engine(url: str) -> sa.Engine:
    """Return a plain engine for the test's database, with the queue's tables."""
    made = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=sa.NullPool)
    with made.begin() as connection:
        queue_tables.create_queue_tables(connection)
    return made


def make_queue(url: str, *, concurrency: int = 1) -> QueueDispatcher:
    """Return a dispatcher over PostgreSQL that notices a dead worker soon."""
    return QueueDispatcher(conninfo_to_dict(url), works=True, concurrency=concurrency, dead_after_s=1.0)


class Work:
    """Does jobs by noting them, and what else a test wants."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.moved = asyncio.Event()
        self.before: Callable[[tuple[str, int]], Any] = lambda _: None

    async def __call__(self, run_id: str, shard_index: int, ticket: int) -> None:
        waited = self.before((run_id, shard_index))
        if waited is not None:
            await waited
        self.done.append((run_id, shard_index))
        self.moved.set()

    async def until(self, count: int) -> None:
        """Wait until so many jobs were done."""
        while len(self.done) < count:
            self.moved.clear()
            await self.moved.wait()


def enqueue(dispatcher: Dispatcher, engine: sa.Engine, *jobs: ShardJob) -> None:
    """Enqueue jobs in a transaction of their own."""
    with engine.begin() as connection:
        dispatcher.enqueue(connection, jobs)
    dispatcher.committed(jobs)


def take_silently(engine: sa.Engine, silent: str = "1 hour") -> int:
    """Give the one job to a worker that has said nothing for so long; return its number."""
    with engine.begin() as connection:
        worker_id: int = connection.exec_driver_sql(
            f"INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '{silent}') RETURNING id"
        ).scalar_one()
        connection.exec_driver_sql(f"UPDATE procrastinate_jobs SET status = 'doing', worker_id = {worker_id}")
    return worker_id


def lives(engine: sa.Engine, worker_id: int) -> sa.Connection:
    """Return a connection with what tells others that a worker's is not gone."""
    connection = engine.connect()
    lock = f"SELECT pg_advisory_lock_shared(hashtext('assay worker ' || current_schema()), {worker_id})"
    connection.exec_driver_sql(lock)
    return connection


class Suspended:
    """A clock that a test sets forward, as a suspend does."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return time.monotonic() + self.ahead_s


def execute(engine: sa.Engine, statement: str) -> None:
    """Do something by hand."""
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
