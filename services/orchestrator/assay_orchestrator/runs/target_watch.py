"""Runs in progress whose team has deleted or changed a target: they fail before they call it again."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.errors import SpecError, WrongStateError
from assay_orchestrator.agents.targets import agent_address, covering, judge_address
from assay_orchestrator.runs.periodic_check import PeriodicCheck

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.run import RunSettings
    from assay_orchestrator.agents.access import AgentAccess
    from assay_orchestrator.agents.targets import Target
    from assay_orchestrator.pipeline.session import Sessions
    from assay_orchestrator.runs.team_access import TeamAccess

CHECK_S = 2.0

_log = logging.getLogger(__name__)


class CheckingPlanner(Protocol):
    """Knows what a run may call."""

    def check_access(self, settings: RunSettings, access: AgentAccess) -> None:
        """Raise SpecError unless the agent and the judges of a run may be called."""
        ...


class FailingOwner(Protocol):
    """The owner of the runs of this process."""

    async def fail_run(self, run_id: str, problem: Exception) -> None:
        """End a run as failed."""
        ...


@dataclass(frozen=True, slots=True)
class _Watched:
    """A run, and what its team allowed it when it was looked at last."""

    team: str
    settings: RunSettings
    access: AgentAccess


class TargetWatch:
    """Looks whether the runs of this process may still call their agents and judges, and fails those that may not.

    Args:
        access: Knows what each team may use.
        planner: Checks a run against that.
        sessions: The runs of which shards are worked on here.
        owner: The owner of the runs of this process.
        check_s: Time between two looks, in seconds.
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
        self._access = access
        self._planner = planner
        self._sessions = sessions
        self._owner = owner
        self._periodic = PeriodicCheck("targets of teams", self.check, check_s)
        self._watched: dict[str, _Watched] = {}
        self._leaving: set[str] = set()

    def start(self) -> None:
        """Start to look."""
        self._periodic.start()

    async def aclose(self) -> None:
        """Stop looking."""
        await self._periodic.aclose()

    def add(self, run_id: str, team: str, settings: RunSettings, access: AgentAccess) -> None:
        """Watch a run from now on, until it is not worked on here any more.

        Args:
            team: The team that it belongs to.
            settings: What it calls.
            access: What its team allows it now.
        """
        self._watched[run_id] = _Watched(team, settings, access)

    async def check(self) -> None:
        """Fail the runs that may not call their agent or judges any more.

        Raises:
            StorageError: The database does not answer.
        """
        # One that is not here at two looks has left; at a single one it may be about to begin.
        absent = {run_id for run_id in self._watched if self._sessions.of(run_id) is None}
        for run_id in absent & self._leaving:
            del self._watched[run_id]
        self._leaving = absent
        if not self._watched:
            return
        now = await self._access.of_teams({one.team for one in self._watched.values()})
        for run_id, one in list(self._watched.items()):
            await self._review(run_id, one, now)

    async def _review(self, run_id: str, one: _Watched, now: Mapping[str, AgentAccess]) -> None:
        access = now[one.team]
        if access.targets == one.access.targets:
            return
        try:
            self._planner.check_access(one.settings, access)
        except SpecError as problem:
            names = _changed(one, access.targets or ())
            _log.warning("failing run, its target is gone: run=%s targets=%s", run_id, ",".join(names))
            await self._owner.fail_run(run_id, _gone(names, problem))
        else:
            self._watched[run_id] = _Watched(one.team, one.settings, access)


def _changed(one: _Watched, now: Sequence[Target]) -> list[str]:
    """Return the names of the targets that a run used to call and that were deleted or changed."""
    before, judge = one.access.targets or (), one.settings.judge
    called = [agent_address(one.settings.agent), *(judge_address(each) for each in (judge.judges if judge else ()))]
    used = [target for address in called for target in covering(before, address)]
    return [target.name for target in before if target in used and target not in now]


def _gone(names: Sequence[str], problem: SpecError) -> WrongStateError:
    named = "its target " + ", ".join(map(repr, names)) if names else "one of its targets"
    return WrongStateError(
        f"{named} was deleted or changed while the run was in progress: {problem.message}; once the run may call it "
        "again, `assay runs resume RUN --retry-errors` continues it",
        reason="TARGET_GONE",
    )
