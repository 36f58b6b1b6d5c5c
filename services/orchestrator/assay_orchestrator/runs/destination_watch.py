"""Watches the destinations of running runs: a run fails once its team has deleted or changed its destination."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.errors import SpecError, WrongStateError
from assay.process.periodic_check import PeriodicCheck
from assay_orchestrator.agents.destinations import agent_address, covering, judge_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.run import RunSpec
    from assay_orchestrator.agents.access import AgentAccess
    from assay_orchestrator.agents.destinations import Destination
    from assay_orchestrator.pipeline.session import Sessions
    from assay_orchestrator.runs.team_access import TeamAccess

CHECK_S = 2.0

_log = logging.getLogger(__name__)


class CheckingPlanner(Protocol):
    """The planner, which knows what a run may call."""

    def check_access(self, settings: RunSpec, access: AgentAccess) -> None:
        """Raise SpecError unless the agent and the judges of a run may be called."""


class FailingOwner(Protocol):
    """The owner of this process's runs."""

    async def fail_run(self, run_id: str, problem: Exception) -> None:
        """End a run as failed."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A run, and what its team allowed it at the last check."""

    team: str
    settings: RunSpec
    access: AgentAccess


class DestinationWatch(PeriodicCheck):
    """Checks whether this process's runs may still call their agents and judges, and fails those that may not.

    Args:
        access: Knows what each team may use.
        planner: Checks a run against that.
        sessions: The runs whose shards are in progress here.
        owner: The owner of this process's runs.
        check_s: Time between two checks, in seconds.
    """

    def __init__(
        self,
        access: TeamAccess,
        planner: CheckingPlanner,
        sessions: Sessions,
        owner: FailingOwner,
        *,
        check_s: float = CHECK_S,
    ) -> None:
        super().__init__("check destinations of teams", check_s)
        self._access = access
        self._planner = planner
        self._sessions = sessions
        self._owner = owner
        self._watched: dict[str, _Watched] = {}
        self._leaving: set[str] = set()

    def add(self, run_id: str, team: str, settings: RunSpec, access: AgentAccess) -> None:
        """Watch a run from now on, until no shard of it is in progress here.

        Args:
            run_id: The run.
            team: Its team.
            settings: Its settings, which name what it calls.
            access: What its team currently allows.
        """
        self._watched[run_id] = _Watched(team, settings, access)

    async def check(self) -> None:
        """Fail the runs that may no longer call their agent or judges.

        Raises:
            StorageError: The database does not answer.
        """
        # A run absent at two checks has left; absent at one, it may be about to begin.
        absent = {run_id for run_id in self._watched if self._sessions.of(run_id) is None}
        for run_id in absent & self._leaving:
            del self._watched[run_id]
        self._leaving = absent
        if not self._watched:
            return
        now = await self._access.of_teams({watched.team for watched in self._watched.values()})
        for run_id, watched in list(self._watched.items()):
            await self._review(run_id, watched, now)

    async def _review(self, run_id: str, watched: _Watched, now: Mapping[str, AgentAccess]) -> None:
        access = now[watched.team]
        if access.destinations == watched.access.destinations:
            return
        try:
            self._planner.check_access(watched.settings, access)
        except SpecError as problem:
            names = _changed(watched, access.destinations or ())
            _log.warning("failing run, its destination is gone: run=%s destinations=%s", run_id, ",".join(names))
            await self._owner.fail_run(run_id, _gone(names, problem))
        else:
            self._watched[run_id] = _Watched(watched.team, watched.settings, access)


def _changed(watched: _Watched, now: Sequence[Destination]) -> list[str]:
    """Return the names of deleted or changed destinations that a run used to call."""
    before = watched.access.destinations or ()
    called = [
        agent_address(watched.settings.agent),
        *(judge_address(member) for judge in watched.settings.judges for member in judge.members),
    ]
    used = [destination for address in called for destination in covering(before, address)]
    return [destination.name for destination in before if destination in used and destination not in now]


def _gone(names: Sequence[str], problem: SpecError) -> WrongStateError:
    named = "its destination " + ", ".join(map(repr, names)) if names else "one of its destinations"
    return WrongStateError(
        f"{named} was deleted or changed while the run was in progress: {problem.message}; once the run may call it "
        "again, `assay runs resume RUN --retry-errors` continues it",
        reason="DESTINATION_GONE",
    )
