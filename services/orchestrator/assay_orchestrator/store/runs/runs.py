"""Queries about runs and their states."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.errors import NotFoundError
from assay.model.run import FINISHED_STATES, PauseCause, RunCounts, RunState, StateChanged
from assay.model.scope import Scope
from assay.storage.texts import CleanText, json_text
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import datasets
from assay_orchestrator.store.runs.lifecycle import TRANSITIONS, Command, Effect, Phase, Transition, phase_of
from assay_orchestrator.store.runs.run_conditions import is_active, is_reached, waits_for_storage
from assay_orchestrator.store.runs.run_figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Sequence

PAUSED_BY_OWNER = "requested by its owner"
PAUSED_TEAM_DISABLED = "the operator has disabled the team; stored rows are kept"

_CREATION_LOCK = 0x41535352
_COUNTS = ("total_count", "finished_count", "passed_count", "failed_count", "agent_error_count", "interrupted_count")
"""The columns of a run's counts, which are fields of `RunCounts`."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A stored run; times are ISO 8601 texts.

    Args:
        team: The team that owns it, with its dataset and its request id.
        answered_count: Rows with a stored answer; `results.with_answered` counts them while the run is paused.
        fair_share: The name in its spec's `team`, under which it shares the workers.
        group_id: The group of runs that advance together; empty for none.
        traceparent: The span of the call that created it; empty if none was recorded.
        dataset_name: The name of its dataset when it was created.
    """

    run_id: str
    request_id: str
    request_hash: str
    spec: dict[str, Any]
    dataset_id: str
    total_count: int
    assay_version: str
    created_at: str
    team: str
    state: RunState = RunState.PENDING
    state_message: str = ""
    finished_count: int = 0
    passed_count: int = 0
    failed_count: int = 0
    agent_error_count: int = 0
    answered_count: int = 0
    last_sequence: int = 0
    summary: dict[str, Any] | None = None
    started_at: str | None = None
    ended_at: str | None = None
    pause_cause: PauseCause | None = None
    fair_share: str = ""
    weight: float = 1.0
    agent_key: str = ""
    concurrency: int = 1
    hosted: bool = False
    group_id: str = ""
    traceparent: str = ""
    interrupted_count: int = 0
    dataset_name: str = ""

    @property
    def finished(self) -> bool:
        """Whether the run has completed, failed or been cancelled."""
        return self.state in FINISHED_STATES

    @property
    def phase(self) -> Phase:
        """The state of the run as the store distinguishes them."""
        return phase_of(self.state, self.pause_cause)


def create_run(connection: sa.Connection, run: RunRecord) -> tuple[RunRecord, bool]:
    """Store a new run, unless its request id has already created a run of its team.

    Returns:
        The stored run, and whether it is new.

    Raises:
        NotFoundError: The dataset was deleted at the same moment.
    """
    own = Scope(run.team)
    existing = get_by_request(connection, own, run.request_id)
    if existing is not None:
        return existing, False
    try:
        # A savepoint: PostgreSQL aborts a transaction in which a statement failed.
        with connection.begin_nested():
            connection.execute(_insert(run))
    except sa.exc.IntegrityError:
        existing = get_by_request(connection, own, run.request_id)  # another process has just created it
        if existing is not None:
            return existing, False
        if datasets.get_dataset(connection, run.team, run.dataset_id) is not None:
            raise
        raise NotFoundError(
            f"dataset {run.dataset_id!r} has just been deleted: upload it again",
            reason="DATASET_NOT_FOUND",
        ) from None
    return run, True


def _insert(run: RunRecord) -> sa.Insert:
    plain = {name: getattr(run, name) for name in _PLAIN}
    return schema.runs.insert().values(**plain, spec_json=json_text(run.spec), state=run.state.value)


def get_run(connection: sa.Connection, scope: Scope, run_id: str) -> RunRecord | None:
    """Return the run with an id supplied by a client, or None if the scope cannot reach it."""
    query = sa.select(schema.runs).where(schema.runs.c.run_id == run_id, is_reached(scope))
    return _one(connection, query)


def load_run(connection: sa.Connection, run_id: str) -> RunRecord | None:
    """Return a run of any team for background work; None if it was deleted."""
    return _one(connection, sa.select(schema.runs).where(schema.runs.c.run_id == run_id))


def lock_run(connection: sa.Connection, scope: Scope, run_id: str) -> RunRecord | None:
    """Lock a run named by a client until the commit, and return it; None if the scope cannot reach it."""
    query = sa.select(schema.runs).where(schema.runs.c.run_id == run_id, is_reached(scope))
    return _one(connection, query.with_for_update())


def require_run(connection: sa.Connection, scope: Scope, run_id: str) -> None:
    """Raise unless a scope reaches a run.

    Raises:
        NotFoundError: It does not, or the run was deleted; its rows may still exist.
    """
    table = schema.runs
    query = sa.select(table.c.run_id).where(table.c.run_id == run_id, is_reached(scope))
    if connection.execute(query).one_or_none() is None:
        raise NotFoundError(f"run {run_id} was deleted", reason="RUN_NOT_FOUND")


def get_by_request(connection: sa.Connection, scope: Scope, request_id: str) -> RunRecord | None:
    """Return the run that a request id created, or None."""
    table = schema.runs
    query = sa.select(table).where(is_reached(scope), table.c.request_id == request_id)
    return _one(connection, query)


def list_newest(
    connection: sa.Connection, scope: Scope, count: int, before: tuple[str, str] | None, run_id_prefix: str = ""
) -> list[tuple[str, str]]:
    """Return the (created_at, run_id) of up to `count` runs with this id prefix, newest first, older than `before`."""
    table = schema.runs
    newest_first = (table.c.created_at.desc(), table.c.run_id.desc())
    query = sa.select(table.c.created_at, table.c.run_id).where(is_reached(scope)).order_by(*newest_first).limit(count)
    if before is not None:
        query = query.where(sa.tuple_(table.c.created_at, table.c.run_id) < _moment(*before))
    if run_id_prefix:  # not LIKE, which ignores case in SQLite
        begins = sa.func.substr(table.c.run_id, 1, len(run_id_prefix))
        query = query.where(begins == sa.literal(run_id_prefix, CleanText))
    return [(row.created_at, row.run_id) for row in connection.execute(query)]


def read_runs(connection: sa.Connection, scope: Scope, run_ids: Sequence[str]) -> list[RunRecord]:
    """Return some runs in the order of their ids; runs outside the scope are omitted."""
    table = schema.runs
    rows = connection.execute(sa.select(table).where(table.c.run_id.in_(run_ids), is_reached(scope)))
    records = {row.run_id: _record(row) for row in rows}
    return [records[run_id] for run_id in run_ids if run_id in records]


def _moment(created_at: str, run_id: str) -> sa.Tuple:
    return sa.tuple_(sa.literal(created_at, CleanText), sa.literal(run_id, CleanText))


def list_unfinished(connection: sa.Connection) -> list[RunRecord]:
    """Return the pending and running runs, oldest first."""
    table = schema.runs
    query = sa.select(table).where(is_active()).order_by(table.c.created_at)
    return [_record(row) for row in connection.execute(query).all()]


def list_active_ids(connection: sa.Connection, scope: Scope) -> list[str]:
    """Return the ids of the pending and running runs of a scope."""
    table = schema.runs
    query = sa.select(table.c.run_id).where(is_active(), is_reached(scope))
    return list(connection.execute(query).scalars())


def change_state(
    connection: sa.Connection,
    run_id: str,
    state: RunState,
    *,
    message: str = "",
    cause: PauseCause | None = None,
    summary: dict[str, Any] | None = None,
) -> None:
    """Bring a run into a state and store the event under the next sequence number."""
    moment = now()
    values: dict[str, Any] = {
        "state": state.value,
        "state_message": message,
        "pause_cause": cause.value if cause is not None else "",
    }
    if state is RunState.RUNNING:
        values["started_at"] = sa.func.coalesce(schema.runs.c.started_at, moment)
        values["attended_at"] = moment  # gives its host time to attach
        values |= {"ended_at": None, "summary_json": None, "figures_json": "{}"}  # of a run that has ended
    if state in FINISHED_STATES:
        values["ended_at"] = moment
    if summary is not None:
        values |= {"summary_json": json_text(summary), "figures_json": json_text(figures_of(summary))}
    _store_event(connection, run_id, state, moment, values)


def _store_event(connection: sa.Connection, run_id: str, state: RunState, moment: str, values: dict[str, Any]) -> None:
    """Change the columns of a run, and store the event of the state that watchers then see."""
    table = schema.runs
    changed = table.update().where(table.c.run_id == run_id).values(**values, last_sequence=table.c.last_sequence + 1)
    # The run stays locked until the transaction ends, so numbers are in commit order and without gaps.
    columns = [table.c.last_sequence, *(table.c[name] for name in _COUNTS)]
    sequence, *counted = connection.execute(changed.returning(*columns)).one()
    counts = dict(zip(_COUNTS, counted, strict=True))
    if state is RunState.PAUSED:
        counts["answered_count"] = count_answered(connection, run_id)
    connection.execute(
        schema.run_events.insert().values(
            run_id=run_id,
            sequence=sequence,
            state=state.value,
            message=values["state_message"],
            created_at=moment,
            pause_cause=values["pause_cause"],
            counts_json=json_text(counts),
        )
    )


def count_answered(connection: sa.Connection, run_id: str) -> int:
    """Count the rows of a run that have a stored answer."""
    table = schema.answers.c
    first = sa.select(sa.func.count()).where(table.run_id == run_id, table.turn_index == 0)
    return connection.execute(first).scalar_one()


def apply_command(
    connection: sa.Connection,
    run_id: str,
    command: Command,
    *,
    message: str = "",
    summary: dict[str, Any] | None = None,
) -> Transition | None:
    """Lock a run and make the transition of a command, as the table in `lifecycle` defines it.

    Returns:
        The transition; None if there is no such run, or no transition from its phase.
    """
    phase = lock_phase(connection, run_id)
    transition = None if phase is None else TRANSITIONS.get((phase, command))
    if transition is not None:
        _store_transition(connection, run_id, transition, message, summary)
    return transition


def _store_transition(
    connection: sa.Connection, run_id: str, transition: Transition, message: str, summary: dict[str, Any] | None
) -> None:
    if transition.effect is not Effect.EVENT:
        return
    if transition.phase is Phase.WAITING_FOR_STORAGE:
        # Its workers hold its answers, so it stays active internally, and a pause or a cancel works as usual.
        values = {"pause_cause": PauseCause.STORAGE.value, "state_message": message}
        _store_event(connection, run_id, RunState.PAUSED, now(), values)
    else:
        state, cause = RunState(transition.phase.value), transition.cause
        change_state(connection, run_id, state, message=message, cause=cause, summary=summary)


def drain(connection: sa.Connection, run_id: str) -> str:
    """Pause a run that is pausing and has no taken shard; return the message, empty if it is not pausing."""
    run = load_run(connection, run_id)
    is_quota = run is not None and run.pause_cause is PauseCause.QUOTA
    is_stored = run is not None and (is_quota or run.state_message == PAUSED_TEAM_DISABLED)
    message = run.state_message if run is not None and is_stored else PAUSED_BY_OWNER
    command = Command.DRAIN_QUOTA if is_quota else Command.DRAIN
    return message if apply_command(connection, run_id, command, message=message) is not None else ""


def _phase(row: Any) -> Phase:
    return phase_of(RunState(row.state), PauseCause(row.pause_cause) if row.pause_cause else None)


def lock_phase(connection: sa.Connection, run_id: str) -> Phase | None:
    """Lock a run until the commit; return its phase, or None if there is no such run.

    Always called before locking the run's shards: the opposite order would deadlock.
    """
    # SQLite has one writer at a time.
    row = connection.execute(_phase_query(locks=True), {"of_run": run_id}).one_or_none()
    return _phase(row) if row is not None else None


def read_phase(connection: sa.Connection, run_id: str) -> Phase | None:
    """Return a run's phase, or None if there is no such run."""
    row = connection.execute(_phase_query(locks=False), {"of_run": run_id}).one_or_none()
    return _phase(row) if row is not None else None


@cache  # every batch of rows runs it, and building it takes several times as long
def _phase_query(*, locks: bool) -> sa.Select[Any]:
    runs = schema.runs.c
    query = sa.select(runs.state, runs.pause_cause).where(runs.run_id == sa.bindparam("of_run"))
    return query.with_for_update() if locks else query


def list_storage_pauses(connection: sa.Connection) -> list[str]:
    """Return the runs that are paused because rows could not be stored and that have no taken shard."""
    table, shards = schema.runs, schema.shards
    has_taken = sa.exists().where(shards.c.run_id == table.c.run_id, shards.c.state == "taken")
    query = sa.select(table.c.run_id).where(waits_for_storage(), ~has_taken)
    return list(connection.execute(query).scalars())


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The short form of a run's state."""

    phase: Phase
    last_sequence: int


def read_statuses(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, RunStatus]:
    """Return the statuses of some runs; deleted runs are omitted."""
    table = schema.runs
    rows = connection.execute(
        sa.select(table.c.run_id, table.c.state, table.c.last_sequence, table.c.pause_cause).where(
            table.c.run_id.in_(run_ids)
        )
    ).all()
    return {row.run_id: RunStatus(_phase(row), row.last_sequence) for row in rows}


def list_idle(connection: sa.Connection) -> list[str]:
    """Return the active runs without a queued or taken shard."""
    table, shards = schema.runs, schema.shards
    has_work = sa.exists().where(shards.c.run_id == table.c.run_id, shards.c.state.in_(("queued", "taken")))
    return list(connection.execute(sa.select(table.c.run_id).where(is_active(), ~has_work)).scalars())


def lock_creation(connection: sa.Connection) -> None:
    """Prevent other processes from creating runs until the commit, so that runs can be counted."""
    schema.lock(connection, _CREATION_LOCK)


def count_active(connection: sa.Connection) -> int:
    """Count the active runs."""
    table = schema.runs
    query = sa.select(sa.func.count()).select_from(table).where(is_active())
    return connection.execute(query).scalar_one()


def read_state_changes(connection: sa.Connection, run_id: str, after: int, count: int) -> list[StateChanged]:
    """Return up to `count` state changes after a sequence number, in that order."""
    table = schema.run_events
    rows = connection.execute(
        sa.select(table)
        .where(table.c.run_id == run_id, table.c.sequence > after)
        .order_by(table.c.sequence)
        .limit(count)
    ).all()
    return [
        StateChanged(
            row.sequence,
            RunState(row.state),
            row.message,
            row.created_at,
            PauseCause(row.pause_cause) if row.pause_cause else None,
            RunCounts(**json.loads(row.counts_json)),
        )
        for row in rows
    ]


def count_pauses(connection: sa.Connection, run_id: str) -> int:
    """Return how often a run was paused."""
    table = schema.run_events
    paused = sa.select(sa.func.count()).where(table.c.run_id == run_id, table.c.state == RunState.PAUSED.value)
    return connection.execute(paused).scalar_one()


def read_origin(connection: sa.Connection, run_id: str) -> tuple[str, str]:
    """Return a run's team and the span of the call that created it; both empty if there is no run."""
    table = schema.runs
    row = connection.execute(sa.select(table.c.team, table.c.traceparent).where(table.c.run_id == run_id)).one_or_none()
    return ("", "") if row is None else (row.team, row.traceparent)


_PLAIN = {field.name for field in fields(RunRecord)} & set(schema.runs.c.keys()) - {"state", "pause_cause"}
"""The columns whose values a record has unchanged."""


def _one(connection: sa.Connection, query: sa.Select[Any]) -> RunRecord | None:
    row = connection.execute(query).one_or_none()
    return _record(row) if row is not None else None


def _record(row: sa.Row[Any]) -> RunRecord:
    return RunRecord(
        **{name: getattr(row, name) for name in _PLAIN},
        spec=json.loads(row.spec_json),
        state=RunState(row.state),
        summary=json.loads(row.summary_json) if row.summary_json else None,
        pause_cause=PauseCause(row.pause_cause) if row.pause_cause else None,
    )
