"""AdminService on the wire: teams, tokens, quotas, destinations and the audit.

The interceptor has already checked rights and the teams that a request names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from assay.admin.v1 import admin_pb2 as pb
from assay.admin.v1 import admin_pb2_grpc
from assay.errors import InvalidInputError, Problem
from assay.identity.audit import OPERATORS, audited_call
from assay.identity.caller import caller
from assay.identity.rights import RIGHTS, Right, Role
from assay.identity.tokens import new_token
from assay.model.scope import Scope
from assay.wire.admin import quotas_to_wire, record_to_wire
from assay_orchestrator.identity.admin_pages import AdminPages
from assay_orchestrator.identity.admin_requests import (
    destination_to_create,
    quota_change,
    required_team,
    team_change,
    team_to_wire,
    token_to_create,
)
from assay_orchestrator.identity.scopes import check_team_name
from assay_orchestrator.store.removal import erasure, retention
from assay_orchestrator.store.teams import audit, destinations, quotas, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

    from assay.identity.quotas import Quota
    from assay.rpc.access import Context
    from assay.storage.database import Database
    from assay_orchestrator.identity.admin_requests import QuotaChange
    from assay_orchestrator.store.teams.tokens import TeamRecord

SERVICE_NAME = "assay.admin.v1.AdminService"

T = TypeVar("T")

_log = logging.getLogger(__name__)


class TeamRuns(Protocol):
    """The runs of teams; implemented by `runs.team_runs`."""

    async def pause_active(self, scope: Scope) -> int:
        """Pause the pending and running runs of a scope; return how many."""

    async def requeue_idle(self) -> None:
        """Enqueue the next jobs of active runs without a queued shard."""

    async def stop(self, scope: Scope) -> int:
        """Cancel the unfinished runs of a deleted team; return how many."""


class TeamUpkeep(Protocol):
    """Deletes the data of teams in the background."""

    def wake(self) -> None:
        """Check for work now."""


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """Manages teams, tokens, quotas and destinations.

    Args:
        database: The store.
        runs: The runs of teams.
        upkeep: Deletes the data of teams.
    """

    def __init__(self, database: Database, runs: TeamRuns, upkeep: TeamUpkeep) -> None:
        self._database = database
        self._runs = runs
        self._upkeep = upkeep
        self._pages = AdminPages(database)

    async def CreateTeam(self, request: pb.CreateTeamRequest, context: Context) -> pb.CreateTeamResponse:
        """Add a team."""
        check_team_name(request.team)
        created = await self._recorded(lambda c: tokens.create_team(c, request.team))
        _log.info("created team: team=%s by=%s", request.team, caller().token_id)
        return pb.CreateTeamResponse(team=team_to_wire(created))

    async def GetTeam(self, request: pb.GetTeamRequest, context: Context) -> pb.GetTeamResponse:
        """Return a team, and how much of its data is deleted."""
        team = required_team(request.team)

        def read(connection: sa.Connection) -> pb.GetTeamResponse:
            record = tokens.get_team(connection, team, even_deleted=True)
            stores = [
                pb.DeletedStore(store=count.store, deleted_count=count.deleted, remaining_count=count.remaining)
                for count in erasure.list_counts(connection, team)
            ]
            return pb.GetTeamResponse(team=team_to_wire(record), deleted_stores=stores)

        return await self._database.read(read)

    async def ListTeams(self, request: pb.ListTeamsRequest, context: Context) -> pb.ListTeamsResponse:
        """Return a page of all teams."""
        return await self._pages.teams(caller(), request)

    async def UpdateTeam(self, request: pb.UpdateTeamRequest, context: Context) -> pb.UpdateTeamResponse:
        """Disable or enable a team, and set how long its data is kept."""
        own, call = caller(), audited_call()
        change = team_change(request, own)
        team = change.team

        def update(connection: sa.Connection) -> TeamRecord:
            if change.disabled is not None:
                tokens.set_disabled(connection, team, disabled=change.disabled)
            record = retention.set_retention(connection, team, change.days)
            if change.disabled is not None:
                audit.record(connection, call, action="disable-team" if change.disabled else "enable-team")
            if change.days or change.disabled is None:
                audit.record(connection, call)
            return record

        changed = await self._database.write(update)
        _log.info("updated team: team=%s state=%s by=%s", team, changed.state.value, own.token_id)
        paused = await self._runs.pause_active(Scope(team)) if change.disabled else 0
        if change.days:
            self._upkeep.wake()
        return pb.UpdateTeamResponse(team=team_to_wire(changed), paused_run_count=paused)

    async def DeleteTeam(self, request: pb.DeleteTeamRequest, context: Context) -> pb.DeleteTeamResponse:
        """Begin to delete a team with all its data."""
        own, call = caller(), audited_call()
        team = required_team(request.team)
        if team == own.team:
            raise InvalidInputError([Problem("is your own team: let an operator of another team delete it", "team")])

        def begin(connection: sa.Connection) -> tuple[TeamRecord, bool]:
            record, is_new = erasure.begin_erasure(connection, team)
            if is_new:
                audit.record(connection, call, team=team, resource=team)
            elif call is not None:
                call.settle()
            return record, is_new

        record, is_new = await self._database.write(begin)
        cancelled = await self._runs.stop(Scope(team)) if is_new else 0
        if is_new:
            _log.info("deleted team, erasing its data: team=%s by=%s", team, own.token_id)
        self._upkeep.wake()
        return pb.DeleteTeamResponse(team=team_to_wire(record), cancelled_run_count=cancelled)

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        """Create a token; only the response contains its secret."""
        own = caller()
        new = token_to_create(request, own)
        token = new_token()
        record = await self._recorded(
            lambda c: tokens.create_token(c, token, new), lambda stored: (stored.team, stored.token_id)
        )
        _log.info(
            "created token: token=%s team=%s role=%s by=%s", record.token_id, record.team, record.role, own.token_id
        )
        return pb.CreateTokenResponse(secret=token.text, token=record_to_wire(pb.Token, record))

    async def ListTokens(self, request: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        """Return a page of the tokens of a team."""
        return await self._pages.tokens(caller(), request)

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.RevokeTokenResponse:
        """Revoke a token."""
        own = caller()
        team = None if own.may(Right.OPERATE) else own.team
        roles = [role.value for role in Role if RIGHTS[role] <= RIGHTS[own.role]]
        record = await self._recorded(
            lambda c: tokens.revoke_token(c, request.token_id, team, roles), lambda gone: (gone.team, gone.token_id)
        )
        _log.info("revoked token: token=%s team=%s by=%s", record.token_id, record.team, own.token_id)
        return pb.RevokeTokenResponse(token=record_to_wire(pb.Token, record))

    async def CreateDestination(
        self, request: pb.CreateDestinationRequest, context: Context
    ) -> pb.CreateDestinationResponse:
        """Register an address that a team's runs may call."""
        own = caller()
        destination = destination_to_create(request, own)
        created = await self._recorded(lambda c: destinations.create_destination(c, destination))
        _log.info(
            "created destination: name=%s team=%s address=%s by=%s",
            created.name,
            created.team,
            created.address,
            own.token_id,
        )
        return pb.CreateDestinationResponse(destination=record_to_wire(pb.Destination, created))

    async def ListDestinations(
        self, request: pb.ListDestinationsRequest, context: Context
    ) -> pb.ListDestinationsResponse:
        """Return a page of the destinations of a team."""
        return await self._pages.destinations(caller(), request)

    async def DeleteDestination(
        self, request: pb.DeleteDestinationRequest, context: Context
    ) -> pb.DeleteDestinationResponse:
        """Remove a destination."""
        team = required_team(request.team)
        await self._recorded(lambda c: destinations.delete_destination(c, team, request.name))
        _log.info("deleted destination: name=%s team=%s by=%s", request.name, team, caller().token_id)
        return pb.DeleteDestinationResponse()

    async def ListAuditEvents(self, request: pb.ListAuditEventsRequest, context: Context) -> pb.ListAuditEventsResponse:
        """Return a page of the audit."""
        return await self._pages.audit(caller(), request)

    async def UpdateQuotas(self, request: pb.UpdateQuotasRequest, context: Context) -> pb.UpdateQuotasResponse:
        """Set and remove quotas of a team."""
        team, change = required_team(request.team), quota_change(request.quotas, request.update_mask)
        effective = await self._update_quotas(team, change, (team, team))
        return pb.UpdateQuotasResponse(quotas=quotas_to_wire(effective))

    async def GetQuotas(self, request: pb.GetQuotasRequest, context: Context) -> pb.GetQuotasResponse:
        """Return the quotas that apply to a team."""
        team = required_team(request.team)

        def read(connection: sa.Connection) -> pb.GetQuotasResponse:
            tokens.get_team(connection, team)
            return pb.GetQuotasResponse(
                quotas=quotas_to_wire(quotas.read_quotas(connection, team)),
                own_quotas=quotas_to_wire(quotas.own_quotas(connection, team)),
            )

        return await self._database.read(read)

    async def UpdateDefaultQuotas(
        self, request: pb.UpdateDefaultQuotasRequest, context: Context
    ) -> pb.UpdateDefaultQuotasResponse:
        """Set and remove the quotas of teams without their own."""
        change = quota_change(request.quotas, request.update_mask)
        effective = await self._update_quotas(quotas.ALL_TEAMS, change, (OPERATORS, "default"))
        return pb.UpdateDefaultQuotasResponse(quotas=quotas_to_wire(effective))

    async def GetDefaultQuotas(
        self, request: pb.GetDefaultQuotasRequest, context: Context
    ) -> pb.GetDefaultQuotasResponse:
        """Return the quotas of teams without their own."""
        effective = await self._database.read(lambda c: quotas.read_quotas(c, quotas.ALL_TEAMS))
        return pb.GetDefaultQuotasResponse(quotas=quotas_to_wire(effective))

    async def ListTeamUsage(self, request: pb.ListTeamUsageRequest, context: Context) -> pb.ListTeamUsageResponse:
        """Return a page of how much of their quotas teams use."""
        return await self._pages.usage(caller(), request)

    async def _update_quotas(self, team: str, change: QuotaChange, resource: tuple[str, str]) -> dict[Quota, int]:
        """Change quotas and return those in force.

        Args:
            team: The team, or `quotas.ALL_TEAMS`.
            change: The change.
            resource: The team and the name of the changed resource, for the audit.
        """

        def update(connection: sa.Connection) -> dict[Quota, int]:
            if team != quotas.ALL_TEAMS:
                tokens.get_team(connection, team)
            quotas.set_quotas(connection, team, change.amounts, change.removed)
            return quotas.read_quotas(connection, team)

        effective = await self._recorded(update, lambda _: resource)
        _log.info("updated quotas: team=%s quotas=%s by=%s", team, change, caller().token_id)
        await self._runs.requeue_idle()
        return effective

    async def _recorded(
        self,
        change: Callable[[sa.Connection], T],
        changed: Callable[[T], tuple[str, str]] = lambda result: ("", ""),
    ) -> T:
        """Apply a change, and add its entry to the audit in the same transaction.

        Args:
            change: Makes the change.
            changed: Returns the team and the name of the changed resource from the change's result; empty values are
                taken from the request.
        """
        return await self._database.write(audit.recorded(change, audited_call(), changed))
