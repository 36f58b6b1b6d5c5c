"""Control operations of two processes at once, chosen by tests or at random, leave a run as some order would have."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import random
from contextvars import ContextVar
from itertools import product
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.support.judge_specs import judge_of
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import await_end

from assay.errors import NotFoundError, WrongStateError
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, AgentStatus, error_response
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef, PauseCause, RowResult, Run, RunState, SpendCap
from assay.model.scope import LOCAL
from assay_orchestrator.engine.dispatcher_factory import open_dispatcher
from assay_orchestrator.runs.manager import RunManager
from assay_orchestrator.runs.planner import Planner
from assay_orchestrator.settings import Settings
from assay_orchestrator.store import schema
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.runs import datasets, lifecycle, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.shards import shards
from assay_orchestrator.store.updates import RunUpdate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from assay.model.run import RunSpec
    from assay.model.scope import Scope
    from assay.storage.database import Database

    Operation = Callable[[RunManager, str], Awaitable[object]]
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client


CASES = 4
ERRORS = (1, 2)
CAP = 5 * 10**9
BEFORE_FIRST_WRITE: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("BEFORE_FIRST_WRITE", default=None)


class Paced:
    """A store in which operations wait before a change: whatever they check before it is checked by then."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.read = database.read
        self.close = database.close
        self.forget_deleted = database.forget_deleted

    async def write(self, change: Callable[[sa.Connection], Any], *, durable: bool = True) -> Any:
        """Wait, then make a change."""
        if (wait := BEFORE_FIRST_WRITE.get()) is not None:
            await wait()
        return await self._database.write(change, durable=durable)


@pytest_asyncio.fixture
async def managers(tmp_path: Path, migrated_postgres_url: str) -> AsyncIterator[tuple[RunManager, RunManager]]:
    """Return two managers over one database that accept operations and work on nothing."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            settings = Settings(database=tmp_path / "none.db", database_url=migrated_postgres_url, role="api")
            database = open_database(settings)
            stack.callback(database.close)
            planner, dispatcher = Planner(settings, None), open_dispatcher(settings, database)
            one = RunManager(Paced(database), settings, planner, dispatcher, pause_wait_s=0.0)
            await one.start()
            stack.push_async_callback(one.aclose)
            made.append(one)
        yield made[0], made[1]


@pytest.fixture
def engine(migrated_postgres_url: str) -> Iterator[sa.Engine]:
    """Return a plain engine beside the managers."""
    made = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(migrated_postgres_url))
    yield made
    made.dispose()


async def retry(manager: RunManager, run_id: str) -> object:
    """Retry the errors of a run."""
    return await manager.resume(LOCAL, run_id, retry_errors=True)


async def cap(manager: RunManager, run_id: str) -> object:
    """Change the spend cap of a run."""
    return await manager.update(LOCAL, run_id, RunUpdate(spend_cap=SpendCap(CAP)))


async def fail(manager: RunManager, run_id: str) -> None:
    """End a run because of a defect."""
    await manager.fail_run(run_id, ValueError("a defect of this test's"))


def of_client(method: Callable[[RunManager, Scope, str], Awaitable[object]]) -> Operation:
    """Return what a client requests, within its scope."""
    return lambda manager, run_id: method(manager, LOCAL, run_id)


def delete(manager: RunManager, scope: Scope, run_id: str) -> Awaitable[object]:
    """Delete a run that no baseline points to."""
    return manager.delete(scope, run_id, validate_only=False, with_baselines=False)


OPERATIONS: dict[str, Operation] = {
    "pause": of_client(RunManager.pause), "resume": of_client(RunManager.resume), "retry": retry, "cap": cap,
    "cancel": of_client(RunManager.cancel), "delete": of_client(delete),
    "conclude": RunManager.conclude_run, "fail": fail,
}  # fmt: skip
STARTS = ("running", "busy", "pausing", "all done", "paused", "completed", "clean", "failed", "cancelled")
GOING = ("running", "busy", "pausing", "all done", "all done, pausing")
ENDED = ("completed", "clean", "failed", "cancelled")


@dataclasses.dataclass(frozen=True)
class Model:
    """A run as the documentation describes it.

    Args:
        phase: One of STARTS, or what follows.
        retrying: Whether rows with errors are still to be set aside.
        cap: The spend cap.
    """

    phase: str
    retrying: bool = False
    cap: float | None = None

    def after(self, operation: str) -> tuple[Model, str]:
        """Return the run after an operation, and how that ended: the reason of its error, or nothing."""
        if self.phase == "gone":
            return self, "" if operation in ("conclude", "fail") else "RUN_NOT_FOUND"
        return getattr(self, f"_{operation}")()  # type: ignore[no-any-return]

    def _to(self, phase: str, **changes: Any) -> tuple[Model, str]:
        return dataclasses.replace(self, phase=phase, **changes), ""

    def _pause(self) -> tuple[Model, str]:
        if self.phase in ENDED:
            return self, "RUN_ENDED"
        return self._to(
            {"running": "paused", "busy": "pausing", "all done": "all done, pausing"}.get(self.phase, self.phase)
        )

    def _resume(self) -> tuple[Model, str]:
        if self.phase in ENDED:
            return self, "RUN_ENDED"
        # No job belongs to the shard that a busy run has here: it is given back.
        back = {"paused": "running", "busy": "running", "pausing": "running", "all done, pausing": "all done"}
        return self._to(back.get(self.phase, self.phase))

    def _retry(self) -> tuple[Model, str]:
        if self.phase == "cancelled":
            return self, "RUN_ENDED"
        if self.phase == "clean":
            return self, ""
        if self.phase in GOING:
            return self._resume() if self.retrying else (self, "RUN_ACTIVE")
        return self._to("running", retrying=True)

    def _cap(self) -> tuple[Model, str]:
        if self.phase in GOING and self.cap != CAP:
            return self, "RUN_ACTIVE"
        return self._to(self.phase, cap=CAP)

    def _cancel(self) -> tuple[Model, str]:
        if self.phase in ENDED:
            return self, "" if self.phase == "cancelled" else "RUN_ENDED"
        return self._to("cancelled")

    def _delete(self) -> tuple[Model, str]:
        return (self, "RUN_ACTIVE") if self.phase in GOING else self._to("gone")

    def _conclude(self) -> tuple[Model, str]:
        return self._to("completed" if self.phase.startswith("all done") else self.phase)

    def _fail(self) -> tuple[Model, str]:
        return self._to("failed" if self.phase in GOING else self.phase)

    @property
    def stored(self) -> tuple[str, bool, bool, float | None] | None:
        """The run as it is stored: its state, whether it is pausing, whether errors are to be set aside, its cap."""
        if self.phase == "gone":
            return None
        state = self.phase
        if self.phase.endswith("pausing"):
            state = "pausing"
        elif self.phase in GOING:
            state = "running"
        elif self.phase == "clean":
            state = "completed"
        return state, self.phase.endswith("pausing"), self.retrying, self.cap


def in_order(phase: str, names: tuple[str, ...], *, reverse: bool = False) -> tuple[list[str], object]:
    """Return how operations end one after the other, and the run afterwards."""
    run, outcomes = Model(phase), []
    for name in names:
        run, outcome = run.after(name)
        outcomes.append(outcome)
    return outcomes[::-1] if reverse else outcomes, run.stored


def store_run(connection: sa.Connection, run_id: str, phase: str, settings: RunSpec) -> None:
    """Store a run in a phase, some of its rows with errors."""
    settings = dataclasses.replace(settings, judges=(judge_of("openai", "some-model"),), metrics=(), gates=())
    dataset = DatasetRef("d", "names", CASES)
    if datasets.get_dataset(connection, LOCAL.team, "d") is None:
        cases = [Case(f"c{index}", (Turn(f"q{index}", references=("a",)),)) for index in range(CASES)]
        datasets.add_cases(connection, "u", 0, [(case.case_id, datasets.case_text(case)) for case in cases])
        datasets.finish_upload(connection, LOCAL, "u", dataset)
    record = RunRecord(
        run_id, f"of {run_id}", "h", dataclasses.asdict(settings), "d", CASES, "0", "2026-01-01", "local"
    )
    runs.create_run(connection, record)
    shards.create_shards(connection, run_id, CASES, 1)
    runs.change_state(connection, run_id, RunState.RUNNING)
    finished = 2 if phase in ("running", "busy", "pausing", "paused") else CASES
    rows = [
        RowResult(
            f"c{index}", index, 1, "", AgentStatus.ERROR if is_error else AgentStatus.SUCCESS, not is_error, (), 1.0, ""
        )
        for index in range(finished)
        for is_error in [index in ERRORS and phase != "clean"]
    ]
    answers = [AnswerRecord(row.case_index, 1, 0, AgentResponse(text="a")) for row in rows]
    results.put_rows(connection, run_id, answers, rows, {})
    state = {"busy": "taken", "pausing": "taken", "running": "waiting", "paused": "waiting"}.get(phase, "done")
    connection.execute(schema.shards.update().where(schema.shards.c.run_id == run_id).values(state=state, epoch=1))
    if phase in ("paused", *ENDED):
        ended = RunState("completed" if phase == "clean" else phase)
        runs.change_state(connection, run_id, ended, cause=PauseCause.OWNER if ended is RunState.PAUSED else None)
    elif phase == "pausing":
        runs.apply_command(connection, run_id, lifecycle.Command.PAUSE)


def stored(connection: sa.Connection, run_id: str) -> tuple[str, bool, bool, float | None] | None:
    """Return a run as `Model.stored` describes it, once its counts are those of its rows."""
    run = runs.load_run(connection, run_id)
    if run is None:
        return None
    assert run == results.recounted(connection, dataclasses.replace(run, finished_count=-1))
    retrying = sa.select(sa.func.count()).where(schema.shards.c.run_id == run_id, schema.shards.c.retry_errors)
    is_pausing = run.state is RunState.PAUSING
    return run.state.value, is_pausing, bool(connection.execute(retrying).scalar()), run.spec["spend_cap_nano_usd"]


async def outcome_of(operation: Awaitable[object]) -> str:
    """Return how an operation ended: the reason of its error, or nothing."""
    try:
        await operation
    except (WrongStateError, NotFoundError) as problem:
        return problem.reason
    return ""


async def one_after_the_other(
    managers: tuple[RunManager, RunManager], run_id: str, names: tuple[str, str]
) -> list[str]:
    """Carry out an operation at each of two processes; the changes of the first come when the second has checked."""
    tasks, released = [], [asyncio.Event(), asyncio.Event()]
    waiting = [asyncio.Event(), asyncio.Event()]
    for index, name in enumerate(names):

        async def wait(index: int = index) -> None:
            waiting[index].set()
            await released[index].wait()

        token = BEFORE_FIRST_WRITE.set(wait)
        tasks.append(asyncio.ensure_future(outcome_of(OPERATIONS[name](managers[index], run_id))))
        BEFORE_FIRST_WRITE.reset(token)
    for index, task in enumerate(tasks):
        reached = asyncio.ensure_future(waiting[index].wait())
        await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
    outcomes = []
    for index, task in enumerate(tasks):
        released[index].set()
        outcomes.append(await task)
    return outcomes


@pytest.mark.parametrize("phase", STARTS)
async def test_two_operations_at_once_are_as_one_after_the_other(
    phase: str, managers: tuple[RunManager, RunManager], engine: sa.Engine, settings_of: Callable[..., RunSpec]
) -> None:
    """Every pair, each at its own process: the second has checked everything before the first changes anything."""
    wrong = []
    for number, names in enumerate(product(OPERATIONS, OPERATIONS)):
        run_id = f"r{number}"
        with engine.begin() as connection:
            store_run(connection, run_id, phase, settings_of())
        found = await one_after_the_other(managers, run_id, names)
        with engine.begin() as connection:
            state = stored(connection, run_id)
        orders = [in_order(phase, names), in_order(phase, names[::-1], reverse=True)]
        if (found, state) not in orders:
            wrong.append(f"{phase}: {names}: {found}, {state}; possible: {orders}")
    assert not wrong, "\n".join(wrong)


ROUNDS = 12
MANY_CASES = 60


def operations(client: Client) -> list[Callable[[str], Awaitable[object]]]:
    """Return what operators do most, and what ends a run, which they do less often."""
    retry = client.retry_run
    often: list[Callable[[str], Awaitable[object]]] = [client.pause_run, client.resume_run, retry]
    return [*often, *often, *often, client.cancel_run, client.delete_run]


async def attempt(operation: Awaitable[object]) -> bool:
    """Carry out an operation that may come too late; return whether it did not."""
    try:
        await operation
    except (WrongStateError, NotFoundError):
        return False
    return True


def assert_whole(connection: sa.Connection, run_id: str, *, is_done: bool) -> None:
    """Check that a run's counts are those of its rows, and that no attempt is missing or there twice."""
    run = runs.load_run(connection, run_id)
    assert run is not None
    table, history = schema.results, schema.row_history
    rows = connection.execute(sa.select(table.c.status, table.c.passed).where(table.c.run_id == run_id)).all()
    counted = (run.finished_count, run.passed_count, run.failed_count, run.agent_error_count)
    assert counted == (
        len(rows),
        sum(row.passed is True for row in rows),
        sum(row.passed is False for row in rows),
        sum(row.status == "error" for row in rows),
    )
    assert run == results.recounted(connection, run)
    found: dict[tuple[int, int], list[int]] = {}
    for row in connection.execute(
        sa.select(history).where(history.c.run_id == run_id).order_by(history.c.attempt_index)
    ):
        assert row.outcome == "retried"
        found.setdefault((row.case_index, row.repeat), []).append(row.attempt_index)
    assert all(indexes == list(range(len(indexes))) for indexes in found.values())
    if is_done:
        assert len(rows) == run.total_count
        states = schema.shards.c.state
        assert set(connection.execute(sa.select(states).where(schema.shards.c.run_id == run_id)).scalars()) == {"done"}


async def at_rest(client: Client, run_id: str) -> Run | None:
    """Return a run once it is paused or has ended; None where it was deleted."""

    async def look() -> Run:
        with contextlib.suppress(WrongStateError):
            await client.pause_run(run_id)
        return await client.get_run(run_id)

    try:
        run: Run = await until(look, lambda run: run.finished or run.state is RunState.PAUSED)
    except NotFoundError:
        return None
    return run


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_operators_at_two_processes_corrupt_nothing(
    seed: int,
    tmp_path: Path,
    migrated_postgres_url: str,
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    settings_of: Callable[..., RunSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After each round of operations at both, counts, attempts and states are right, and every run still ends."""
    monkeypatch.setattr(shards, "create_shards", functools.partial(shards.create_shards, rows=8))
    chance = random.Random(seed)
    failed = error_response(AgentErrorKind.RAISED, "recorded", retryable=False)
    content = [
        Case(
            f"c{i}",
            (Turn(f"q{i}", references=("a",)),),
            recordings=((failed if i % 3 == 0 else AgentResponse(text="a"),),),
        )
        for i in range(MANY_CASES)
    ]
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(migrated_postgres_url), poolclass=sa.NullPool
    )
    options = {"database_url": migrated_postgres_url, "row_try_limit": 1000}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with (
        serve_at(tmp_path / "a", **options) as first,
        serve_at(tmp_path / "b", **options) as second,
    ):
        dataset = await first.upload_dataset(content, name="d")
        run_id, done_count = "", 0
        for _ in range(ROUNDS):
            if not run_id:
                run_id = (await first.create_run(settings_of(), dataset.dataset_id)).run_id
                keeper = await second.create_run(settings_of(), dataset.dataset_id)  # so that the dataset stays
            moves = [chance.choice(operations(chance.choice((first, second))))(run_id) for _ in range(6)]
            done_count += sum(await asyncio.gather(*map(attempt, moves)))
            run = await at_rest(second, run_id)
            if run is None:
                run_id = ""
                continue
            with engine.connect() as connection:
                assert_whole(connection, run_id, is_done=run.state is RunState.COMPLETED)
            if run.state is RunState.CANCELLED:
                run_id = ""
            for client in (first, second):
                assert await client.list_runs()
        assert (await first.get_run(keeper.run_id)).run_id == keeper.run_id
        for each in filter(None, (run_id, keeper.run_id)):
            with contextlib.suppress(WrongStateError):
                await first.resume_run(each)
            await await_end(second, each)
            assert (await first.get_run(each)).state is RunState.COMPLETED
            with engine.connect() as connection:
                assert_whole(connection, each, is_done=True)
    assert done_count >= ROUNDS, "operators did something in the rounds"
