"""Dispatching over PostgreSQL: every call of procrastinate, and every query of its tables, is here.

Jobs are rows of procrastinate's tables, beside ours. procrastinate delivers them, keeps the heartbeats of workers and
requeues unacknowledged jobs. Any process may acknowledge a job: the shards in the store record what is done, not the
jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any

import procrastinate
import psycopg
import psycopg_pool
from procrastinate import jobs as queue_jobs
from procrastinate import retry as queue_retry
from procrastinate import worker as queue_worker

from assay.agent_host.concurrency.suspension import boot_time
from assay.errors import StorageError
from assay.process.failpoints import failpoint
from assay.storage.postgres_errors import client_sentence, is_passing, sentence
from assay_orchestrator.engine.dispatcher import TryAgainError, exit_at_once
from assay_orchestrator.engine.liveness import GONE_BEATS, Liveness
from assay_orchestrator.instruments import HEARTBEAT
from assay_orchestrator.store.processes import ALIVE_CLASS
from assay_orchestrator.store.shards.shards import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import sqlalchemy as sa

    from assay_orchestrator.engine.dispatcher import Work
    from assay_orchestrator.store.shards.shards import ShardJob

_TASK = "assay.shard"
_QUEUE = "shards"
_ENDS = "ends"
"""The queue of jobs that end hosted runs; every process serves it, even one that takes no other jobs."""
_REAPER = 0x41535351
_ALIVE = f"{ALIVE_CLASS}, %s"
# All connections of a process share a name unique to it; the one that sends heartbeats also has the worker's lock.
_END_SESSIONS = f"""
SELECT count(pg_terminate_backend(session.pid))
FROM pg_locks AS lock
JOIN pg_stat_activity AS beating ON beating.pid = lock.pid
JOIN pg_stat_activity AS session ON session.application_name = beating.application_name
WHERE lock.locktype = 'advisory' AND lock.objsubid = 2
  AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND lock.classid = ({ALIVE_CLASS}::bigint & 4294967295)::oid
  AND lock.objid::bigint = ANY(%s)
  AND beating.application_name NOT IN ('', current_setting('application_name'))
"""  # noqa: S608 - of constants
_TAKE_BACK = """
UPDATE procrastinate_jobs SET status = 'doing', worker_id = %s WHERE id = ANY(%s) AND status = 'todo'
"""
_REMOVE = "DELETE FROM procrastinate_jobs WHERE args->>'run_id' = %(run_id)s AND status = 'todo'"
_SERVER_AGE = "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8"
_CONNECTIONS = 4
_CONNECTION_TIMEOUT_S = 5.0
_CONNECT_S = 2
_POLL_S = 1.0
_WORKER_ROW_AGE_S = 86_400.0
"""The age at which rows of dead workers are removed. Any earlier, a starting worker would remove workers whose
heartbeats a database outage delayed."""
_RESTART_S = 1.0
_MOST_RETRY_S = 30.0

_DATABASE_PROBLEMS = (psycopg.Error, procrastinate.exceptions.ProcrastinateException, psycopg_pool.PoolTimeout)

_log = logging.getLogger(__name__)


def queue_of(run_id: str, *, hosted: bool, is_last: bool = False) -> str:
    """Return the queue of a run's jobs: the common one, or its own for a hosted agent, except for the last job.

    The name becomes that of a channel, which has at most 63 bytes.
    """
    if hosted and is_last:
        return _ENDS
    return f"run-{hashlib.sha256(run_id.encode()).hexdigest()[:20]}" if hosted else _QUEUE


class QueueDispatcher:
    """Shares jobs among all processes that use the same database.

    Args:
        parameters: libpq's connection parameters.
        works: Whether this process takes jobs at all.
        concurrency: Maximum number of concurrent jobs in this process.
        dead_after_s: Time without a heartbeat before a process counts as dead and its jobs are requeued, in seconds.
        on_dead: Called when this process counts as dead; it exits, because others have its jobs.
        clock: Returns seconds, including time spent suspended.
    """

    alone = False

    def __init__(
        self,
        parameters: Mapping[str, Any],
        *,
        works: bool,
        concurrency: int,
        dead_after_s: float,
        on_dead: Callable[[], None] = exit_at_once,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self._works = works
        self._concurrency = concurrency
        self._dead_after_s = dead_after_s
        self._beat_s = self.held_s = min(_POLL_S, dead_after_s / 4)  # a worker loses its jobs after two missed beats
        self._on_dead = on_dead
        self._workers: set[queue_worker.Worker] = set()
        self._doing: dict[int | None, list[str]] = {}  # jobs in progress, by their worker's queues
        self._left: dict[int, float] = {}  # unacknowledged jobs, with the time they ended
        self._work: Work | None = None
        self._attended: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._maintaining: asyncio.Task[None] | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._liveness = Liveness(self._beat_s, dead_after_s, clock)
        self._sure, self._woken = asyncio.Event(), asyncio.Event()
        self._sure.set()
        self._maintained, self._refusal = (
            asyncio.Event(),
            "",
        )  # set after maintenance; the database's reason
        self._opening, self._opened, self._closed = asyncio.Lock(), False, False
        self._parameters = dict(parameters)
        self._session: psycopg.AsyncConnection[Any] | None = None
        self._locked: set[int] = set()
        self._announced: set[int] = set()
        # Enqueues on connections of the store; it never opens its own.
        self._enqueueing = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())
        self._connector = procrastinate.PsycopgConnector(
            kwargs=self._parameters, min_size=1, max_size=_CONNECTIONS, timeout=_CONNECTION_TIMEOUT_S
        )
        self._app = procrastinate.App(connector=self._connector)
        self._app.task(name=_TASK, retry=_RequeueStrategy(), pass_context=True)(self._do)

    def enqueue(self, connection: sa.Connection, jobs: Sequence[ShardJob]) -> None:
        """Enqueue jobs in the connection's transaction."""
        if jobs:
            rows = [
                queue_jobs.Job(
                    queue=queue_of(job.run_id, hosted=job.hosted, is_last=job.shard_index == SUMMARY),
                    priority=job.priority,
                    lock=None,
                    queueing_lock=None,
                    task_name=_TASK,
                    task_kwargs={"run_id": job.run_id, "shard_index": job.shard_index, "ticket": job.ticket},
                )
                for job in jobs
            ]
            try:
                self._enqueueing.job_manager.batch_defer_jobs(rows, connection=_raw(connection))
            except procrastinate.exceptions.ConnectorException as problem:
                # The driver's own error, as for any other statement of the transaction.
                raise (problem.__cause__ or problem) from None

    def remove_jobs(self, connection: sa.Connection, run_id: str) -> None:
        """Remove the waiting jobs of a run; those of a hosted run would wait for a client forever."""
        connection.exec_driver_sql(_REMOVE, {"run_id": run_id})

    def committed(self, jobs: Iterable[ShardJob]) -> None:
        """Do nothing: the database notifies the workers."""

    def open(self, work: Work) -> None:
        """Start taking jobs."""
        self._work = work
        asyncio.get_running_loop().set_exception_handler(self._handle_exception)
        self._maintaining = asyncio.create_task(self._maintain_until_closed(), name="queue keeper")
        self._ticking = asyncio.create_task(self._tick(), name="queue clock")
        self._serve(_QUEUE if self._works else _ENDS)
        for queue in self._attended:
            self._serve(queue)

    def attend(self, run_id: str) -> None:
        """Also take the jobs of a run whose agent a client of this process hosts."""
        queue = queue_of(run_id, hosted=True)
        self._attended.add(queue)  # a client that reattaches may arrive before this process takes jobs
        self._serve(queue)

    def leave(self, run_id: str) -> None:
        """Take no more jobs of such a run."""
        queue = queue_of(run_id, hosted=True)
        self._attended.discard(queue)
        task = self._tasks.pop(queue, None)
        if task is not None:
            task.cancel()
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def find_lost(self, jobs: Sequence[ShardJob]) -> list[ShardJob]:
        """Return the jobs that the queue does not have."""
        await self._open()
        queued = {
            (job.task_kwargs["run_id"], job.task_kwargs["shard_index"], job.task_kwargs["ticket"])
            for status in ("todo", "doing")
            for job in await self._app.job_manager.list_jobs_async(task=_TASK, status=status)
        }
        return [job for job in jobs if (job.run_id, job.shard_index, job.ticket) not in queued]

    async def aclose(self) -> None:
        """Stop taking jobs, and wait until the jobs in progress have returned."""
        if self._closed:
            return
        # Jobs that wait for a heartbeat must not keep the process from stopping; without work they go back to the
        # queue.
        self._work, self._closed = None, True
        self._sure.set()
        self._maintained.set()
        keeping = [task for task in (self._maintaining, self._ticking) if task is not None]
        running = [*self._tasks.values(), *self._leaving, *keeping]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self._end_session()
        await self._app.close_async()

    def _serve(self, queue: str) -> None:
        if queue not in self._tasks and self._work is not None:
            self._tasks[queue] = asyncio.create_task(self._run(queue), name=f"queue {queue}")

    async def _run(self, queue: str) -> None:
        """Work on a queue until cancelled; a worker that ends, say after an outage, is replaced."""
        task = asyncio.current_task()
        while not self._closed and self._tasks.get(queue) is task:
            worker = queue_worker.Worker(
                self._app,
                queues=[_QUEUE, _ENDS] if queue == _QUEUE else [queue],
                name=f"{queue}@{os.getpid()}",
                concurrency=self._concurrency,
                fetch_job_polling_interval=_POLL_S,
                # Listening takes a connection of its own, which is too costly per hosted run.
                listen_notify=queue in (_QUEUE, _ENDS),
                update_heartbeat_interval=self._dead_after_s,  # `_maintain` sends them sooner, and also after an outage
                stalled_worker_timeout=_WORKER_ROW_AGE_S,
                delete_jobs="always",
                install_signal_handlers=False,
            )
            try:
                await self._open()
                self._workers.add(worker)
                await worker.run()  # type: ignore[no-untyped-call]  # the package has no annotation for it
            except _DATABASE_PROBLEMS as problem:
                _log.warning("cannot read the queue, retrying: %s", self._reason(problem))
            finally:
                self._workers.discard(worker)
            await asyncio.sleep(_RESTART_S)

    async def _maintain_until_closed(self) -> None:
        """Send heartbeats periodically, and requeue the jobs of dead workers."""
        while not self._closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_s):
                    await self._woken.wait()
            self._woken.clear()
            self._refusal = ""
            try:
                # A connection that hangs must count as an outage before other processes declare this one dead.
                async with asyncio.timeout(self._dead_after_s):
                    await self._maintain()
            except (*_DATABASE_PROBLEMS, TimeoutError) as problem:
                self._liveness.lose()
                await self._end_session()
                _log.warning("cannot maintain the queue, retrying: %s", self._reason(problem))
                self._refusal = _refusal(problem)
            self._maintained.set()
            # A new event for each round: the next caller waits for the end of the next round, not of this one.
            self._maintained = asyncio.Event()

    async def _maintain(self) -> None:
        await self._open()
        # The heartbeat first: it keeps other processes from taking the jobs that are reclaimed next.
        is_known = await self._beat()
        await self._reclaim_jobs()
        if self._liveness.trusts_silence and not is_known:
            _log.error(
                "exiting: the queue declared this process dead, and other workers have its jobs: dead_after_s=%g",
                self._dead_after_s,
            )
            self._on_dead()
        if self._liveness.trusts_locks:
            await self._reap()
        if self._liveness.trusts_silence:
            await self._requeue_unacknowledged()

    async def _tick(self) -> None:
        """Detect that this process was suspended."""
        while True:
            await asyncio.sleep(self._beat_s / 2)
            self._notice()

    def _notice(self) -> None:
        if self._liveness.tick() and not self._closed:
            _log.warning("process suspended, taking back its jobs before the next question: jobs=%d", len(self._doing))
            self._beat_first()

    def _beat_first(self) -> None:
        """Let this process beat before the next question: until then others could not release its locks."""
        if not self._closed:  # without a connection, there is neither a beat nor a question
            self._sure.clear()
            self._woken.set()

    async def until_sure(self) -> None:
        """Wait until this process, after a suspend, has sent a heartbeat and reclaimed the jobs that are still its own.

        From then on no other process takes them; jobs taken in the meantime show by their shards' epochs.

        Raises:
            StorageError: The database refused the heartbeat.
        """
        self._notice()
        while not self._sure.is_set():
            await self._maintained.wait()
            if self._refusal and not self._sure.is_set():
                raise StorageError(self._refusal)

    async def _until_sure_at_last(self) -> None:
        while True:
            with contextlib.suppress(StorageError):
                return await self.until_sure()

    async def _reclaim_jobs(self) -> None:
        """Reclaim requeued jobs that are still in progress here and that no worker has taken yet."""
        for worker in list(self._workers):
            jobs = [job_id for job_id, queues in self._doing.items() if queues == worker.queues]
            if jobs and worker.worker_id is not None and self._session is not None:
                reclaimed = await self._session.execute(_TAKE_BACK.encode(), (worker.worker_id, jobs))
                if reclaimed.rowcount:
                    _log.warning("took back requeued jobs: jobs=%d worker=%s", reclaimed.rowcount, worker.worker_id)
        self._sure.set()

    async def _beat(self) -> bool:
        """Send a heartbeat; return whether the queue has it.

        Each worker also has a lock, which the database releases as soon as the connection is gone, for
        example because the process was killed.
        """
        server_age_s = inf
        if self._session is None:
            connecting = {**self._parameters, "connect_timeout": _CONNECT_S}
            self._session = await psycopg.AsyncConnection.connect(**connecting, autocommit=True)
            row = await (await self._session.execute(_SERVER_AGE)).fetchone()
            assert row is not None, "a query without FROM has one row"
            server_age_s = float(row[0])
        own = {worker.worker_id for worker in self._workers if worker.worker_id is not None}
        for worker_id in own - self._locked:
            await self._session.execute(f"SELECT pg_advisory_lock_shared({_ALIVE})".encode(), (worker_id,))
            self._locked.add(worker_id)
        self._announce()
        beat = "UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = ANY(%s) RETURNING id"
        recorded = {row[0] for row in await (await self._session.execute(beat, (list(own),))).fetchall()}
        self._liveness.reach(server_age_s)
        HEARTBEAT.series().set_to_current_time()
        # A worker that has ended meanwhile has removed its row.
        return not {worker.worker_id for worker in self._workers}.intersection(own) - recorded

    def _announce(self) -> None:
        """Log the worker of this process that takes the shards of all runs, once other processes can see it."""
        for worker in self._workers:
            if _QUEUE in (worker.queues or ()) and worker.worker_id in self._locked - self._announced:
                self._announced.add(worker.worker_id)
                _log.info(
                    "worker joined: worker=%s pid=%d concurrency=%d", worker.worker_id, os.getpid(), self._concurrency
                )

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        self._locked.clear()
        if session is not None:
            await session.close()

    async def _reap(self) -> None:
        """Requeue the jobs of dead workers: those without heartbeats, or sooner those whose lock is free."""
        manager = self._app.job_manager
        async with self._connector.pool.connection() as connection:
            # One process at a time: two would requeue the same job twice.
            if not await _try_lock(connection, "%s, hashtext(current_schema())", _REAPER):
                return
            dead: set[int | None] = set()
            if self._liveness.trusts_silence:
                stalled = await manager.get_stalled_jobs(task_name=_TASK, seconds_since_heartbeat=self._dead_after_s)
                dead = {job.id for job in stalled}
                await self._end_sessions({job.worker_id for job in stalled if job.worker_id is not None})
            silent_s = GONE_BEATS * self._beat_s
            for job in await manager.get_stalled_jobs(task_name=_TASK, seconds_since_heartbeat=silent_s):
                is_gone = job.worker_id is not None and await _try_lock(connection, _ALIVE, job.worker_id)
                if job.id in dead or is_gone:
                    _log.warning(
                        "requeueing shard of a lost worker: run=%(run_id)s shard=%(shard_index)s worker=%(worker)s",
                        {**job.task_kwargs, "worker": job.worker_id},
                    )
                    await manager.retry_job(job)
                    failpoint("recovery.job_given_back")

    async def _end_sessions(self, workers: Collection[int]) -> None:
        """End the sessions of suspended processes: rows they were changing would stay locked."""
        if not workers or self._session is None:
            return
        try:
            ended = await (await self._session.execute(_END_SESSIONS.encode(), (list(workers),))).fetchone()
        except psycopg.errors.InsufficientPrivilege:
            _log.warning(
                "cannot end the database sessions of a dead worker, right missing: let all orchestrators connect as "
                "one user, and end these sessions with pg_terminate_backend: workers=%s",
                ",".join(map(str, workers)),
            )
            return
        if ended is not None and ended[0]:
            _log.warning("ended database sessions of dead workers: sessions=%d", ended[0])

    async def _requeue_unacknowledged(self) -> None:
        """Requeue jobs that have ended here without acknowledgement, which the queue takes for work in progress."""
        own = {worker.worker_id for worker in self._workers}
        now = asyncio.get_running_loop().time()
        jobs = await self._app.job_manager.list_jobs_async(task=_TASK, status="doing")
        remaining = {
            job.id: job for job in jobs if job.worker_id in own and job.id is not None and job.id not in self._doing
        }
        self._left = {job_id: self._left.get(job_id, now) for job_id in remaining}
        for job_id, since in self._left.items():
            if now - since > self._dead_after_s:
                _log.warning(
                    "requeueing shard whose end was not stored: run=%(run_id)s shard=%(shard_index)s",
                    remaining[job_id].task_kwargs,
                )
                await self._app.job_manager.retry_job(remaining[job_id])

    def _reason(self, problem: BaseException) -> str:
        return _reason(problem, str(self._parameters.get("password") or ""))

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log in one line the errors of procrastinate's workers when the database goes away; their jobs are retried."""
        problem = context.get("exception")
        if isinstance(problem, _DATABASE_PROBLEMS):
            _log.warning("cannot store the end of a job, retrying the job: %s", self._reason(problem))
        else:
            loop.default_exception_handler(context)

    async def _open(self) -> None:
        # If the database cannot be reached yet, every use retries it.
        async with self._opening:
            if not self._opened:
                await self._app.open_async()
                self._opened = True

    async def _do(self, context: procrastinate.JobContext, run_id: str, shard_index: int, ticket: int) -> None:
        # Until a new worker has its lock, other processes would notice only by its silence that it was killed.
        if context.job.worker_id not in self._locked:
            self._beat_first()
        await self._until_sure_at_last()
        if self._work is None:
            raise TryAgainError
        is_given_back = context.job.attempts > 0
        if context.job.id in self._doing or (is_given_back and self._liveness.is_returning):
            # The job is in progress here, or in a process that was suspended too and is about to reclaim it.
            raise TryAgainError(self._dead_after_s / 2)
        self._doing[context.job.id] = list(context.worker_queues or ())
        try:
            await self._work(run_id, shard_index, ticket)
        finally:
            self._doing.pop(context.job.id, None)


def _reason(problem: BaseException, password: str) -> str:
    """Return why the queue cannot be used and what to do about it, without the password."""
    if isinstance(problem, TimeoutError):
        return "the database did not answer in time"
    if isinstance(problem, procrastinate.exceptions.ProcrastinateException) and problem.__cause__ is not None:
        problem = problem.__cause__
    return sentence("its database", problem, password)


def _refusal(problem: BaseException) -> str:
    """Return the part of a database refusal that clients may see; empty if the problem may be temporary."""
    if isinstance(problem, procrastinate.exceptions.ProcrastinateException) and problem.__cause__ is not None:
        problem = problem.__cause__
    if not isinstance(problem, psycopg.Error) or is_passing(problem):
        return ""
    return client_sentence("the orchestrator's database", problem)


class _RequeueStrategy(queue_retry.BaseRetryStrategy):
    """Retries every failed job: at once if it asked for that, otherwise with exponential backoff."""

    def get_retry_decision(self, *, exception: BaseException, job: queue_jobs.Job) -> queue_retry.RetryDecision:
        if isinstance(exception, TryAgainError):
            wait_s = exception.after_s
        else:
            wait_s = 0.0 if isinstance(exception, asyncio.CancelledError) else min(_MOST_RETRY_S, 2.0**job.attempts)
        return queue_retry.RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=wait_s))


async def _try_lock(connection: psycopg.AsyncConnection[Any], key: str, number: int) -> bool:
    """Take a lock until the connection's transaction ends; return whether it was free."""
    row = await (await connection.execute(f"SELECT pg_try_advisory_xact_lock({key})".encode(), (number,))).fetchone()
    return row is not None and bool(row[0])


def _raw(connection: sa.Connection) -> psycopg.Connection[Any]:
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection), "the queue is for PostgreSQL alone"
    return raw
