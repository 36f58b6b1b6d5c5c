"""The audit log of a shared server: reading it, and checking it for removed or changed entries."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from assay.admin.v1 import admin_pb2 as pb
from assay.client.admin import call_admin
from assay.errors import InvalidInputError, Problem
from assay.identity.audit import AuditEntry, StoredEntry, entry_digest
from assay.wire.roles import role_from_wire
from assay.wire.times import timestamp_from_wire, timestamp_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from google.protobuf.timestamp_pb2 import Timestamp

    from assay.client.client import Client

_PAGE_ENTRIES = 1_000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Conditions on audit entries; an empty text is no condition.

    Args:
        team: Team of the entries; empty for all that the client's token may see.
        actor: Public part of the acting token.
        action: Action such as "delete-run".
        since: Earliest time, inclusive, ISO 8601.
        until: Latest time, exclusive, ISO 8601.
    """

    team: str = ""
    actor: str = ""
    action: str = ""
    since: str = ""
    until: str = ""


async def list_audit(
    client: Client, wanted: AuditFilter = AuditFilter(), limit: int = 0
) -> AsyncGenerator[StoredEntry]:
    """Yield entries of the audit log, newest first.

    Args:
        client: A client with the token of an operator or a team admin.
        wanted: Conditions on the entries.
        limit: Maximum number of entries; 0 for all.

    Raises:
        PermissionDeniedError: The token's role may not read the audit.
        InvalidInputError: A time is invalid.
    """
    token, remaining = "", limit
    while True:
        size = min(remaining, _PAGE_ENTRIES) if limit else _PAGE_ENTRIES
        request = pb.ListAuditEventsRequest(
            team=wanted.team,
            actor=wanted.actor,
            action=wanted.action,
            event_time_from=_moment(wanted.since, "since"),
            event_time_before=_moment(wanted.until, "until"),
            page_size=size,
            page_token=token,
        )
        page = await call_admin(client, lambda stub, request=request: stub.ListAuditEvents(request))  # type: ignore[misc]  # mypy does not infer it
        for event in page.events:
            yield _stored(event)
        remaining -= len(page.events)
        token = page.next_page_token
        if not token or (limit and remaining <= 0):
            return


def _stored(event: pb.AuditEvent) -> StoredEntry:
    names = {part.name for part in fields(AuditEntry)} - {"role", "count"}
    texts = {name: getattr(event, name) for name in names}
    entry = AuditEntry(**texts, role=role_from_wire(event.role), count=event.event_count)
    return StoredEntry(event.sequence, timestamp_from_wire(event.event_time), entry, event.digest)


def _moment(text: str, field: str) -> Timestamp | None:
    """Return the message for a time; a time without a zone is in UTC, and an empty text is no condition.

    Raises:
        InvalidInputError: The text is not a time.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return timestamp_to_wire((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).isoformat())
    except (ValueError, OverflowError):
        problem = f"must be a time such as 2026-05-01 or 2026-05-01T09:30:00Z, not {text[:40]!a}"
        raise InvalidInputError([Problem(problem, field)]) from None


@dataclass
class ChainCheck:
    """Checks that each team's entries form an unbroken chain; add all entries, newest first.

    Args:
        newest: Newest entry of each team.
        oldest: Oldest entry of each team so far.
        count: Number of entries so far.
        problems: Problems, as sentences.
    """

    newest: dict[str, StoredEntry] = field(default_factory=dict)
    oldest: dict[str, StoredEntry] = field(default_factory=dict)
    count: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, stored: StoredEntry) -> None:
        """Compare an entry with its successor."""
        team = stored.entry.team
        self.count += 1
        self.newest.setdefault(team, stored)
        later = self.oldest.get(team)
        self.oldest[team] = stored
        if later is None:
            return
        if later.sequence != stored.sequence + 1:
            self.problems.append(f"team {team}: entries {stored.sequence + 1} to {later.sequence - 1} are missing")
        elif not _fits(later, stored.digest):
            self.problems.append(f"team {team}: entry {later.sequence} or its predecessor was changed")

    def finish(self) -> None:
        """Check the first entry of each team, unless retention removed its predecessors."""
        for team, first in self.oldest.items():
            if first.sequence == 1 and not _fits(first, ""):
                self.problems.append(f"team {team}: entry 1 was changed")


def _fits(stored: StoredEntry, previous: str) -> bool:
    return stored.digest == entry_digest(previous, stored.sequence, stored.at, stored.entry)
