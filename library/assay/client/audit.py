"""The audit of an installation that teams share: read, and checked for entries that were removed or changed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from assay.client.admin import call_admin
from assay.identity.audit import AuditEntry, StoredEntry, entry_digest
from assay.v1 import admin_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from assay.client.client import Client

_PAGE_ENTRIES = 1_000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted; an empty text is no condition.

    Args:
        team: Of this team; empty for all that the client's token may see.
        actor: Of this token: its public part.
        action: Of this action, e.g. "delete-run".
        since: Of this moment or later, ISO 8601.
        until: Of an earlier moment, ISO 8601.
    """

    team: str = ""
    actor: str = ""
    action: str = ""
    since: str = ""
    until: str = ""


async def list_audit(
    client: Client, wanted: AuditFilter = AuditFilter(), limit: int = 0
) -> AsyncGenerator[StoredEntry]:
    """Yield entries of the audit, the newest first.

    Args:
        client: With the token of an operator, or of a team's admin.
        wanted: Which entries.
        limit: Most entries; 0 for all.

    Raises:
        PermissionDeniedError: The token's role may not read the audit.
        InvalidInputError: A time is none.
    """
    token, left = "", limit
    while True:
        conditions = {each.name: getattr(wanted, each.name) for each in fields(AuditFilter)}
        size = min(left, _PAGE_ENTRIES) if limit else _PAGE_ENTRIES
        request = pb.ListAuditEventsRequest(**conditions, page_size=size, page_token=token)
        page = await call_admin(client, lambda stub, request=request: stub.ListAuditEvents(request))  # type: ignore[misc]  # mypy does not infer it
        for event in page.events:
            yield _stored(event)
        left -= len(page.events)
        token = page.next_page_token
        if not token or (limit and left <= 0):
            return


def _stored(event: pb.AuditEvent) -> StoredEntry:
    entry = AuditEntry(**{each.name: getattr(event, each.name) for each in fields(AuditEntry)})
    return StoredEntry(event.sequence, event.at, entry, event.digest)


@dataclass
class ChainCheck:
    """Checks that the entries of each team are a chain; is given every entry, the newest first.

    Args:
        newest: The newest entry of each team.
        oldest: The oldest that was seen.
        count: How many entries were seen.
        problems: What is wrong, as sentences.
    """

    newest: dict[str, StoredEntry] = field(default_factory=dict)
    oldest: dict[str, StoredEntry] = field(default_factory=dict)
    count: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, stored: StoredEntry) -> None:
        """Compare an entry with the one after it."""
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
            self.problems.append(f"team {team}: entry {later.sequence} or the one before it was changed")

    def finish(self) -> None:
        """Check the first entry of each team; where older ones were removed, there is nothing to compare it with."""
        for team, first in self.oldest.items():
            if first.sequence == 1 and not _fits(first, ""):
                self.problems.append(f"team {team}: entry 1 was changed")


def _fits(stored: StoredEntry, previous: str) -> bool:
    return stored.digest == entry_digest(previous, stored.sequence, stored.at, stored.entry)
