"""The audit: entries are added, listed, and removed when a team's retention is over; nothing else.

Each team's entries are a chain: the digest of one covers that of the one before it, so that a removed, changed or
added entry shows (`assay admin audit verify`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.identity.audit import AuditEntry, StoredEntry, entry_digest
from assay.model.answers.agent_response import clean_text
from assay.storage.times import now
from assay_orchestrator.store import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from assay.identity.audit import AuditedCall

    T = TypeVar("T")

_CHAIN_LOCK = 0x41554454
_table = schema.audit_entries
_CONTENT = tuple(each.name for each in fields(AuditEntry))


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which entries a page holds; an empty text is no condition.

    Args:
        team: Of this team.
        actor: Of this token.
        action: Of this action.
        since: Of this moment or later, as the store has times.
        until: Of an earlier moment.
    """

    team: str = ""
    actor: str = ""
    action: str = ""
    since: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class AuditPosition:
    """Where a page of entries ends."""

    at: str
    team: str
    sequence: int


def record(
    connection: sa.Connection, call: AuditedCall | None, *, team: str = "", resource: str = "", action: str = ""
) -> None:
    """Add the entry of a call in the transaction of its change, as the last that this locks.

    Args:
        connection: In whose transaction.
        call: The call; None where nothing is recorded.
        team: Whose things it changes; empty for the team that it names, else the caller's own.
        resource: What it changes; empty for what its request names.
        action: What is done; empty for the action of its method.
    """
    if call is not None:
        append(connection, call.entry(team=team, resource=resource, action=action))
        call.settle()


def recorded(
    change: Callable[[sa.Connection], T],
    call: AuditedCall | None,
    changed: Callable[[T], tuple[str, str]] = lambda made: ("", ""),
) -> Callable[[sa.Connection], T]:
    """Return a change that also adds the entry of its call.

    Args:
        change: What is done in one transaction.
        call: As in `record`.
        changed: Returns from what the change returned the team and the name of what was changed; empty ones are as
            the request has them.
    """

    def both(connection: sa.Connection) -> T:
        made = change(connection)
        team, resource = changed(made)
        record(connection, call, team=team, resource=resource)
        return made

    return both


def append(connection: sa.Connection, entry: AuditEntry, *, at: str = "") -> StoredEntry:
    """Add an entry to the chain of its team.

    Args:
        connection: In whose transaction; until its commit no other adds to the chain.
        entry: What happened.
        at: When; empty for now.
    """
    if connection.dialect.name == "postgresql":  # SQLite writes one transaction at a time
        key = sa.func.hashtext(sa.func.current_schema() + sa.literal(f" {entry.team}"))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CHAIN_LOCK, key)))
    # As it will be read, for the digest covers that.
    cleaned = {name: clean_text(value) for name in _CONTENT if isinstance(value := getattr(entry, name), str)}
    entry = replace(entry, **cleaned)  # type: ignore[arg-type]  # texts alone
    newest = sa.select(_table.c.sequence, _table.c.digest).where(_table.c.team == entry.team)
    last = connection.execute(newest.order_by(_table.c.sequence.desc()).limit(1)).one_or_none()
    sequence, previous = (1, "") if last is None else (last.sequence + 1, last.digest)
    moment = at or now()
    stored = StoredEntry(sequence, moment, entry, entry_digest(previous, sequence, moment, entry))
    values = {name: getattr(entry, name) for name in _CONTENT}
    connection.execute(_table.insert().values(**values, sequence=sequence, at=moment, digest=stored.digest))
    return stored


def list_entries(
    connection: sa.Connection, query: AuditQuery, after: AuditPosition | None, count: int
) -> Sequence[StoredEntry]:
    """Return up to `count` entries, the newest first, after a position."""
    columns = (_table.c.at, _table.c.team, _table.c.sequence)
    wanted = sa.select(_table).order_by(*(column.desc() for column in columns)).limit(count)
    for name in ("team", "actor", "action"):
        if value := getattr(query, name):
            wanted = wanted.where(_table.c[name] == value)
    if query.since:
        wanted = wanted.where(_table.c.at >= query.since)
    if query.until:
        wanted = wanted.where(_table.c.at < query.until)
    if after is not None:
        end = (
            sa.literal(part, column.type)
            for part, column in zip((after.at, after.team, after.sequence), columns, strict=True)
        )
        wanted = wanted.where(sa.tuple_(*columns) < sa.tuple_(*end))
    return [_stored(row) for row in connection.execute(wanted).mappings()]


def remove_before(connection: sa.Connection, team: str, at: str) -> int:
    """Remove the entries of a team that are older than a moment, but its newest; return how many.

    The database refuses to remove those that the team's retention keeps.
    """
    newest = sa.select(sa.func.max(_table.c.sequence)).where(_table.c.team == team).scalar_subquery()
    old = (_table.c.team == team) & (_table.c.at < at) & (_table.c.sequence < newest)
    return connection.execute(_table.delete().where(old)).rowcount


def _stored(row: sa.RowMapping) -> StoredEntry:
    return StoredEntry(row["sequence"], row["at"], AuditEntry(**{name: row[name] for name in _CONTENT}), row["digest"])
