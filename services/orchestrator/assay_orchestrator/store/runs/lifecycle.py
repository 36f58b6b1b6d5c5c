"""The lifecycle of a run: its states, the commands that change them, and one table of the effect of each command.

The store applies the table in the transaction that locks the run (`runs.apply_command`), so of two commands at two
processes the second sees the state that the first left. `docs/runs.md` shows the table as a diagram.

One state is internal to the store. A run that is WAITING_FOR_STORAGE is stored as RUNNING with cause `storage`, since
its workers hold its answers, and shown as PAUSED. A run is PAUSING while questions are in flight after its owner paused
it or its team reached a quota. A cancelled run is CANCELLED at once: its questions in flight are dropped.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum

from assay.errors import WrongStateError
from assay.model.run import PauseCause, Run, RunState


class Phase(Enum):
    """A state of a run as the store distinguishes them."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSING = "pausing"
    WAITING_FOR_STORAGE = "waiting for storage"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DELETED = "deleted"


class Command(Enum):
    """A change of a run's state. Client requests may be refused; other commands are ignored if stale."""

    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry failed rows"
    CHANGE_CAP = "change spend cap"
    CANCEL = "cancel"
    DELETE = "delete"
    START = "start first shard"
    DRAIN = "release last shard"
    DRAIN_QUOTA = "release last shard for a quota"
    AWAIT_BATCH = "await batch"
    PAUSE_UNJUDGED = "judge unavailable"
    PAUSE_UNATTENDED = "host missing"
    PAUSE_QUOTA = "quota reached"
    INTERRUPT = "restart without recovery"
    LOSE_STORAGE = "storage refuses rows"
    REGAIN_STORAGE = "storage accepts rows"
    REOPEN = "reopen shards"
    CONCLUDE = "conclude"
    FAIL = "fail"


class Effect(Enum):
    """What a transition stores."""

    EVENT = "the state, and an event for watchers"
    NOTHING = "nothing"
    REMOVAL = "the run is removed"


@dataclass(frozen=True, slots=True)
class Transition:
    """The phase that a command leads to, what is stored of the transition, and its pause cause."""

    phase: Phase
    effect: Effect = Effect.EVENT
    cause: PauseCause | None = None


def _paused(cause: PauseCause) -> Transition:
    return Transition(Phase.PAUSED, cause=cause)


_ACTIVE_PHASES = (Phase.PENDING, Phase.RUNNING, Phase.PAUSING, Phase.WAITING_FOR_STORAGE)
_ENDED_PHASES = (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED)

RUNNABLE_PHASES = (Phase.PENDING, Phase.RUNNING)
"""Phases in which workers take a run's shards."""

PHASES_AT_REST = (Phase.PAUSED, *_ENDED_PHASES)
"""Phases in which a run can be deleted."""

ACTIVE_STATES = (RunState.PENDING, RunState.RUNNING, RunState.PAUSING)
"""Stored states of active runs: they have not ended and are not paused."""

_PAUSE_REQUESTED = Transition(Phase.PAUSING, cause=PauseCause.OWNER)

_TABLE: dict[Command, dict[Phase, Transition]] = {
    Command.PAUSE: {
        Phase.PENDING: _PAUSE_REQUESTED,
        Phase.RUNNING: _PAUSE_REQUESTED,
        Phase.PAUSING: Transition(Phase.PAUSING, Effect.NOTHING),
        Phase.WAITING_FOR_STORAGE: _PAUSE_REQUESTED,
        Phase.PAUSED: _paused(PauseCause.OWNER),
    },
    Command.RESUME: {
        Phase.PENDING: Transition(Phase.PENDING, Effect.NOTHING),
        Phase.RUNNING: Transition(Phase.RUNNING, Effect.NOTHING),
        Phase.PAUSING: Transition(Phase.RUNNING),
        Phase.WAITING_FOR_STORAGE: Transition(Phase.RUNNING),
        Phase.PAUSED: Transition(Phase.RUNNING),
    },
    Command.RETRY: dict.fromkeys((Phase.PAUSED, Phase.COMPLETED, Phase.FAILED), Transition(Phase.RUNNING)),
    Command.CHANGE_CAP: {phase: Transition(phase, Effect.NOTHING) for phase in PHASES_AT_REST},
    Command.CANCEL: {
        **dict.fromkeys((*_ACTIVE_PHASES, Phase.PAUSED), Transition(Phase.CANCELLED)),
        Phase.CANCELLED: Transition(Phase.CANCELLED, Effect.NOTHING),
    },
    Command.DELETE: dict.fromkeys(PHASES_AT_REST, Transition(Phase.DELETED, Effect.REMOVAL)),
    Command.START: {Phase.PENDING: Transition(Phase.RUNNING)},
    Command.DRAIN: {Phase.PAUSING: _paused(PauseCause.OWNER)},
    Command.DRAIN_QUOTA: {Phase.PAUSING: _paused(PauseCause.QUOTA)},
    Command.AWAIT_BATCH: dict.fromkeys(RUNNABLE_PHASES, Transition(Phase.RUNNING)),
    Command.PAUSE_UNJUDGED: dict.fromkeys(RUNNABLE_PHASES, _paused(PauseCause.JUDGE)),
    Command.PAUSE_UNATTENDED: dict.fromkeys(RUNNABLE_PHASES, _paused(PauseCause.UNATTENDED)),
    Command.PAUSE_QUOTA: dict.fromkeys(RUNNABLE_PHASES, Transition(Phase.PAUSING, cause=PauseCause.QUOTA)),
    Command.INTERRUPT: dict.fromkeys((*RUNNABLE_PHASES, Phase.WAITING_FOR_STORAGE), _paused(PauseCause.INTERRUPTED)),
    Command.LOSE_STORAGE: dict.fromkeys(
        RUNNABLE_PHASES, Transition(Phase.WAITING_FOR_STORAGE, cause=PauseCause.STORAGE)
    ),
    Command.REGAIN_STORAGE: {Phase.WAITING_FOR_STORAGE: Transition(Phase.RUNNING)},
    Command.REOPEN: {phase: Transition(phase, Effect.NOTHING) for phase in _ACTIVE_PHASES},
    Command.CONCLUDE: dict.fromkeys(_ACTIVE_PHASES, Transition(Phase.COMPLETED)),
    Command.FAIL: dict.fromkeys(_ACTIVE_PHASES, Transition(Phase.FAILED)),
}

TRANSITIONS: dict[tuple[Phase, Command], Transition] = {
    (phase, command): transition for command, row in _TABLE.items() for phase, transition in row.items()
}
"""Every legal transition. Missing pairs are refused for requests and ignored for other commands."""


def phase_of(state: RunState, cause: PauseCause | None) -> Phase:
    """Return the phase of a run from its stored state and pause cause."""
    if state in ACTIVE_STATES and cause is PauseCause.STORAGE:
        return Phase.WAITING_FOR_STORAGE
    return Phase(state.value)


def require_transition(run_id: str, phase: Phase, command: Command) -> Transition:
    """Return the transition of a request.

    Raises:
        WrongStateError: The request is refused in this phase.
    """
    transition = TRANSITIONS.get((phase, command))
    if transition is None:
        raise refusal(run_id, phase, command)
    return transition


def refusal(run_id: str, phase: Phase, command: Command) -> WrongStateError:
    """Return the error of a refused request."""
    if phase is Phase.CANCELLED and command is Command.RETRY:
        return WrongStateError(f"run {run_id} is cancelled and cannot be resumed: start a new one", reason="RUN_ENDED")
    if phase in _ENDED_PHASES:
        return WrongStateError(f"run {run_id} {ended_text(RunState(phase.value), 'already ')}", reason="RUN_ENDED")
    remedy = {
        Command.RETRY: "pause it, or wait for its end, before its errors are retried",
        Command.CHANGE_CAP: "pause it before its spend cap is changed",
        Command.DELETE: "pause or cancel it before deleting it",
    }[command]
    if phase is Phase.WAITING_FOR_STORAGE and command is Command.DELETE:
        return WrongStateError(
            f"run {run_id} resumes by itself when its rows can be stored: cancel it before deleting it",
            reason="RUN_ACTIVE",
        )
    return WrongStateError(f"run {run_id} is running: {remedy}", reason="RUN_ACTIVE")


def client_view(run: Run, storage_problem: str) -> Run:
    """Return a run as clients see it: PAUSED if its rows cannot be stored, here or in the process that has them.

    Args:
        run: The stored run.
        storage_problem: Why its rows cannot be stored in this process; empty if they can. If the pause cannot be stored
            either, only this process shows it.
    """
    if is_shown_waiting(run.state, run.pause_cause, storage_problem):
        return dataclasses.replace(
            run,
            state=RunState.PAUSED,
            pause_cause=PauseCause.STORAGE,
            state_message=storage_problem or run.state_message,
        )
    return run


def is_shown_waiting(state: RunState, cause: PauseCause | None, storage_problem: str) -> bool:
    """Return whether clients see a run as waiting for storage; see `client_view`."""
    phase = phase_of(state, cause)
    return phase is Phase.WAITING_FOR_STORAGE or (bool(storage_problem) and phase in RUNNABLE_PHASES)


def ended_text(state: RunState, adverb: str = "") -> str:
    """Return how a run ended, e.g. "has completed" or "was cancelled"; an adverb ends with a space."""
    return f"{'was' if state is RunState.CANCELLED else 'has'} {adverb}{state.value}"
