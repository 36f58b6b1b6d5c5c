"""Targets: the addresses that a team has registered for its agents."""

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

MAX_TARGETS_PER_TEAM = 200

_table = schema.targets


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A stored target.

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


def create_target(connection: sa.Connection, target: TargetRecord) -> TargetRecord:
    """Store a target and return it.

    Raises:
        NotFoundError: There is no such team.
        ConflictError: The team already has a target of this name.
        OverloadedError: The team has too many targets.
    """
    tokens.get_team(connection, target.team)
    own = _table.c.team == target.team
    if connection.execute(sa.select(_table.c.name).where(own & (_table.c.name == target.name))).one_or_none():
        raise ConflictError(
            f"there is already a target {target.name!r}: delete it first, or choose another name",
            reason="TARGET_EXISTS",
        )
    if connection.execute(sa.select(sa.func.count()).where(own)).scalar_one() >= MAX_TARGETS_PER_TEAM:
        raise OverloadedError(
            f"the team has {MAX_TARGETS_PER_TEAM} targets: delete one with `assay admin targets delete`",
            reason="TOO_MANY_TARGETS",
        )
    values = {
        "team": target.team,
        "name": target.name,
        "address": target.address,
        "secrets_json": json.dumps(target.secrets),
        "created_by": target.created_by,
        "created_at": now(),
    }
    connection.execute(sa.insert(_table).values(values))
    return TargetRecord(
        target.team, target.name, target.address, target.secrets, target.created_by, values["created_at"]
    )


def list_targets(connection: sa.Connection, team: str) -> Sequence[TargetRecord]:
    """Return the targets of a team, by name."""
    rows = connection.execute(sa.select(_table).where(_table.c.team == team).order_by(_table.c.name))
    return [
        TargetRecord(
            row.team, row.name, row.address, tuple(json.loads(row.secrets_json)), row.created_by, row.created_at
        )
        for row in rows
    ]


def delete_target(connection: sa.Connection, team: str, name: str) -> None:
    """Remove a target.

    Raises:
        NotFoundError: The team has no such target.
    """
    gone = connection.execute(sa.delete(_table).where((_table.c.team == team) & (_table.c.name == name)))
    if not gone.rowcount:
        raise NotFoundError(
            f"there is no target {name!r}: `assay admin targets list` lists the targets", reason="TARGET_NOT_FOUND"
        )
