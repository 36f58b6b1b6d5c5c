"""A database that cannot store, or whose file is away: no question is asked twice, and the run resumes by itself."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import sys
import uuid
from asyncio.subprocess import PIPE
from collections import Counter
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from tests.support.processes.waiting import until
from tests.support.services.refusals import refuse

from assay.agent_host.caller import AgentCaller
from assay.client.client import Client
from assay.errors import StorageError, UnavailableError, WrongStateError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import PauseCause, RowResult, Run, RunState, StateChanged
from assay_orchestrator.pipeline.storage_pauses import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSpec


_CASES = 60
_CONCURRENCY = 4
_REFUSALS = 8
"""How often a fault is met before it is lifted: each was a repeated question of everything in flight once."""


class _Agent:
    """Counts how often it is asked for each case.

    It holds answers back: first until there is a fault, then, but for those that meet it, until the fault is noticed.
    """

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.enough = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_continue = asyncio.Event()

    async def __call__(self, request: AgentRequest) -> str:
        self.asked[request.case_id] += 1
        number = self.asked.total()
        if number >= _CASES // 4:
            self.enough.set()
            await self.may_answer.wait()
        if number >= _CASES // 4 + _CONCURRENCY:
            await self.may_continue.wait()
        return "a" + request.input[1:]


@pytest.fixture
def serve(serve: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that serves an orchestrator that waits little before it stores rows again."""
    return functools.partial(serve, storage_backoff=Backoff(first_s=0.02, max_s=0.1))


@pytest.fixture
def database_url(migrated_postgres_url: str) -> str:
    """Return the URL of a PostgreSQL database; `serve` stores there."""
    return migrated_postgres_url


@pytest.fixture
def admin(migrated_postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Return a connection of an administrator, who makes faults and lifts them."""
    with psycopg.connect(migrated_postgres_url, autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def running(client: Client, settings: Any) -> AsyncIterator[tuple[Run, _Agent]]:
    """Yield a run whose hosted agent was asked some questions and holds its answers back, and the agent."""
    cases = [
        Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",)),), recordings=((AgentResponse(text=""),),))
        for i in range(_CASES)
    ]
    agent = _Agent()
    dataset = await client.upload_dataset(cases, name="d")
    run = await client.create_run(settings("python", "m:f", concurrency=_CONCURRENCY), dataset.dataset_id)
    hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=_CONCURRENCY))
    try:
        await agent.enough.wait()
        yield run, agent
    finally:
        hosting.cancel()
        await asyncio.gather(hosting, return_exceptions=True)


async def until_shown(client: Client, run_id: str, state: RunState) -> Run:
    """Return the run once it is shown in a state."""

    async def look() -> Run | None:
        with suppress(UnavailableError):
            return await client.get_run(run_id, partial=False)
        return None

    run: Run = await until(look, lambda run: run is not None and run.state is state)
    return run


async def ended(client: Client, run_id: str) -> list[str]:
    """Watch a run until it ends; return the states it was in and the cases of its results."""
    seen = [event async for event in client.watch_run(run_id) if not isinstance(event, Run)]
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    cases = [event.case_id for event in seen if isinstance(event, RowResult)]
    assert sorted(cases) == sorted({f"c{i}" for i in range(_CASES)})
    return [event.state.value for event in seen if isinstance(event, StateChanged)]


def assert_asked_once(agent: _Agent) -> None:
    """Fail if any question was asked twice, or not at all."""
    assert [case_id for case_id, count in agent.asked.items() if count != 1] == []
    assert len(agent.asked) == _CASES


STATES = {
    "53000": "lacks a resource",
    "53100": "its disk is full",
    "53200": "out of memory",
    "53400": "lacks a resource",
    "54000": "a limit of the server",
    "55P03": "another session holds a lock",
    "55006": "another session keeps",
    "57014": "statement_timeout",
    "25006": "may only be read",
    "42501": "lacks the right",
    "42P01": "failed: the service's log has the cause",
    "58030": "disk or operating system failed",
    "XX001": "damaged",
    "P0001": "failed: the service's log has the cause",
}


@pytest.mark.parametrize("state", STATES)
async def test_nothing_is_asked_while_rows_cannot_be_stored(
    serve: Callable[..., Any], settings_of: Callable[..., Any], admin: psycopg.Connection[Any], state: str
) -> None:
    """Whatever PostgreSQL refuses rows with: the run pauses with its reason, asks nothing, and resumes by itself."""
    async with serve() as client, running(client, settings_of) as (run, agent):
        refusal = await refuse(admin, state, "answers", "results")
        agent.may_answer.set()
        await refusal.until_met(3)
        paused = await until_shown(client, run.run_id, RunState.PAUSED)
        assert paused.pause_cause is PauseCause.STORAGE
        assert STATES[state] in paused.state_message
        assert [each.state for each in await client.list_runs()] == [RunState.PAUSED]
        asked = agent.asked.total()
        assert asked < _CASES
        agent.may_continue.set()
        await refusal.until_met(_REFUSALS)
        assert agent.asked.total() == asked
        await refusal.lift()
        assert await ended(client, run.run_id) == ["running", "paused", "running", "completed"]
    assert_asked_once(agent)


@pytest.mark.parametrize("state", ["57014", "53100", "55P03"])
async def test_a_refused_enqueue_fails_no_run(
    serve: Callable[..., Any], settings_of: Callable[..., Any], admin: psycopg.Connection[Any], state: str
) -> None:
    """The statement that enqueues what follows on a shard is one like any other."""
    async with serve() as client, running(client, settings_of) as (run, agent):
        refusal = await refuse(admin, state, "procrastinate_jobs")
        agent.may_answer.set()
        agent.may_continue.set()
        await refusal.until_met(_REFUSALS)
        paused = await until_shown(client, run.run_id, RunState.PAUSED)
        assert (paused.pause_cause, paused.counts.finished_count) == (PauseCause.STORAGE, _CASES)
        await refusal.lift()
        assert await ended(client, run.run_id) == ["running", "paused", "running", "completed"]
    assert_asked_once(agent)


@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
async def test_a_lock_that_is_held_for_long(
    serve: Callable[..., Any], settings_of: Callable[..., Any], migrated_postgres_url: str, setting: str
) -> None:
    """A dump or an ALTER TABLE that holds a lock for longer than a statement may take repeats no question."""
    url = f"{migrated_postgres_url}%20-c%20{setting}%3D300ms"
    async with serve(database_url=url) as client, running(client, settings_of) as (run, agent):
        with psycopg.connect(migrated_postgres_url) as locking:
            locking.execute("LOCK TABLE answers, results IN SHARE MODE")
            agent.may_answer.set()
            paused = await until_shown(client, run.run_id, RunState.PAUSED)
            agent.may_continue.set()
            assert setting in paused.state_message
        assert (await ended(client, run.run_id))[-1] == "completed"
    assert_asked_once(agent)


async def test_cancelled_statements(
    serve: Callable[..., Any],
    settings_of: Callable[..., Any],
    admin: psycopg.Connection[Any],
    migrated_postgres_url: str,
) -> None:
    """An administrator who cancels statements again and again repeats no question and fails no run."""
    async with serve() as client, running(client, settings_of) as (run, agent):
        cancelled: set[tuple[Any, ...]] = set()
        with psycopg.connect(migrated_postgres_url) as locking:
            locking.execute("LOCK TABLE answers, results IN SHARE MODE")

            def cancel() -> int:
                blocked = admin.execute(
                    "SELECT pid, query_start FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))",
                    [locking.info.backend_pid],
                ).fetchall()
                for pid, _ in blocked:
                    admin.execute("SELECT pg_cancel_backend(%s)", [pid])
                cancelled.update(blocked)
                return len(cancelled)

            agent.may_answer.set()
            await until(lambda: asyncio.to_thread(cancel), lambda count: count >= _REFUSALS)
            paused = await until_shown(client, run.run_id, RunState.PAUSED)
            assert paused.pause_cause is PauseCause.STORAGE
            agent.may_continue.set()
        assert (await ended(client, run.run_id))[-1] == "completed"
    assert_asked_once(agent)


async def test_a_missing_right(
    serve: Callable[..., Any],
    settings_of: Callable[..., Any],
    admin: psycopg.Connection[Any],
    migrated_postgres_url: str,
) -> None:
    """A right that is taken away pauses the run, and one that is given back resumes it."""
    name = f"writer_{uuid.uuid4().hex}"
    role = sql.Identifier(name)
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(role))
    schema = sql.Identifier(admin.execute("SELECT current_schema()").fetchone()[0])  # type: ignore[index]
    for what in ("SCHEMA", "ALL TABLES IN SCHEMA", "ALL SEQUENCES IN SCHEMA"):
        admin.execute(sql.SQL("GRANT ALL ON " + what + " {} TO {}").format(schema, role))
    try:
        parts = urlsplit(migrated_postgres_url)
        url = parts._replace(netloc=f"{name}:secret@{parts.netloc.rpartition('@')[2]}").geturl()
        async with serve(database_url=url) as client, running(client, settings_of) as (run, agent):
            admin.execute(sql.SQL("REVOKE INSERT ON answers, results FROM {}").format(role))
            agent.may_answer.set()
            paused = await until_shown(client, run.run_id, RunState.PAUSED)
            agent.may_continue.set()
            assert "GRANT it what it needs" in paused.state_message
            admin.execute(sql.SQL("GRANT INSERT ON answers, results TO {}").format(role))
            assert (await ended(client, run.run_id))[-1] == "completed"
        assert_asked_once(agent)
    finally:
        admin.execute(sql.SQL("DROP OWNED BY {}").format(role))
        admin.execute(sql.SQL("DROP ROLE {}").format(role))


async def test_a_server_that_may_only_be_read(
    serve: Callable[..., Any], settings_of: Callable[..., Any], killable_postgres: Any
) -> None:
    """Where not even the pause can be stored, its process shows it; a primary that is back ends it."""
    with psycopg.connect(killable_postgres.url, autocommit=True) as admin:

        def make(value: str) -> None:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
            admin.execute("SELECT pg_reload_conf()")

        async with (
            serve(database_url=killable_postgres.url, dead_after_s=1.0) as client,
            running(client, settings_of) as (run, agent),
        ):
            make("on")
            agent.may_answer.set()
            paused = await until_shown(client, run.run_id, RunState.PAUSED)
            assert (paused.pause_cause, "may only be read" in paused.state_message) == (PauseCause.STORAGE, True)
            agent.may_continue.set()
            (shown,) = await client.list_runs()
            assert shown.state is RunState.PAUSED
            stored = admin.execute("SELECT state, pause_cause FROM runs").fetchall()
            assert stored == [("running", "")]
            async with Client(client.address, patience_s=0) as hurried:
                with pytest.raises(UnavailableError, match="may only be read"):
                    await hurried.pause_run(run.run_id)
            make("off")
            assert (await ended(client, run.run_id))[-1] == "completed"
    assert_asked_once(agent)


async def test_watchers_see_a_pause_that_cannot_be_stored(
    serve: Callable[..., Any], settings_of: Callable[..., Any], admin: psycopg.Connection[Any]
) -> None:
    """A further snapshot says why nothing moves, and another one that it does again."""
    async with serve() as client, running(client, settings_of) as (run, agent):
        refusal = await refuse(admin, "53100", "answers", "results", "runs", "run_events")
        agent.may_answer.set()
        shown = list[RunState]()
        async for event in client.watch_run(run.run_id):
            if isinstance(event, Run):
                shown.append(event.state)
                if event.state is RunState.PAUSED:
                    assert "disk is full" in event.state_message
                    agent.may_continue.set()
                    await refusal.lift()
    assert RunState.PAUSED in shown
    assert_asked_once(agent)


async def test_its_owner_may_pause_a_run_that_waits_for_storage(
    serve: Callable[..., Any], settings_of: Callable[..., Any], admin: psycopg.Connection[Any]
) -> None:
    """The owner's pause takes the place of the other and stays afterwards; a resume repeats nothing."""
    async with serve() as client, running(client, settings_of) as (run, agent):
        refusal = await refuse(admin, "53100", "answers", "results")
        agent.may_answer.set()
        await until_shown(client, run.run_id, RunState.PAUSED)
        agent.may_continue.set()
        asked = agent.asked.total()
        pausing = asyncio.ensure_future(client.pause_run(run.run_id))
        cause = "SELECT pause_cause FROM runs"
        await until(lambda: admin.execute(cause).fetchone(), lambda seen: seen == ("owner",))
        await refusal.lift()
        await pausing
        paused = await until_shown(client, run.run_id, RunState.PAUSED)
        assert (paused.pause_cause, paused.counts.finished_count) == (PauseCause.OWNER, asked)
        assert agent.asked.total() == asked
        await client.resume_run(run.run_id)
        await client.host_agent(run.run_id, AgentCaller(agent), concurrency=_CONCURRENCY)
        assert (await client.get_run(run.run_id)).state is RunState.COMPLETED
    assert_asked_once(agent)


async def test_commands_take_a_run_that_waits_for_storage_for_a_running_one(
    serve: Callable[..., Any], settings_of: Callable[..., Any], admin: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """`runs prune` leaves it out, and `runs watch` follows it until it has ended."""

    async def command(*arguments: str) -> asyncio.subprocess.Process:
        to = ("--server", f"unix:{tmp_path}/o.sock")
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "assay_cli", "runs", *arguments, *to, stdout=PIPE, stderr=PIPE
        )

    async with serve() as client, running(client, settings_of) as (run, agent):
        refusal = await refuse(admin, "53100", "answers", "results")
        agent.may_answer.set()
        await until_shown(client, run.run_id, RunState.PAUSED)
        prune = await command("prune", "--keep", "0", "--state", "paused", "--yes")
        assert (await prune.communicate())[0].decode() == "no run is that old\n"
        assert prune.returncode == 0
        watch = await command("watch", run.run_id)
        assert watch.stderr is not None
        assert f"run {run.run_id}: {_CASES} cases" in (await watch.stderr.readline()).decode()
        agent.may_continue.set()
        await refusal.lift()
        shown, _ = await watch.communicate()
        assert watch.returncode == 0, shown
        assert "verdict  PASS  the gate holds" in shown.decode()


async def test_a_run_that_waits_for_storage_can_be_cancelled(
    serve: Callable[..., Any], settings_of: Callable[..., Any], admin: psycopg.Connection[Any]
) -> None:
    """A cancel drops what waits to be stored; it need not wait for it."""
    async with serve() as client, running(client, settings_of) as (run, agent):
        await refuse(admin, "53100", "answers", "results")
        agent.may_answer.set()
        await until_shown(client, run.run_id, RunState.PAUSED)
        assert (await client.cancel_run(run.run_id)).state is RunState.CANCELLED


async def test_a_stop_keeps_its_grace_period_while_rows_cannot_be_stored(
    serve: Callable[..., Any],
    settings_of: Callable[..., Any],
    admin: psycopg.Connection[Any],
    migrated_postgres_url: str,
) -> None:
    """The process drops the answers it cannot store; another one resumes the run once they can be."""
    async with serve(grace_s=1.0) as client, running(client, settings_of) as (run, agent):
        refusal = await refuse(admin, "53100", "answers", "results")
        agent.may_answer.set()
        await until_shown(client, run.run_id, RunState.PAUSED)
        agent.may_continue.set()
    await refusal.lift()
    async with serve(reconcile_s=0.1) as client:
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=_CONCURRENCY))
        assert (await ended(client, run.run_id))[-1] == "completed"
        await hosting
    assert max(agent.asked.values()) <= 2


CASES = 40


class Agent:
    """Counts its questions; holds its answers back from the tenth question on."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.enough = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def __call__(self, request: AgentRequest) -> str:
        """Answer a question."""
        self.asked[request.case_id] += 1
        if self.asked.total() >= 10:
            self.enough.set()
            await self.may_answer.wait()
        return "a"


async def shown_as(client: Client, run_id: str, state: RunState) -> Run:
    """Return a run once it is shown in a state."""
    run: Run = await until(lambda: client.get_run(run_id, partial=False), lambda run: run.state is state)
    return run


async def test_a_run_whose_file_is_away_says_so_and_resumes_when_it_is_back(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    tmp_path: Path,
    settings_of: Callable[..., RunSpec],
) -> None:
    """Where not even its pause can be stored, a run is shown as paused, with the reason, by everything that shows runs.

    What needs the store is refused meanwhile, with the same reason. Nobody has to resume the run.
    """
    agent, file = Agent(), tmp_path / "assay.db"
    async with serve_at(tmp_path, storage_backoff=Backoff(first_s=0.02, max_s=0.1)) as client:
        dataset = await client.upload_dataset(
            [Case(f"c{i}", (Turn("q", references=("a",)),)) for i in range(CASES)], name="d"
        )
        run = await client.create_run(settings_of("python", "m:f", concurrency=4), dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=4))
        await agent.enough.wait()
        await asyncio.gather(*(client.get_run(run.run_id) for _ in range(8)))  # every reader has its connection
        file.rename(tmp_path / "away.db")
        agent.may_answer.set()
        shown = await shown_as(client, run.run_id, RunState.PAUSED)
        assert shown.pause_cause is PauseCause.STORAGE
        assert "was deleted or replaced while it was in use" in shown.state_message
        (listed,) = await client.list_runs()
        assert (listed.state, listed.state_message) == (RunState.PAUSED, shown.state_message)
        snapshot = await anext(event async for event in client.watch_run(run.run_id))
        assert isinstance(snapshot, Run)
        assert snapshot.state is RunState.PAUSED
        async with Client(client.address, patience_s=0) as hurried:
            for operation in (hurried.pause_run, hurried.cancel_run):
                with pytest.raises((StorageError, UnavailableError), match="was deleted or replaced"):
                    await operation(run.run_id)
        with pytest.raises(WrongStateError, match="resumes by itself when its rows can be stored: cancel it"):
            await client.delete_run(run.run_id)
        (tmp_path / "away.db").rename(file)
        done = await shown_as(client, run.run_id, RunState.COMPLETED)
        await asyncio.wait([hosting])
    assert done.counts.finished_count == CASES
    assert agent.asked == Counter({f"c{i}": 1 for i in range(CASES)})


async def test_what_follows_a_shard_that_could_not_be_ended_begins_when_it_is(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    tmp_path: Path,
    settings_of: Callable[..., RunSpec],
) -> None:
    """The end of a shard is refused, so that the next one of its run is enqueued when the pause ends."""
    cases = [
        Case(f"c{i}", (Turn("q", references=("a",)),), recordings=((AgentResponse(text="a"),),)) for i in range(1_500)
    ]
    async with serve_at(tmp_path, storage_backoff=Backoff(first_s=0.02, max_s=0.1)) as client:
        with closing(sqlite3.connect(tmp_path / "assay.db", isolation_level=None)) as admin:
            dataset = await client.upload_dataset(cases, name="d")
            admin.execute(
                "CREATE TRIGGER refuse BEFORE UPDATE ON shards WHEN NEW.state = 'done' "
                "BEGIN SELECT RAISE(ABORT, 'no shard ends'); END"
            )
            run = await client.create_run(settings_of(concurrency=1), dataset.dataset_id)
            cause = "SELECT pause_cause FROM runs"  # the pause itself is stored
            await until(lambda: admin.execute(cause).fetchone(), lambda seen: seen == ("storage",))
            admin.execute("DROP TRIGGER refuse")
        done = await shown_as(client, run.run_id, RunState.COMPLETED)
    assert done.counts.finished_count == len(cases)
