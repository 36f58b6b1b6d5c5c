"""Destinations: the addresses that a team has registered for its agents."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.errors import ConflictError, NotFoundError, OverloadedError
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.teams import tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DESTINATIONS_PER_TEAM = 200

_table = schema.destinations


@dataclass(frozen=True, slots=True)
class DestinationRecord:
    """A stored destination.

    Args:
        team: The team whose agents may use it.
        name: Its name within the team.
        address: `HOST`, `HOST:PORT` or `https://HOST[:PORT]`.
        secrets: The names of the team's secrets that may be sent there.
        created_by: The id of the token that created it.
        created_at: When it was created, ISO 8601.
    """

    team: str
    name: str
    address: str
    secrets: tuple[str, ...]
    created_by: str = ""
    created_at: str = ""


def has_teams(connection: sa.Connection) -> bool:
    """Return whether the installation has teams."""
    return connection.execute(sa.select(schema.teams.c.team).limit(1)).one_or_none() is not None


def create_destination(connection: sa.Connection, destination: DestinationRecord) -> DestinationRecord:
    """Store a destination and return it.

    Raises:
        NotFoundError: There is no such team.
        ConflictError: The team already has a destination of this name.
        OverloadedError: The team has too many destinations.
    """
    tokens.get_team(connection, destination.team)
    own = _table.c.team == destination.team
    if connection.execute(sa.select(_table.c.name).where(own & (_table.c.name == destination.name))).one_or_none():
        raise ConflictError(
            f"there is already a destination {destination.name!r}: delete it first, or choose another name",
            reason="DESTINATION_EXISTS",
        )
    if connection.execute(sa.select(sa.func.count()).where(own)).scalar_one() >= MAX_DESTINATIONS_PER_TEAM:
        raise OverloadedError(
            f"the team has {MAX_DESTINATIONS_PER_TEAM} destinations: delete one with `assay admin destinations delete`",
            reason="TOO_MANY_DESTINATIONS",
        )
    values = {
        "team": destination.team,
        "name": destination.name,
        "address": destination.address,
        "secrets_json": json.dumps(destination.secrets),
        "created_by": destination.created_by,
        "created_at": now(),
    }
    connection.execute(sa.insert(_table).values(values))
    return DestinationRecord(
        destination.team,
        destination.name,
        destination.address,
        destination.secrets,
        destination.created_by,
        values["created_at"],
    )


def list_destinations(
    connection: sa.Connection, team: str, after: str = "", count: int = MAX_DESTINATIONS_PER_TEAM
) -> Sequence[DestinationRecord]:
    """Return up to `count` destinations of a team, by name, that follow a name."""
    query = sa.select(_table).where(_table.c.team == team, _table.c.name > after).order_by(_table.c.name).limit(count)
    return [
        DestinationRecord(
            row.team, row.name, row.address, tuple(json.loads(row.secrets_json)), row.created_by, row.created_at
        )
        for row in connection.execute(query)
    ]


def delete_destination(connection: sa.Connection, team: str, name: str) -> None:
    """Remove a destination.

    Raises:
        NotFoundError: The team has no such destination.
    """
    gone = connection.execute(sa.delete(_table).where((_table.c.team == team) & (_table.c.name == name)))
    if not gone.rowcount:
        raise NotFoundError(
            f"there is no destination {name!r}: `assay admin destinations list` lists the destinations",
            reason="DESTINATION_NOT_FOUND",
        )
