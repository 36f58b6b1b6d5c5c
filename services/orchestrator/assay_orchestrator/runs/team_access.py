"""What the agents of a run may reach and be sent, as the operator allows it to all and the team has registered it."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from assay.process.secret_stores import open_secrets
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.targets import Target
from assay_orchestrator.store.teams import targets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.settings import Settings
    from assay_orchestrator.store.teams.targets import TargetRecord


class TeamAccess:
    """Knows what each team may use.

    Args:
        database: Where targets are.
        settings: What all may use, and where secrets are.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        secrets = open_secrets(settings.secrets, settings.secret_variables, os.environ)
        self._of_all = AgentAccess.of_all(settings, secrets)

    async def of(self, team: str) -> AgentAccess:
        """Return what the runs of a team may use.

        Args:
            team: The team that the run belongs to, never a name that a client has given.
        """
        return (await self.of_teams({team}))[team]

    async def of_teams(self, teams: Collection[str]) -> Mapping[str, AgentAccess]:
        """Return what the runs of some teams may use, as `of`; by team."""
        if self._settings.auth == "none" and self._settings.role != "worker":
            return dict.fromkeys(teams, self._of_all)

        def load(connection: sa.Connection) -> dict[str, Sequence[TargetRecord]] | None:
            # A worker serves no calls, so that it knows from the database alone whether there are teams.
            if not targets.has_teams(connection):
                return None
            return {team: targets.list_targets(connection, team) for team in teams}

        found = await self._database.read(load)
        if found is None:
            return dict.fromkeys(teams, self._of_all)
        return {team: self._with_targets(team, records) for team, records in found.items()}

    def _with_targets(self, team: str, found: Sequence[TargetRecord]) -> AgentAccess:
        own_targets = tuple(Target(each.name, each.address, each.secrets) for each in found)
        return dataclasses.replace(self._of_all, team=team, targets=own_targets)
