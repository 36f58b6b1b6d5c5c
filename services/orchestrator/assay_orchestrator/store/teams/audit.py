"""The audit: entries are added, listed, and removed after the team's retention; nothing else.

Each team's entries form a chain: the digest of an entry covers that of its predecessor, so that a removed, changed or
inserted entry shows (`assay admin audit verify`).
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
_CONTENT = tuple(field.name for field in fields(AuditEntry))


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """The conditions of a page of entries; an empty text is no condition.

    Args:
        team: The team.
        actor: The token of the caller.
        action: The action.
        since: The earliest time, in the store's format.
        until: The time before which entries end.
    """

    team: str = ""
    actor: str = ""
    action: str = ""
    since: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class AuditPosition:
    """The position where a page of entries ends."""

    at: str
    team: str
    sequence: int


def record(
    connection: sa.Connection, call: AuditedCall | None, *, team: str = "", resource: str = "", action: str = ""
) -> None:
    """Add the entry of a call in the transaction of its change; must be the last lock of the transaction.

    Args:
        connection: The transaction.
        call: The call; None if nothing is recorded.
        team: The owner of the changed resource; empty for the team that the call names, else the caller's own.
        resource: The changed resource; empty for the one that the request names.
        action: The action; empty for the action of the method.
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
        change: Makes the change in one transaction.
        call: As in `record`.
        changed: Returns the team and the name of the changed resource from the change's result; empty values are taken
            from the request.
    """

    def both(connection: sa.Connection) -> T:
        result = change(connection)
        team, resource = changed(result)
        record(connection, call, team=team, resource=resource)
        return result

    return both


def append(connection: sa.Connection, entry: AuditEntry, *, at: str = "") -> StoredEntry:
    """Add an entry to the chain of its team.

    Args:
        connection: The transaction; until its commit no other adds to the chain.
        entry: The entry.
        at: Its time; empty for now.
    """
    schema.lock(connection, _CHAIN_LOCK, entry.team)
    # In the form that is read back, since the digest covers that.
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
    entries = sa.select(_table).order_by(*(column.desc() for column in columns)).limit(count)
    for name in ("team", "actor", "action"):
        if value := getattr(query, name):
            entries = entries.where(_table.c[name] == value)
    if query.since:
        entries = entries.where(_table.c.at >= query.since)
    if query.until:
        entries = entries.where(_table.c.at < query.until)
    if after is not None:
        end = (
            sa.literal(part, column.type)
            for part, column in zip((after.at, after.team, after.sequence), columns, strict=True)
        )
        entries = entries.where(sa.tuple_(*columns) < sa.tuple_(*end))
    return [_stored(row) for row in connection.execute(entries).mappings()]


def remove_before(connection: sa.Connection, team: str, at: str) -> int:
    """Remove a team's entries older than a time, except its newest; return how many.

    The database refuses to remove entries that the team's retention keeps.
    """
    newest = sa.select(sa.func.max(_table.c.sequence)).where(_table.c.team == team).scalar_subquery()
    old = (_table.c.team == team) & (_table.c.at < at) & (_table.c.sequence < newest)
    return connection.execute(_table.delete().where(old)).rowcount


def _stored(row: sa.RowMapping) -> StoredEntry:
    return StoredEntry(row["sequence"], row["at"], AuditEntry(**{name: row[name] for name in _CONTENT}), row["digest"])
