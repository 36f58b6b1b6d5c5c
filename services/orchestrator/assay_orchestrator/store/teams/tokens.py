"""Teams and their tokens; the database stores only the tokens' hashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.errors import ConflictError, NotFoundError, OverloadedError, PermissionDeniedError
from assay.identity.team_state import TeamState
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
    """A stored token; times are ISO 8601, None for never.

    Args:
        token_id: Its public part.
        digest: SHA-256 of the whole token, as hexadecimal digits.
        team: The team that it gives access to.
        role: The value of a `Role`.
        name: Its purpose.
        created_by: The id of the token that created it; empty if it was created at the database.
        created_at: When it was created.
        expires_at: When it expires.
        revoked_at: When it was revoked.
        last_used_at: When it was last used, to the hour.
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
    """A token to create.

    Args:
        team: The team that it gives access to.
        role: What its holder may do.
        name: Its purpose.
        created_by: The id of the token that creates it; empty at the database.
        expires_at: When it expires, ISO 8601; None for never.
    """

    team: str
    role: Role
    name: str
    created_by: str = ""
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class TeamRecord:
    """A stored team; times are ISO 8601, None for never.

    Args:
        team: Its name.
        created_at: When it was created.
        disabled_at: When it was disabled.
        keep_audit_days: After how many days entries of its audit are removed.
        keep_runs_days: After how many days its ended runs are deleted.
        deleted_at: When it was deleted; no other team may get its name.
        erased_at: When the last of its data was removed.
    """

    team: str
    created_at: str
    disabled_at: str | None = None
    keep_audit_days: int | None = None
    keep_runs_days: int | None = None
    deleted_at: str | None = None
    erased_at: str | None = None

    @property
    def state(self) -> TeamState:
        """The state."""
        if self.deleted_at is not None:
            return TeamState.DELETING if self.erased_at is None else TeamState.DELETED
        return TeamState.ACTIVE if self.disabled_at is None else TeamState.DISABLED


def create_team(connection: sa.Connection, team: str) -> TeamRecord:
    """Add a team and return it.

    Raises:
        ConflictError: There is already a team of this name.
        OverloadedError: The limit of teams is reached.
    """
    existing = connection.execute(sa.select(_teams.c.deleted_at).where(_teams.c.team == team)).one_or_none()
    # The name of a deleted team stays taken: tokens of other issuers may still name it.
    if existing is not None:
        raise ConflictError(
            f"there is already a team {team!r}"
            if existing.deleted_at is None
            else f"there was a team {team!r}, which was deleted at {existing.deleted_at}: choose another name, because "
            "tokens of other issuers may still name this team",
            reason="TEAM_EXISTS" if existing.deleted_at is None else "TEAM_DELETED",
        )
    if connection.execute(sa.select(sa.func.count()).select_from(_teams)).scalar_one() >= MAX_TEAMS:
        raise OverloadedError(f"there are {MAX_TEAMS:,} teams, which is the limit", reason="TOO_MANY_TEAMS")
    created_at = now()
    connection.execute(sa.insert(_teams).values(team=team, created_at=created_at))
    return TeamRecord(team, created_at)


def list_teams(connection: sa.Connection, after: str, count: int) -> Sequence[TeamRecord]:
    """Return up to `count` teams, by name, that follow a name."""
    query = sa.select(_teams).where(_teams.c.team > after).order_by(_teams.c.team).limit(count)
    return [TeamRecord(**row) for row in connection.execute(query).mappings()]


def set_disabled(connection: sa.Connection, team: str, *, disabled: bool) -> TeamRecord:
    """Disable or re-enable a team, and return it. No run of it is created meanwhile.

    Raises:
        NotFoundError: There is no such team.
    """
    # A run that is being created either sees the change or is seen by the pause that follows.
    runs.lock_creation(connection)
    is_as_before = _teams.c.disabled_at.is_(None) if disabled else _teams.c.disabled_at.is_not(None)
    is_there = (_teams.c.team == team) & _teams.c.deleted_at.is_(None)
    changed = sa.update(_teams).where(is_there & is_as_before)
    connection.execute(changed.values(disabled_at=now() if disabled else None))
    return get_team(connection, team)


def get_team(connection: sa.Connection, team: str, *, even_deleted: bool = False) -> TeamRecord:
    """Return a team.

    Raises:
        NotFoundError: There is no such team.
    """
    query = sa.select(_teams).where(_teams.c.team == team)
    if not even_deleted:
        query = query.where(_teams.c.deleted_at.is_(None))
    team_row = connection.execute(query).mappings().one_or_none()
    if team_row is None:
        raise NotFoundError(
            f"there is no team {team!r}: `assay admin teams list` lists the teams, `assay admin teams create` adds one",
            reason="TEAM_NOT_FOUND",
        )
    return TeamRecord(**team_row)


def disabled_teams(connection: sa.Connection) -> frozenset[str]:
    """Return the teams that are disabled."""
    return frozenset(connection.execute(sa.select(_teams.c.team).where(_teams.c.disabled_at.is_not(None))).scalars())


def require_enabled(connection: sa.Connection, team: str) -> None:
    """Raise unless a team may work; teams without tokens always may. The team is not deleted before the commit.

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
    """Raise if a team is deleted, since nothing may be stored for it; it is not deleted before the commit.

    Raises:
        PermissionDeniedError: The team is deleted.
    """
    query = sa.select(_teams.c.deleted_at).where(_teams.c.team == team).with_for_update(read=True)
    if connection.execute(query).scalar_one_or_none() is not None:
        raise PermissionDeniedError(
            "the operator has deleted the team: nothing is stored for it any more", reason="TEAM_DELETED"
        )


def create_token(connection: sa.Connection, token: Token, new: NewToken) -> TokenRecord:
    """Store a new token's hash.

    Raises:
        NotFoundError: There is no such team.
        OverloadedError: The team has too many unrevoked tokens.
    """
    get_team(connection, new.team)
    own = (_tokens.c.team == new.team) & _tokens.c.revoked_at.is_(None)
    if connection.execute(sa.select(sa.func.count()).where(own)).scalar_one() >= MAX_TOKENS_PER_TEAM:
        raise OverloadedError(
            f"the team has {MAX_TOKENS_PER_TEAM:,} tokens: revoke one with `assay admin tokens revoke`",
            reason="TOO_MANY_TOKENS",
        )
    record = TokenRecord(
        token.token_id, token.digest, new.team, new.role.value, new.name, new.created_by, now(),
        new.expires_at,
    )  # fmt: skip
    values = {name: getattr(record, name) for name in TokenRecord.__slots__}
    connection.execute(sa.insert(_tokens).values(values))
    return record


def find_token(connection: sa.Connection, token_id: str) -> TokenRecord | None:
    """Return the token with an id, even if it is expired or revoked."""
    token_row = connection.execute(_select().where(_tokens.c.token_id == token_id)).mappings().one_or_none()
    return None if token_row is None else TokenRecord(**token_row)


def list_tokens(connection: sa.Connection, team: str, after: tuple[str, str], count: int) -> Sequence[TokenRecord]:
    """Return up to `count` of a team's tokens, oldest first, including revoked ones.

    Args:
        connection: The transaction.
        team: The team.
        after: The time of creation and the id of the token that they follow; empty texts for the first.
        count: The maximum number of tokens.
    """
    position = (_tokens.c.created_at, _tokens.c.token_id)
    query = _select().where(_tokens.c.team == team, sa.tuple_(*position) > sa.tuple_(*map(sa.literal, after)))
    return [TokenRecord(**row) for row in connection.execute(query.order_by(*position).limit(count)).mappings()]


def revoke_token(connection: sa.Connection, token_id: str, team: str | None, roles: Collection[str]) -> TokenRecord:
    """Revoke a token; a revoked token stays unchanged.

    Args:
        connection: The transaction.
        token_id: Its public part.
        team: The team whose tokens may be revoked; None for every team.
        roles: The roles whose tokens may be revoked.

    Raises:
        NotFoundError: There is no such token, or it belongs to another team.
        PermissionDeniedError: It has another role.
    """
    record = find_token(connection, token_id)
    if record is None or team not in (None, record.team):
        raise NotFoundError(
            f"there is no token {token_id!r}: `assay admin tokens list` lists the tokens",
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
    """Record that a token was used, to the hour."""
    hour = f"{now()[:13]}:00:00.000Z"
    connection.execute(sa.update(_tokens).where(_tokens.c.token_id == token_id).values(last_used_at=hour))


def _select() -> sa.Select[Any]:
    return sa.select(*(_tokens.c[name] for name in TokenRecord.__slots__))


def has_team(connection: sa.Connection, team: str) -> bool:
    """Return whether a team exists and is not deleted."""
    query = sa.select(_teams.c.team).where(_teams.c.team == team, _teams.c.deleted_at.is_(None))
    return connection.execute(query).one_or_none() is not None
