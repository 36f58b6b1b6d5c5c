"""Teams and their tokens, of which the database has the hashes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.errors import ConflictError, NotFoundError, OverloadedError, PermissionDeniedError
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import runs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from assay.identity.rights import Role
    from assay.identity.tokens import Token

MAX_TEAMS = 10_000
MAX_TOKENS_PER_TEAM = 1_000

_teams, _tokens = schema.teams, schema.tokens


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as it is stored; times are ISO 8601, and None for never.

    Args:
        token_id: Its public part.
        digest: SHA-256 of the whole token, as hexadecimal digits.
        team: Whose names it reaches.
        role: The value of a `Role`.
        name: What it was made for.
        created_by: The id of the token that made it; empty for one that was made at the database.
        created_at: When it was made.
        expires_at: From when it is refused.
        revoked_at: When it was revoked.
        last_used_at: When it was used, to the hour.
    """

    token_id: str
    digest: str
    team: str
    role: str
    name: str
    created_by: str
    created_at: str
    expires_at: str | None = None
    revoked_at: str | None = None
    last_used_at: str | None = None


@dataclass(frozen=True, slots=True)
class NewToken:
    """What a token is made with.

    Args:
        team: Whose names it reaches.
        role: What its holder may do.
        name: What it is for.
        created_by: The id of the token that makes it; empty at the database.
        expires_at: From when it is refused, ISO 8601; None for never.
    """

    team: str
    role: Role
    name: str
    created_by: str = ""
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class TeamRecord:
    """A team as it is stored; times are ISO 8601, and None for never.

    Args:
        team: Its name.
        created_at: When it was made.
        disabled_at: Since when it is disabled.
        keep_audit_days: After how many days entries of its audit are removed.
        keep_runs_days: After how many days runs that have ended are deleted.
        deleted_at: Since when it is deleted; its name is not given to another team.
        erased_at: Since when nothing of it is left.
    """

    team: str
    created_at: str
    disabled_at: str | None = None
    keep_audit_days: int | None = None
    keep_runs_days: int | None = None
    deleted_at: str | None = None
    erased_at: str | None = None


def create_team(connection: sa.Connection, team: str) -> TeamRecord:
    """Add a team and return it.

    Raises:
        ConflictError: There is one of this name.
        OverloadedError: There are too many.
    """
    known = connection.execute(sa.select(_teams.c.deleted_at).where(_teams.c.team == team)).one_or_none()
    if known is not None:
        raise ConflictError(
            f"there is a team {team!r} already"
            if known.deleted_at is None
            else f"there was a team {team!r}, which was deleted at {known.deleted_at}: choose another name, for tokens "
            "of other issuers may still have this one",
            reason="TEAM_EXISTS" if known.deleted_at is None else "TEAM_DELETED",
        )
    if connection.execute(sa.select(sa.func.count()).select_from(_teams)).scalar_one() >= MAX_TEAMS:
        raise OverloadedError(f"there are {MAX_TEAMS:,} teams, which is the limit", reason="TOO_MANY_TEAMS")
    created_at = now()
    connection.execute(sa.insert(_teams).values(team=team, created_at=created_at))
    return TeamRecord(team, created_at)


def list_teams(connection: sa.Connection) -> Sequence[TeamRecord]:
    """Return the teams by name."""
    return [TeamRecord(**row) for row in connection.execute(sa.select(_teams).order_by(_teams.c.team)).mappings()]


def set_disabled(connection: sa.Connection, team: str, *, disabled: bool) -> TeamRecord:
    """Disable a team, or enable it again; return it. No run of it is being created meanwhile.

    Raises:
        NotFoundError: There is no such team.
    """
    runs.lock_creation(connection)
    is_as_before = _teams.c.disabled_at.is_(None) if disabled else _teams.c.disabled_at.is_not(None)
    is_there = (_teams.c.team == team) & _teams.c.deleted_at.is_(None)
    changed = sa.update(_teams).where(is_there & is_as_before)
    connection.execute(changed.values(disabled_at=now() if disabled else None))
    found = connection.execute(sa.select(_teams).where(is_there)).mappings().one_or_none()
    if found is None:
        raise _no_team(team)
    return TeamRecord(**found)


def disabled_teams(connection: sa.Connection) -> frozenset[str]:
    """Return the teams that are disabled."""
    return frozenset(connection.execute(sa.select(_teams.c.team).where(_teams.c.disabled_at.is_not(None))).scalars())


def require_enabled(connection: sa.Connection, team: str) -> None:
    """Raise unless a team may work; where teams have no tokens, each may. Until the commit it is not deleted.

    Raises:
        PermissionDeniedError: It is disabled or deleted.
    """
    require_not_deleted(connection, team)
    query = sa.select(_teams.c.disabled_at).where(_teams.c.team == team)
    if connection.execute(query).scalar_one_or_none() is not None:
        raise PermissionDeniedError(
            "the operator has disabled the team: ask for it to be enabled", reason="TEAM_DISABLED"
        )


def require_not_deleted(connection: sa.Connection, team: str) -> None:
    """Raise where a team is deleted, for which nothing is to be stored; until the commit it is not.

    Raises:
        PermissionDeniedError: It is.
    """
    query = sa.select(_teams.c.deleted_at).where(_teams.c.team == team).with_for_update(read=True)
    if connection.execute(query).scalar_one_or_none() is not None:
        raise PermissionDeniedError(
            "the operator has deleted the team: nothing is stored for it any more", reason="TEAM_DELETED"
        )


def create_token(connection: sa.Connection, token: Token, wanted: NewToken) -> TokenRecord:
    """Store a new token's hash.

    Raises:
        NotFoundError: There is no such team.
        OverloadedError: The team has too many tokens that are not revoked.
    """
    require_team(connection, wanted.team)
    own = (_tokens.c.team == wanted.team) & _tokens.c.revoked_at.is_(None)
    if connection.execute(sa.select(sa.func.count()).where(own)).scalar_one() >= MAX_TOKENS_PER_TEAM:
        raise OverloadedError(
            f"the team has {MAX_TOKENS_PER_TEAM:,} tokens: revoke one with `assay admin tokens revoke`",
            reason="TOO_MANY_TOKENS",
        )
    record = TokenRecord(
        token.token_id, token.digest, wanted.team, wanted.role.value, wanted.name, wanted.created_by, now(),
        wanted.expires_at,
    )  # fmt: skip
    values = {name: getattr(record, name) for name in TokenRecord.__slots__}
    connection.execute(sa.insert(_tokens).values(values))
    return record


def find_token(connection: sa.Connection, token_id: str) -> TokenRecord | None:
    """Return the token of an id, whatever has become of it."""
    found = connection.execute(_select().where(_tokens.c.token_id == token_id)).mappings().one_or_none()
    return None if found is None else TokenRecord(**found)


def list_tokens(connection: sa.Connection, team: str) -> Sequence[TokenRecord]:
    """Return the tokens of a team, the oldest first; those that are revoked, too."""
    found = connection.execute(_select().where(_tokens.c.team == team).order_by(_tokens.c.created_at)).mappings()
    return [TokenRecord(**row) for row in found]


def revoke_token(connection: sa.Connection, token_id: str, team: str | None, roles: Collection[str]) -> TokenRecord:
    """Revoke a token; one that is revoked stays as it is.

    Args:
        token_id: Its public part.
        team: The team whose tokens may be revoked; None for those of every team.
        roles: The roles whose tokens may be revoked.

    Raises:
        NotFoundError: There is no such token, or it is of another team.
        PermissionDeniedError: It has another role.
    """
    record = find_token(connection, token_id)
    if record is None or team not in (None, record.team):
        raise NotFoundError(
            f"there is no token {token_id!r}: `assay admin tokens list` shows those there are",
            reason="TOKEN_NOT_FOUND",
        )
    if record.role not in roles:
        raise PermissionDeniedError(f"the token's role {record.role!r} has rights that this one lacks: ask an operator")
    unrevoked = (_tokens.c.token_id == token_id) & _tokens.c.revoked_at.is_(None)
    connection.execute(sa.update(_tokens).where(unrevoked).values(revoked_at=now()))
    changed = find_token(connection, token_id)
    assert changed is not None, "only with its team, whose tokens are refused by then"
    return changed


def note_used(connection: sa.Connection, token_id: str) -> None:
    """Store that a token was used, to the hour."""
    hour = f"{now()[:13]}:00:00.000Z"
    connection.execute(sa.update(_tokens).where(_tokens.c.token_id == token_id).values(last_used_at=hour))


def require_team(connection: sa.Connection, team: str) -> None:
    """Raise unless there is a team.

    Raises:
        NotFoundError: There is none.
    """
    if not has_team(connection, team):
        raise _no_team(team)


def _no_team(team: str) -> NotFoundError:
    return NotFoundError(
        f"there is no team {team!r}: create it with `assay admin teams create`", reason="TEAM_NOT_FOUND"
    )


def _select() -> sa.Select[Any]:
    return sa.select(*(_tokens.c[name] for name in TokenRecord.__slots__))


def has_team(connection: sa.Connection, team: str) -> bool:
    """Return whether there is a team, which is not deleted."""
    found = sa.select(_teams.c.team).where(_teams.c.team == team, _teams.c.deleted_at.is_(None))
    return connection.execute(found).one_or_none() is not None
