"""Pages of the lists of AdminService."""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any, TypeVar

from assay.admin.v1 import admin_pb2 as pb
from assay.identity.audit import AuditEntry
from assay.identity.quotas import Quota
from assay.identity.rights import Right
from assay.model.scope import Scope
from assay.wire.admin import quotas_to_wire, record_to_wire
from assay.wire.pages import first_page
from assay.wire.roles import role_to_wire
from assay.wire.times import conditions_from_wire, timestamp_to_wire
from assay_orchestrator.identity.admin_requests import required_team, team_to_wire
from assay_orchestrator.store.page_tokens import PageTokens
from assay_orchestrator.store.teams import audit, destinations, quotas, tokens
from assay_orchestrator.store.teams.audit import AuditPosition, AuditQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import sqlalchemy as sa
    from google.protobuf.message import Message

    from assay.identity.audit import StoredEntry
    from assay.identity.caller import Identity
    from assay.storage.database import Database

_PAGE_ENTRIES, _MOST_PAGE_ENTRIES = 200, 1_000

M = TypeVar("M", bound="Message")


class AdminPages:
    """Reads pages.

    Args:
        database: The store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tokens = PageTokens(database)

    async def teams(self, own: Identity, request: pb.ListTeamsRequest) -> pb.ListTeamsResponse:
        """Return a page of all teams."""

        def read(connection: sa.Connection, after: Any, count: int) -> Iterable[tuple[tuple[str], pb.Team]]:
            return (((team.team,), team_to_wire(team)) for team in tokens.list_teams(connection, after[0], count))

        page, token = await self._page(own, ("ListTeams",), request, ("",), read)
        return pb.ListTeamsResponse(teams=page, next_page_token=token)

    async def tokens(self, own: Identity, request: pb.ListTokensRequest) -> pb.ListTokensResponse:
        """Return a page of the tokens of a team."""
        team = required_team(request.team)

        def read(connection: sa.Connection, after: Any, count: int) -> Iterable[tuple[tuple[str, str], pb.Token]]:
            for record in tokens.list_tokens(connection, team, after, count):
                yield (record.created_at, record.token_id), record_to_wire(pb.Token, record)

        page, token = await self._page(own, ("ListTokens", team), request, ("", ""), read)
        return pb.ListTokensResponse(tokens=page, next_page_token=token)

    async def destinations(self, own: Identity, request: pb.ListDestinationsRequest) -> pb.ListDestinationsResponse:
        """Return a page of the destinations of a team."""
        team = required_team(request.team)

        def read(connection: sa.Connection, after: Any, count: int) -> Iterable[tuple[tuple[str], pb.Destination]]:
            for record in destinations.list_destinations(connection, team, after[0], count):
                yield (record.name,), record_to_wire(pb.Destination, record)

        page, token = await self._page(own, ("ListDestinations", team), request, ("",), read)
        return pb.ListDestinationsResponse(destinations=page, next_page_token=token)

    async def usage(self, own: Identity, request: pb.ListTeamUsageRequest) -> pb.ListTeamUsageResponse:
        """Return a page of the usage of the teams that the caller may see."""
        team = request.team or ("" if own.may(Right.OPERATE) else own.team)

        def read(connection: sa.Connection, after: Any, count: int) -> Iterable[tuple[tuple[str], pb.TeamUsage]]:
            records = [tokens.get_team(connection, team)] if team else tokens.list_teams(connection, after[0], count)
            return (((record.team,), usage_of(connection, record.team)) for record in records)

        page, token = await self._page(own, ("ListTeamUsage", team), request, ("",), read)
        return pb.ListTeamUsageResponse(teams=page, next_page_token=token)

    async def audit(self, own: Identity, request: pb.ListAuditEventsRequest) -> pb.ListAuditEventsResponse:
        """Return a page of the audit.

        Raises:
            InvalidInputError: A time is invalid.
        """
        query = AuditQuery(
            request.team or ("" if own.may(Right.OPERATE) else own.team),
            request.actor,
            request.action,
            *conditions_from_wire(request, ("event_time_from", "event_time_before")),
        )

        def read(
            connection: sa.Connection, after: Any, count: int
        ) -> Iterable[tuple[tuple[str, str, int], pb.AuditEvent]]:
            position = AuditPosition(*after) if after[0] else None
            for stored in audit.list_entries(connection, query, position, count):
                yield (stored.at, stored.entry.team, stored.sequence), _event(stored)

        page, token = await self._page(own, ("ListAuditEvents", *astuple(query)), request, ("", "", 0), read)
        return pb.ListAuditEventsResponse(events=page, next_page_token=token)

    async def _page(
        self,
        own: Identity,
        query: Sequence[str],
        request: Any,
        start: tuple[str | int, ...],
        read: Callable[[sa.Connection, Any, int], Iterable[tuple[tuple[str | int, ...], M]]],
    ) -> tuple[Sequence[M], str]:
        """Return the messages of a page, and the token of the next one.

        Args:
            own: The caller.
            query: The method and the fields that affect the content of its pages.
            request: Has `page_size` and `page_token`.
            start: The position before the first message.
            read: Returns up to some number of messages that follow a position, with their positions.

        Raises:
            InvalidInputError: The page token belongs to another query.
        """
        scope = Scope(own.team)
        after = await self._tokens.read(scope, query, request.page_token, [type(part) for part in start])
        count = min(request.page_size or _PAGE_ENTRIES, _MOST_PAGE_ENTRIES)
        entries = await self._database.read(lambda c: list(read(c, after or start, count + 1)))
        page = first_page(message for _, message in entries[:count])
        is_last = len(page) == len(entries)
        return page, "" if is_last else await self._tokens.make(scope, query, entries[len(page) - 1][0])


def usage_of(connection: sa.Connection, team: str) -> pb.TeamUsage:
    """Return how much of its quotas a team uses."""
    return pb.TeamUsage(
        team=team,
        used=quotas_to_wire({quota: quotas.use_of(connection, team, quota) for quota in Quota}),
        quotas=quotas_to_wire(quotas.read_quotas(connection, team)),
        queued_row_count=max(0, quotas.queued_rows(connection, team)),
    )


def _event(stored: StoredEntry) -> pb.AuditEvent:
    content = {field.name: getattr(stored.entry, field.name) for field in fields(AuditEntry)}
    role, count = role_to_wire(content.pop("role")), content.pop("count")
    return pb.AuditEvent(
        sequence=stored.sequence,
        event_time=timestamp_to_wire(stored.at),
        digest=stored.digest,
        role=role,
        event_count=count,
        **content,
    )
