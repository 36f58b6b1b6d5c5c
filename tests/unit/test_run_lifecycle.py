"""The life of a run as its table declares it: what each command does in each phase, and what it must not do."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import sqlalchemy as sa
from tools.run_lifecycle import state_diagram

from assay.errors import WrongStateError
from assay.model.run import FINISHED_STATES, DatasetRef, PauseCause, RunState, SpendCap
from assay.model.scope import LOCAL
from assay_orchestrator.store import control, schema, updates
from assay_orchestrator.store.control import Resumption
from assay_orchestrator.store.removal import deletions
from assay_orchestrator.store.runs import datasets, run_conditions, runs
from assay_orchestrator.store.runs.lifecycle import (
    PHASES_AT_REST,
    RUNNABLE_PHASES,
    TRANSITIONS,
    Command,
    Effect,
    Phase,
    phase_of,
    refusal,
)
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.shards import shards
from assay_orchestrator.store.updates import RunUpdate

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "runs.md"
STORED = {
    Phase.PENDING: (RunState.PENDING, None),
    Phase.RUNNING: (RunState.RUNNING, None),
    Phase.PAUSING: (RunState.PAUSING, PauseCause.OWNER),
    Phase.WAITING_FOR_STORAGE: (RunState.RUNNING, PauseCause.STORAGE),
    Phase.PAUSED: (RunState.PAUSED, PauseCause.JUDGE),
    Phase.COMPLETED: (RunState.COMPLETED, None),
    Phase.FAILED: (RunState.FAILED, None),
    Phase.CANCELLED: (RunState.CANCELLED, None),
}
ILLEGAL = [pair for pair in product(STORED, Command) if pair not in TRANSITIONS]
REQUESTS = (Command.PAUSE, Command.RESUME, Command.RETRY, Command.CHANGE_CAP, Command.CANCEL, Command.DELETE)
"""What clients ask for: they get an error where it is refused."""
ENDED = {state.value for state in FINISHED_STATES}


def named(pair: object) -> str | None:
    """Return the name of a phase or command in a test's id."""
    return pair.value if isinstance(pair, Phase | Command) else None


@pytest.fixture
def connection() -> sa.Connection:
    """Return a connection to tables with one run of one shard."""
    connection = sa.create_engine("sqlite://").connect()
    schema.metadata.create_all(connection)
    connection.execute(schema.fair_clock.insert().values(clock_id=1, virtual_time=0.0))
    upload = datasets.new_upload_id()
    datasets.add_cases(connection, upload, 0, [("c", "{}")])
    datasets.finish_upload(connection, LOCAL, upload, DatasetRef("d", "names", 1))
    spec = {"repeats": 1, "spend_cap_nano_usd": 10**9}
    runs.create_run(connection, RunRecord("r", "q", "h", spec, "d", 1, "0.1.0", "2026-01-01", "local"))
    shards.create_shards(connection, "r", 1, 1)
    return connection


def put_into(connection: sa.Connection, phase: Phase) -> None:
    """Store the run as it is in a phase."""
    state, cause = STORED[phase]
    connection.execute(
        schema.runs.update().values(state=state.value, pause_cause=cause.value if cause is not None else "")
    )


def stored(connection: sa.Connection) -> tuple[Phase, PauseCause | None, int]:
    """Return phase, pause cause and last event of the run."""
    run = runs.load_run(connection, "r")
    assert run is not None
    return run.phase, run.pause_cause, run.last_sequence


def request(connection: sa.Connection, command: Command) -> object:
    """Make a client's request through the function that serves it."""
    if command is Command.DELETE:
        return deletions.begin_deletion(connection, LOCAL, "r")
    if command is Command.PAUSE:
        return control.pause(connection, LOCAL, "r")
    if command is Command.CANCEL:
        return control.cancel(connection, LOCAL, "r")
    if command is Command.CHANGE_CAP:
        return updates.update_run(connection, LOCAL, "r", RunUpdate(spend_cap=SpendCap(2 * 10**9)))
    return control.resume(connection, LOCAL, "r", Resumption(retry_errors=command is Command.RETRY))


@pytest.mark.parametrize(("phase", "command"), ILLEGAL, ids=named)
def test_an_illegal_transition_changes_nothing(connection: sa.Connection, phase: Phase, command: Command) -> None:
    """A command that the table does not have in a phase stores neither a state nor an event."""
    put_into(connection, phase)
    before = stored(connection)
    assert runs.apply_command(connection, "r", command) is None
    assert stored(connection) == before


@pytest.mark.parametrize(("phase", "command"), [pair for pair in ILLEGAL if pair[1] in REQUESTS], ids=named)
def test_an_illegal_request_is_refused(connection: sa.Connection, phase: Phase, command: Command) -> None:
    """A client whose request the table does not have learns why: the run is active, or has ended."""
    put_into(connection, phase)
    before = stored(connection)
    reason = "RUN_ENDED" if phase.value in ENDED else "RUN_ACTIVE"
    assert refusal("r", phase, command).reason == reason
    if command is Command.DELETE:  # the manager refuses it before
        assert request(connection, command) is None
    else:
        with pytest.raises(WrongStateError) as caught:
            request(connection, command)
        assert caught.value.reason == reason
    assert stored(connection) == before


@pytest.mark.parametrize(
    ("phase", "command"), [pair for pair in TRANSITIONS if pair[1] is not Command.DELETE], ids=named
)
def test_a_legal_transition_is_stored(connection: sa.Connection, phase: Phase, command: Command) -> None:
    """A run is afterwards in the phase that the table names, with its cause, and with an event where it says so."""
    put_into(connection, phase)
    _, cause, sequence = stored(connection)
    transition = TRANSITIONS[phase, command]
    assert runs.apply_command(connection, "r", command, message="why") == transition
    is_event = transition.effect is Effect.EVENT
    expected_cause = cause if transition.effect is Effect.NOTHING else transition.cause
    assert stored(connection) == (transition.phase, expected_cause, sequence + is_event)


@pytest.mark.parametrize("phase", STORED, ids=named)
def test_conditions_of_queries_agree_with_the_table(connection: sa.Connection, phase: Phase) -> None:
    """The conditions in SQL tell the phases apart as the table does, and each phase is read back as it was stored."""
    put_into(connection, phase)
    assert phase_of(*STORED[phase]) is phase

    def holds(condition: sa.ColumnElement[bool]) -> bool:
        return connection.execute(sa.select(schema.runs.c.run_id).where(condition)).one_or_none() is not None

    assert holds(run_conditions.is_active()) is (phase not in PHASES_AT_REST)
    assert holds(run_conditions.is_at_rest()) is (phase in PHASES_AT_REST)
    assert holds(run_conditions.is_runnable()) is (phase in RUNNABLE_PHASES)
    assert holds(run_conditions.waits_for_storage()) is (phase is Phase.WAITING_FOR_STORAGE)


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (Phase.COMPLETED, "run r has already completed"),
        (Phase.FAILED, "run r has already failed"),
        (Phase.CANCELLED, "run r was already cancelled"),
    ],
)
def test_a_refusal_names_how_a_run_ended(phase: Phase, message: str) -> None:
    """The sentence fits each state in which a run ends."""
    assert refusal("r", phase, Command.PAUSE).message == message


def test_the_guide_shows_the_table() -> None:
    """The diagram of the guide is the one that the table gives: `python -m tools.run_lifecycle` prints it."""
    assert f"```mermaid\n{state_diagram()}```" in GUIDE.read_text(encoding="utf-8")
