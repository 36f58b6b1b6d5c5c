"""Processes that take jobs from PostgreSQL: when they beat, when they count as dead, and what they log of an outage."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.integration.orchestrator.jobs import (
    Suspended,
    Work,
    enqueue,
    execute,
    make_queue,
    queue_engine,
    take_silently,
)
from tests.support.processes.waiting import until
from tests.support.services.refusals import refuse

from assay_orchestrator.engine.dispatcher import TryAgainError
from assay_orchestrator.engine.queue import QueueDispatcher
from assay_orchestrator.store.shards.shards import ShardJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sqlalchemy as sa


@pytest.fixture
def engine(postgres_url: str) -> sa.Engine:
    """Return a plain engine for the test's database, with the queue's tables."""
    return queue_engine(postgres_url)


@pytest.mark.parametrize(("dead_after_s", "beat_s"), [(1.0, 0.25), (4.0, 1.0), (20.0, 1.0)])
def test_a_process_beats_four_times_before_it_counts_as_dead(
    postgres_url: str, dead_after_s: float, beat_s: float
) -> None:
    """At least every second, and shards are known to be its own for as long."""
    queue = QueueDispatcher(conninfo_to_dict(postgres_url), works=True, concurrency=1, dead_after_s=dead_after_s)
    assert queue.held_s == beat_s


async def test_a_process_beats_no_more_often_than_it_must(engine: sa.Engine, postgres_url: str) -> None:
    """Each beat is a transaction: a thousand runs that wait must not keep the database busy."""
    queue = make_queue(postgres_url)
    execute(engine, "CREATE SEQUENCE beats")
    execute(
        engine,
        "CREATE FUNCTION count_beat() RETURNS trigger LANGUAGE plpgsql "
        "AS $$ BEGIN PERFORM nextval('beats'); RETURN NEW; END $$",
    )
    execute(
        engine,
        "CREATE TRIGGER beat BEFORE UPDATE ON procrastinate_workers FOR EACH ROW EXECUTE FUNCTION count_beat()",
    )
    try:
        queue.open(Work())
        await until(lambda: queue._locked)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            count = "SELECT last_value FROM beats"
            first, since = connection.exec_driver_sql(count).scalar_one(), time.monotonic()
            last = await until(lambda: connection.exec_driver_sql(count).scalar_one(), lambda seen: seen >= first + 8)
        # The queue's own worker says every second that it lives, too.
        assert time.monotonic() - since >= (last - first) / 2 * queue.held_s
    finally:
        await queue.aclose()


async def test_one_process_takes_four_connections_for_the_queue(engine: sa.Engine, postgres_url: str) -> None:
    """An administrator sizes max_connections by docs/database.md; one that listens and one that beats come on top."""
    queue = make_queue(postgres_url)
    try:
        await queue._open()
        assert queue._connector.pool.max_size == 4
    finally:
        await queue.aclose()


async def test_a_worker_that_is_gone_has_two_beats_to_come_back(engine: sa.Engine, postgres_url: str) -> None:
    """Its connection alone may have broken; after that its job goes to another, long before it counts as dead."""
    queue = QueueDispatcher(conninfo_to_dict(postgres_url), works=True, concurrency=1, dead_after_s=2.0)
    assert queue.held_s == 0.5
    try:
        enqueue(queue, engine, ShardJob("r", 0, 0))
        take_silently(engine, "1.5 seconds")
        await queue._open()
        await queue._reap()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT status FROM procrastinate_jobs").scalar_one() == "todo"
        take_silently(engine, "-1 hour")  # it has just beaten
        await queue._reap()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT status FROM procrastinate_jobs").scalar_one() == "doing"
    finally:
        await queue.aclose()


async def test_new_jobs_begin_at_once_and_given_back_ones_later_after_an_outage(
    engine: sa.Engine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that had a job may be about to take it back: it has half the time until it counts as dead."""
    monkeypatch.setattr("assay_orchestrator.engine.queue._SERVER_AGE", "SELECT 1::float8")
    queue = QueueDispatcher(conninfo_to_dict(postgres_url), works=True, concurrency=1, dead_after_s=1000.0)
    work = Work()
    try:
        queue.open(work)
        await until(lambda: queue._liveness.is_returning)
        enqueue(queue, engine, ShardJob("new", 0, 1))
        await work.until(1)
        work.before = lambda _: pytest.fail("its process may take it back")
        with engine.begin() as connection:
            queue.enqueue(connection, [ShardJob("given back", 0, 1)])
            connection.exec_driver_sql("UPDATE procrastinate_jobs SET attempts = 1")
        waits = "SELECT extract(epoch FROM scheduled_at - now()) FROM procrastinate_jobs WHERE scheduled_at IS NOT NULL"
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            wait_s = await until(lambda: connection.exec_driver_sql(waits).scalar())
        assert 0 < wait_s <= 500
    finally:
        await queue.aclose()


async def test_a_job_that_is_just_ending_is_not_given_back(engine: sa.Engine, postgres_url: str) -> None:
    """Between its end here and its end in the queue there is time: only what stays is given back."""
    queue, work, may_end = make_queue(postgres_url), Work(), asyncio.Event()
    queue._dead_after_s = 1000.0
    work.before = lambda _: may_end.wait()
    try:
        queue.open(work)
        enqueue(queue, engine, ShardJob("r", 0, 0))
        await until(lambda: queue._doing)
        doing = dict(queue._doing)
        queue._doing.clear()  # as after its end here
        for _ in range(2):
            await queue._requeue_unacknowledged()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT status FROM procrastinate_jobs").scalar_one() == "doing"
        assert list(queue._left) == list(doing)
        may_end.set()
        await work.until(1)
    finally:
        await queue.aclose()


async def test_a_stop_right_after_a_suspend_waits_for_no_beat(engine: sa.Engine, postgres_url: str) -> None:
    """Jobs wait after a suspend until the process has beaten; where it stops first they are for others."""
    clock, work = Suspended(), Work()
    queue = QueueDispatcher(conninfo_to_dict(postgres_url), works=True, concurrency=1, dead_after_s=1000.0, clock=clock)
    try:
        queue.open(work)
        enqueue(queue, engine, ShardJob("r", 0, 0))
        await work.until(1)  # its worker has begun
        with engine.connect() as connection, connection.begin():
            # Beats wait; a job can still be taken.
            connection.exec_driver_sql("LOCK TABLE procrastinate_workers IN SHARE MODE")
            waits = "SELECT count(*) FROM pg_locks WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            await until(lambda: connection.exec_driver_sql(waits).scalar())
            clock.ahead_s += 2000
            queue._notice()
            enqueue(queue, engine, ShardJob("r", 1, 0))
            doing = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing' AND args ->> 'shard_index' = '1'"
            await until(lambda: connection.exec_driver_sql(doing).scalar())
            closing = asyncio.create_task(queue.aclose())
            await until(lambda: queue._closed)
        await closing
        assert work.done == [("r", 0)]
    finally:
        await queue.aclose()


@pytest.mark.timeout(20)  # what it guards against stops the event loop
async def test_a_job_that_begins_after_the_stop_is_given_back(engine: sa.Engine, postgres_url: str) -> None:
    """A worker that no beat has locked may have taken it just before: no beat comes any more, and none is awaited."""
    queue = make_queue(postgres_url)
    queue.open(Work())
    await queue.aclose()
    context: Any = SimpleNamespace(job=SimpleNamespace(worker_id=1, id=1, attempts=0), worker_queues=())
    with pytest.raises(TryAgainError):
        await queue._do(context, "r", 0, 0)


async def test_a_stop_whose_end_the_database_refuses_is_a_stop(engine: sa.Engine, postgres_url: str) -> None:
    """A worker that cannot say that it ends is not followed by another."""
    queue, work = make_queue(postgres_url), Work()
    queue.open(work)
    enqueue(queue, engine, ShardJob("r", 0, 0))
    await work.until(1)
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        refusal = await refuse(admin, "P0001", "procrastinate_workers", change="DELETE")
        await queue.aclose()
        await refusal.until_met(1)


PASSWORD = "s3cret-of-this-test"


@pytest.fixture
def limited_role(postgres_url: str) -> Iterator[str]:
    """Return a user of the test's server who may have one connection."""
    name = f"limited_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 1".encode())
        yield name
        admin.execute(f"DROP ROLE {name}".encode())


class Lines(logging.Handler):
    """Keeps what the queue logs."""

    def __init__(self, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        self.lines.append(record.getMessage())

    def with_words(self, words: str) -> list[str]:
        """Return the lines that have some words."""
        return [line for line in self.lines if words in line]


async def test_the_log_gives_the_reason_without_the_password(postgres_url: str, limited_role: str) -> None:
    """An operator reads why the queue cannot be maintained and what to do, not the name of a class alone."""
    parameters = {**conninfo_to_dict(postgres_url), "user": limited_role, "password": PASSWORD}
    dispatcher = QueueDispatcher(parameters, works=False, concurrency=1, dead_after_s=20.0)
    found = Lines()
    logger = logging.getLogger("assay_orchestrator.engine.queue")
    logger.addHandler(found)

    async def work(run_id: str, shard_index: int, ticket: int) -> None:
        raise AssertionError(f"there is no job: {run_id}/{shard_index}/{ticket}")

    try:
        dispatcher.open(work)
        line, *_ = await until(lambda: found.with_words("too many connections"))
        problem = psycopg.OperationalError(f"something about {PASSWORD}")
        asyncio.get_running_loop().call_exception_handler({"message": "left behind", "exception": problem})
        await dispatcher.aclose()
    finally:
        logger.removeHandler(found)
    assert line.startswith(("cannot read the queue", "cannot maintain the queue"))
    assert "its database: it has no connection left: raise its max_connections, or close other programs" in line
    assert "something about ***" in found.with_words("cannot store the end of a job")[0]
    assert PASSWORD not in "\n".join(found.lines)


async def test_the_log_says_that_a_worker_joined(postgres_url: str) -> None:
    """Once, with its id, which the line on its loss names too; a process that takes no shards does not join."""
    logger = logging.getLogger("assay_orchestrator.engine.queue")
    found, level = Lines(logging.INFO), logger.level
    logger.addHandler(found)
    logger.setLevel(logging.INFO)

    async def work(run_id: str, shard_index: int, ticket: int) -> None:
        raise AssertionError(f"there is no job: {run_id}/{shard_index}/{ticket}")

    queue_engine(postgres_url)
    parameters = conninfo_to_dict(postgres_url)
    try:
        for works in (False, True):
            dispatcher = QueueDispatcher(parameters, works=works, concurrency=3, dead_after_s=1.0)
            dispatcher.open(work)
            if works:
                (line,) = await until(lambda: found.with_words("worker joined"))
            for _ in range(3):
                await dispatcher._maintained.wait()
            await dispatcher.aclose()
    finally:
        logger.removeHandler(found)
        logger.setLevel(level)
    assert found.with_words("worker joined") == [line]
    assert re.fullmatch(r"worker joined: worker=\d+ pid=\d+ concurrency=3", line)
