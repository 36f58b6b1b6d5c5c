"""What the agents of a run may reach and be sent, by the operator's rules and the team's own destinations."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from assay.process.secret_stores import open_secrets
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.destinations import Destination
from assay_orchestrator.store.teams import destinations

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.settings import Settings
    from assay_orchestrator.store.teams.destinations import DestinationRecord


class TeamAccess:
    """Knows what each team may use.

    Args:
        database: The store of destinations.
        settings: The rules for all teams, and where secrets are stored.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        secrets = open_secrets(settings.secrets, settings.secret_variables, os.environ)
        self._of_all = AgentAccess.of_all(settings, secrets)

    async def of(self, team: str) -> AgentAccess:
        """Return what the runs of a team may use.

        Args:
            team: The team that the run belongs to, never a name supplied by a client.
        """
        return (await self.of_teams({team}))[team]

    async def of_teams(self, teams: Collection[str]) -> Mapping[str, AgentAccess]:
        """Return what the runs of some teams may use, as `of`, by team."""
        if self._settings.auth == "none" and self._settings.role != "worker":
            return dict.fromkeys(teams, self._of_all)

        def load(connection: sa.Connection) -> dict[str, Sequence[DestinationRecord]] | None:
            # A worker serves no calls, so only the database tells it whether there are teams.
            if not destinations.has_teams(connection):
                return None
            return {team: destinations.list_destinations(connection, team) for team in teams}

        records_by_team = await self._database.read(load)
        if records_by_team is None:
            return dict.fromkeys(teams, self._of_all)
        return {team: self._with_destinations(team, records) for team, records in records_by_team.items()}

    def _with_destinations(self, team: str, records: Sequence[DestinationRecord]) -> AgentAccess:
        own_destinations = tuple(Destination(record.name, record.address, record.secrets) for record in records)
        return dataclasses.replace(self._of_all, team=team, destinations=own_destinations)
