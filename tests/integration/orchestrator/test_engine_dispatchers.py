"""What dispatchers promise, in one suite for both: within a process, and over PostgreSQL."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import pytest_asyncio
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from tests.integration.orchestrator.jobs import (
    Suspended,
    Work,
    enqueue,
    execute,
    lives,
    make_queue,
    queue_engine,
    take_silently,
)
from tests.support.processes.waiting import until
from tests.support.services.refusals import refuse

from assay.errors import StorageError
from assay_orchestrator.engine.dispatcher import TryAgainError
from assay_orchestrator.engine.embedded import EmbeddedDispatcher
from assay_orchestrator.engine.queue import QueueDispatcher, queue_of
from assay_orchestrator.store.shards.shards import ShardJob

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay_orchestrator.engine.dispatcher import Dispatcher


@pytest.fixture
def engine(postgres_url: str) -> sa.Engine:
    """Return a plain engine for the test's database, with the queue's tables."""
    return queue_engine(postgres_url)


@pytest_asyncio.fixture(params=["embedded", "queue"])
async def dispatcher(request: pytest.FixtureRequest, engine: sa.Engine, postgres_url: str) -> AsyncIterator[Dispatcher]:
    """Return a dispatcher that does one job at a time, not opened yet."""
    made: Dispatcher = EmbeddedDispatcher(1) if request.param == "embedded" else make_queue(postgres_url)
    yield made
    await made.aclose()


async def test_the_highest_priority_is_served_first(dispatcher: Dispatcher, engine: sa.Engine) -> None:
    """Jobs that wait are taken in the order of their priority, those of a later transaction too."""
    enqueue(dispatcher, engine, ShardJob("r", 0, -30), ShardJob("r", 1, -10))
    enqueue(dispatcher, engine, ShardJob("s", 0, -20))
    work = Work()
    dispatcher.open(work)
    await work.until(3)
    assert work.done == [("r", 1), ("s", 0), ("r", 0)]


async def test_a_job_that_asks_for_it_comes_again(dispatcher: Dispatcher, engine: sa.Engine) -> None:
    """TryAgainError is no end, and neither is a defect: the job comes until it returns."""
    work, problems = Work(), [TryAgainError(), ValueError("a defect")]

    def fail(_: tuple[str, int]) -> None:
        if problems:
            raise problems.pop(0)

    work.before = fail
    dispatcher.open(work)
    enqueue(dispatcher, engine, ShardJob("r", 0, 0))
    await work.until(1)
    assert (work.done, problems) == ([("r", 0)], [])


async def test_closing_waits_for_what_was_taken(dispatcher: Dispatcher, engine: sa.Engine) -> None:
    """A job under way ends before the dispatcher does, and nothing new is begun."""
    work, taken, go_on = Work(), asyncio.Event(), asyncio.Event()
    ends: list[str] = []

    async def wait() -> None:
        taken.set()
        await go_on.wait()
        for _ in range(20):  # of the database, so that one that did not wait would be closed before
            await asyncio.to_thread(execute, engine, "SELECT 1")
        ends.append("job")

    work.before = lambda _: wait()
    dispatcher.open(work)
    enqueue(dispatcher, engine, ShardJob("r", 0, 0), ShardJob("r", 1, -1))
    await taken.wait()
    closing = asyncio.ensure_future(dispatcher.aclose())
    closing.add_done_callback(lambda _: ends.append("dispatcher"))
    go_on.set()
    await closing
    assert (work.done, ends) == ([("r", 0)], ["job", "dispatcher"])


async def test_lost_jobs_are_found(dispatcher: Dispatcher, engine: sa.Engine) -> None:
    """A job that waits or is under way is not lost; one that was never enqueued is."""
    work, taken, go_on = Work(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        taken.set()
        await go_on.wait()

    work.before = lambda _: wait()
    dispatcher.open(work)
    jobs = [ShardJob("r", 0, 0), ShardJob("r", 1, -1), ShardJob("r", 2, -2)]
    enqueue(dispatcher, engine, *jobs[:2])
    await taken.wait()
    assert await dispatcher.find_lost(jobs) == jobs[2:]
    go_on.set()
    await work.until(2)


async def test_a_transaction_that_is_rolled_back_enqueues_nothing(engine: sa.Engine, postgres_url: str) -> None:
    """What was enqueued with a change that did not take place was never there."""
    queue = make_queue(postgres_url)
    try:
        with engine.connect() as connection, connection.begin() as transaction:
            queue.enqueue(connection, [ShardJob("r", 0, 0)])
            transaction.rollback()
        job = ShardJob("r", 1, 0)
        enqueue(queue, engine, job)
        assert await queue.find_lost([ShardJob("r", 0, 0), job]) == [ShardJob("r", 0, 0)]
    finally:
        await queue.aclose()


@pytest.mark.parametrize(
    "harm", ["DELETE FROM procrastinate_jobs", "UPDATE procrastinate_jobs SET status = 'succeeded'"]
)
async def test_a_job_that_somebody_took_away_is_lost(engine: sa.Engine, postgres_url: str, harm: str) -> None:
    """Rows of the queue that are deleted or marked done by hand are noticed."""
    queue = make_queue(postgres_url)
    try:
        job = ShardJob("r", 0, 0)
        enqueue(queue, engine, job)
        assert await queue.find_lost([job]) == []
        with engine.begin() as connection:
            connection.exec_driver_sql(harm)
        assert await queue.find_lost([job]) == [job]
    finally:
        await queue.aclose()


async def test_jobs_of_hosted_agents_go_where_their_clients_are(engine: sa.Engine, postgres_url: str) -> None:
    """A job whose agent a client hosts waits until a process attends to its run, and only that one has it."""
    queues = [make_queue(postgres_url), make_queue(postgres_url)]
    works = [Work(), Work()]
    try:
        for queue, work in zip(queues, works, strict=True):
            queue.open(work)
        enqueue(queues[0], engine, ShardJob("hosted", 0, 0, hosted=True))
        queues[1].attend("hosted")
        await works[1].until(1)
        assert (works[0].done, works[1].done) == ([], [("hosted", 0)])
        queues[1].leave("hosted")
    finally:
        for queue in queues:
            await queue.aclose()


async def test_a_run_whose_client_has_left_waits_and_other_jobs_do_not(engine: sa.Engine, postgres_url: str) -> None:
    """Its jobs are taken again when a client attaches; leaving a run that was never attended changes nothing."""
    queue, work = make_queue(postgres_url), Work()
    try:
        queue.open(work)
        queue.leave("other")
        queue.attend("hosted")
        enqueue(queue, engine, ShardJob("hosted", 0, 0, hosted=True))
        await work.until(1)
        queue.leave("hosted")
        await until(lambda: not queue._leaving)
        enqueue(queue, engine, ShardJob("hosted", 1, 10, hosted=True), ShardJob("r", 0, 0))
        await work.until(2)
        assert work.done == [("hosted", 0), ("r", 0)]
        queue.attend("hosted")
        await work.until(3)
        assert work.done[2:] == [("hosted", 1)]
    finally:
        await queue.aclose()


def test_processes_of_different_versions_share_queues(postgres_url: str) -> None:
    """Names of queues are stored with jobs; a queue of a run is a channel, whose name has at most 63 bytes."""
    assert queue_of("r", hosted=False) == queue_of("r", hosted=False, is_last=True) == "shards"
    assert queue_of("r", hosted=True, is_last=True) == "ends"
    assert queue_of("r", hosted=True) == "run-454349e422f05297191e"
    assert len(f"procrastinate_queue_v1#{queue_of(100 * 'r', hosted=True)}") <= 63


async def test_enqueuing_nothing_is_allowed(engine: sa.Engine, postgres_url: str) -> None:
    """A run whose shards are all in progress has no jobs to add."""
    queue = make_queue(postgres_url)
    enqueue(queue, engine)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM procrastinate_jobs").scalar_one() == 0
    await queue.aclose()


async def test_a_client_may_be_here_before_the_process_takes_jobs(engine: sa.Engine, postgres_url: str) -> None:
    """A client that attaches while its process starts is asked once the process takes jobs."""
    queue, work = make_queue(postgres_url), Work()
    try:
        queue.attend("hosted")
        enqueue(queue, engine, ShardJob("hosted", 0, 0, hosted=True))
        queue.open(work)
        await work.until(1)
    finally:
        await queue.aclose()


async def test_jobs_of_a_worker_that_says_nothing_go_to_another(engine: sa.Engine, postgres_url: str) -> None:
    """A worker that stands still keeps its connection; after some time its job is given to whoever works."""
    queue = make_queue(postgres_url)
    work = Work()
    try:
        enqueue(queue, engine, ShardJob("r", 0, 0))
        with lives(engine, take_silently(engine)):
            queue.open(work)
            await work.until(1)
    finally:
        await queue.aclose()


def engine_of_another(url: str) -> sa.Engine:
    """Return an engine whose connections are those of another process, which stands still."""
    return sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(url, application_name="stands still"),
        poolclass=sa.NullPool,
    )


async def test_what_a_process_that_stands_still_was_changing_is_free_again(
    engine: sa.Engine, postgres_url: str
) -> None:
    """Its sessions are ended, in the midst of sending rows too, which no time limit of the server's does."""
    works = conninfo_to_dict(postgres_url) | {"application_name": "works"}
    queue = QueueDispatcher(works, works=True, concurrency=1, dead_after_s=1.0)
    work = Work()
    execute(engine, "CREATE TABLE rows (name text)")
    execute(engine, "INSERT INTO rows VALUES ('a')")
    try:
        enqueue(queue, engine, ShardJob("r", 0, 0))
        with (
            lives(engine_of_another(postgres_url), take_silently(engine)) as beating,
            psycopg.connect(postgres_url, application_name="stands still") as sending,
            psycopg.connect(postgres_url, application_name="works elsewhere") as other,
        ):
            sending.execute("UPDATE rows SET name = 'b'")
            with suppress(psycopg.OperationalError), sending.cursor().copy("COPY rows FROM STDIN") as rows:
                rows.write_row(("c",))
                queue.open(work)
                await work.until(1)
                await asyncio.to_thread(execute, engine, "UPDATE rows SET name = name || '+'")
            assert sending.broken
            with pytest.raises(sa.exc.OperationalError):
                beating.exec_driver_sql("SELECT 1")
            assert other.execute("SELECT name FROM rows").fetchall() == [("a+",)]
    finally:
        await queue.aclose()


async def test_a_user_who_may_end_no_sessions_is_told_and_the_job_goes_on(
    engine: sa.Engine, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A user may end sessions of its own alone: the log says what to do, and the job is given away nevertheless."""
    execute(
        engine,
        "CREATE FUNCTION pg_terminate_backend(pid int) RETURNS boolean LANGUAGE plpgsql "
        "AS $$ BEGIN RAISE insufficient_privilege; END $$",
    )
    works: dict[str, Any] = conninfo_to_dict(postgres_url) | {"application_name": "works"}
    works["options"] += ",pg_catalog"  # of the search path: the schema's own function comes first
    queue = QueueDispatcher(works, works=True, concurrency=1, dead_after_s=1.0)
    work = Work()
    try:
        enqueue(queue, engine, ShardJob("r", 0, 0))
        with lives(engine_of_another(postgres_url), take_silently(engine)):
            queue.open(work)
            await work.until(1)
    finally:
        await queue.aclose()
    assert "let all orchestrators connect as one user" in caplog.text


async def test_jobs_of_a_worker_whose_connection_is_gone_go_to_another_soon(
    engine: sa.Engine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was killed loses its job long before one that only says nothing."""
    monkeypatch.setattr("assay_orchestrator.engine.queue._SERVER_AGE", "SELECT 1e9::float8")
    queue = QueueDispatcher(conninfo_to_dict(postgres_url), works=True, concurrency=1, dead_after_s=1000.0)
    work = Work()
    try:
        enqueue(queue, engine, ShardJob("r", 0, 0))
        connection = lives(engine, take_silently(engine))
        queue.open(work)
        await queue._open()
        await queue._reap()
        with engine.connect() as other:
            assert other.exec_driver_sql("SELECT status FROM procrastinate_jobs").scalar_one() == "doing"
        connection.close()
        await work.until(1)
    finally:
        await queue.aclose()


async def test_a_process_that_was_suspended_takes_its_jobs_back(engine: sa.Engine, postgres_url: str) -> None:
    """A job that was given to others and that none has taken goes on here: it is done once, and nobody exits."""
    clock, died, work, may_end = Suspended(), asyncio.Event(), Work(), asyncio.Event()
    queue = QueueDispatcher(
        conninfo_to_dict(postgres_url), works=True, concurrency=2, dead_after_s=1.0, on_dead=died.set, clock=clock
    )
    work.before = lambda _: may_end.wait()
    try:
        queue.open(work)
        enqueue(queue, engine, ShardJob("r", 0, 0))
        await until(lambda: queue._doing)
        # No process has come back, so nobody fetches it: it is scheduled for later.
        execute(
            engine,
            "UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL, scheduled_at = now() + interval '1 day'",
        )
        clock.ahead_s += 30
        await queue.until_sure()
        with engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT status, worker_id IS NOT NULL FROM procrastinate_jobs").all()
        assert [tuple(row) for row in rows] == [("doing", True)]
        may_end.set()
        await work.until(1)
        assert not died.is_set()
    finally:
        await queue.aclose()
    assert work.done == [("r", 0)]


async def test_a_suspended_process_says_why_it_cannot_take_its_jobs_back(engine: sa.Engine, postgres_url: str) -> None:
    """A heartbeat that the database refuses is an error with its reason; a later one ends the wait."""
    clock, work = Suspended(), Work()
    queue = QueueDispatcher(
        conninfo_to_dict(postgres_url), works=True, concurrency=1, dead_after_s=1.0, on_dead=lambda: None, clock=clock
    )
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        try:
            queue.open(work)
            await until(lambda: [worker for worker in queue._workers if worker.worker_id is not None])
            refusal = await refuse(admin, "25006", "procrastinate_workers", change="UPDATE")
            await refusal.until_met(1)
            clock.ahead_s += 30
            with pytest.raises(StorageError, match="the orchestrator's database: it may only be read"):
                await queue.until_sure()
            await refusal.lift()

            async def is_sure() -> bool:
                with suppress(StorageError):  # a heartbeat may have been on its way
                    await queue.until_sure()
                    return True
                return False

            await until(is_sure)
        finally:
            await queue.aclose()


async def test_a_job_in_progress_that_comes_again_is_not_begun_twice(engine: sa.Engine, postgres_url: str) -> None:
    """A process that fetches its own job, which others had given back, leaves it to the one that is at it."""
    queue, work, may_end = make_queue(postgres_url, concurrency=2), Work(), asyncio.Event()
    begun = 0

    def before(_: tuple[str, int]) -> object:
        nonlocal begun
        begun += 1
        return may_end.wait()

    work.before = before
    try:
        queue.open(work)
        enqueue(queue, engine, ShardJob("r", 0, 0))
        await until(lambda: queue._doing)
        execute(engine, "UPDATE procrastinate_jobs SET status = 'todo'")
        with engine.connect() as connection:
            query = "SELECT attempts FROM procrastinate_jobs WHERE status = 'doing'"
            # It is taken back, or fetched, refused, and taken back.
            await until(lambda: connection.exec_driver_sql(query).all())
        may_end.set()
        await work.until(1)
    finally:
        await queue.aclose()
    assert (begun, work.done) == (1, [("r", 0)])


async def test_a_worker_has_a_lock_for_as_long_as_its_process_lives(engine: sa.Engine, postgres_url: str) -> None:
    """Whoever works keeps its job, though it is long: others see that its connection is there."""
    queues = [
        QueueDispatcher(conninfo_to_dict(postgres_url), works=works, concurrency=1, dead_after_s=1000.0)
        for works in (True, False)
    ]
    work, goes_on = Work(), asyncio.Event()
    work.before = lambda _: goes_on.wait()
    try:
        enqueue(queues[0], engine, ShardJob("r", 0, 0))
        queues[0].open(work)
        await until(lambda: queues[0]._locked)
        execute(engine, "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")
        await queues[1]._open()
        await queues[1]._reap()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT status FROM procrastinate_jobs").scalar_one() == "doing"
            silent = "SELECT last_heartbeat < now() - interval '30 minutes' FROM procrastinate_workers"
            assert connection.exec_driver_sql(silent).scalar_one(), "its lock alone said that it lives"
        goes_on.set()
        await work.until(1)
        with engine.connect() as connection:
            jobs = "SELECT count(*) FROM procrastinate_jobs"
            await until(lambda: connection.exec_driver_sql(jobs).scalar_one(), lambda count: count == 0)
        assert work.done == [("r", 0)]
    finally:
        for queue in queues:
            await queue.aclose()


async def test_a_process_that_counts_as_dead_exits(engine: sa.Engine, postgres_url: str) -> None:
    """A worker that the queue has forgotten ends its process: others may have its jobs."""
    died = asyncio.Event()
    queue = QueueDispatcher(
        conninfo_to_dict(postgres_url), works=True, concurrency=1, dead_after_s=1.0, on_dead=died.set
    )
    work = Work()
    try:
        queue.open(work)
        enqueue(queue, engine, ShardJob("r", 0, 0))
        await work.until(1)
        assert not died.is_set()
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM procrastinate_workers")
        await died.wait()
    finally:
        await queue.aclose()


async def test_a_job_whose_end_could_not_be_stored_comes_again(engine: sa.Engine, postgres_url: str) -> None:
    """The worker lives and the queue takes the job for one in progress: it is given back nevertheless."""
    queue = make_queue(postgres_url)
    work = Work()
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        refusal = await refuse(admin, "P0001", "procrastinate_jobs", change="DELETE", each="ROW")
        try:
            queue.open(work)
            enqueue(queue, engine, ShardJob("r", 0, 0))
            await work.until(1)
            await refusal.until_met(1)
            await refusal.lift()
            await work.until(2)
        finally:
            await queue.aclose()
