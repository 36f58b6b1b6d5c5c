"""Pages of the audit on the wire."""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import TYPE_CHECKING

from assay.admin.v1 import admin_pb2 as pb
from assay.identity.audit import AuditEntry
from assay.identity.rights import Right
from assay.model.scope import Scope
from assay.wire.times import conditions_from_wire, timestamp_to_wire
from assay_orchestrator.store.page_tokens import PageTokens
from assay_orchestrator.store.teams import audit
from assay_orchestrator.store.teams.audit import AuditPosition, AuditQuery

if TYPE_CHECKING:
    from assay.identity.audit import StoredEntry
    from assay.identity.caller import Identity
    from assay.storage.database import Database

_PAGE_ENTRIES, _MOST_PAGE_ENTRIES = 200, 1_000


class AuditPages:
    """Reads pages of entries.

    Args:
        database: The store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tokens = PageTokens(database)

    async def read(self, own: Identity, request: pb.ListAuditEventsRequest) -> pb.ListAuditEventsResponse:
        """Return the requested page.

        Raises:
            InvalidInputError: A time is invalid.
            InvalidInputError: The page token belongs to another query.
        """
        query = AuditQuery(
            request.team or ("" if own.may(Right.OPERATE) else own.team),
            request.actor,
            request.action,
            *conditions_from_wire(request, ("event_time_from", "event_time_before")),
        )
        scope, bound_to = Scope(own.team), ("ListAuditEvents", *astuple(query))
        position = await self._tokens.read(scope, bound_to, request.page_token, (str, str, int))
        after = None if position is None else AuditPosition(str(position[0]), str(position[1]), int(position[2]))
        count = min(request.page_size or _PAGE_ENTRIES, _MOST_PAGE_ENTRIES)
        entries = await self._database.read(lambda c: audit.list_entries(c, query, after, count + 1))
        page, token = entries[:count], ""
        if len(entries) > count:
            last = page[-1]
            token = await self._tokens.make(scope, bound_to, (last.at, last.entry.team, last.sequence))
        return pb.ListAuditEventsResponse(events=map(_to_wire, page), next_page_token=token)


def _to_wire(stored: StoredEntry) -> pb.AuditEvent:
    content = {field.name: getattr(stored.entry, field.name) for field in fields(AuditEntry)}
    return pb.AuditEvent(
        sequence=stored.sequence, event_time=timestamp_to_wire(stored.at), digest=stored.digest, **content
    )
