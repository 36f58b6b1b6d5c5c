"""Administration of a shared server: teams, tokens, quotas and destinations."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.field_mask_pb2 import FieldMask

from assay.admin.v1 import admin_pb2 as pb
from assay.admin.v1 import admin_pb2_grpc
from assay.errors import InvalidInputError, Problem, SetupError
from assay.identity.rights import Role
from assay.identity.team_state import TeamState
from assay.v1 import server_pb2, server_pb2_grpc
from assay.wire.admin import QUOTA_FIELDS, TEAM_STATES, quotas_from_wire, quotas_to_wire, record_from_wire
from assay.wire.roles import ROLES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from assay.client.client import Client
    from assay.identity.quotas import Quota

PAGE_SIZE = 1_000
"""The number of entries that the client asks for at once."""


@dataclass(frozen=True, slots=True)
class Team:
    """A team; times are ISO 8601, or empty.

    Args:
        team: Name of the team.
        state: "active", "disabled", "deleting" (data of it may remain) or "deleted"; empty if a newer server has added
            it.
        created_at: Time of creation.
        disabled_at: Time since when it is disabled.
        deleted_at: Time of the deletion.
        erased_at: Time since when all data of the deleted team is gone.
        keep_runs_days: Days after which ended runs are deleted, except baselines; None for never.
        keep_audit_days: Days after which audit entries are deleted, except the newest; None for never.
    """

    team: str
    state: str
    created_at: str
    disabled_at: str = ""
    deleted_at: str = ""
    erased_at: str = ""
    keep_runs_days: int | None = None
    keep_audit_days: int | None = None


@dataclass(frozen=True, slots=True)
class DeletedStore:
    """Counts of a deleted team's data in a table or in another service.

    Args:
        store: Name of the table or service.
        deleted_count: Number of deleted entries.
        remaining_count: Number of entries left at the final count; None before that count.
    """

    store: str
    deleted_count: int
    remaining_count: int | None


@dataclass(frozen=True, slots=True)
class TeamDeletion:
    """State of a team's deletion, which is complete once `team.erased_at` is set.

    Args:
        team: The team.
        stores: Deleted data by store.
    """

    team: Team
    stores: tuple[DeletedStore, ...]


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token's record on the server; times are ISO 8601, or empty.

    Args:
        token_id: Public part of the token.
        team: Team of the token.
        role: "viewer", "runner", "team-admin" or "operator".
        name: Purpose or holder.
        created_at: Time of creation.
        expires_at: Time of expiry.
        revoked_at: Time of revocation.
        last_used_at: Time of last use, to the hour.
        created_by: Id of the creating token; empty for a token created in the database.
    """

    token_id: str
    team: str
    role: str
    name: str
    created_at: str = ""
    expires_at: str = ""
    revoked_at: str = ""
    last_used_at: str = ""
    created_by: str = ""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token: the whole token, which is shown only once, and its record."""

    secret: str = field(repr=False)
    token: TokenInfo


@dataclass(frozen=True, slots=True)
class Destination:
    """An address that a team's runs may call.

    Args:
        team: Team of the destination.
        name: Name within the team.
        address: `HOST`, `HOST:PORT` or `https://HOST[:PORT]`, where HOST may be `*.example.org`.
        secrets: Names of the team's secrets that may be sent there.
        created_at: Time of creation, ISO 8601.
        created_by: Id of the creating token.
    """

    team: str
    name: str
    address: str
    secrets: tuple[str, ...] = ()
    created_at: str = ""
    created_by: str = ""


@dataclass(frozen=True, slots=True)
class TeamQuotas:
    """Quotas of a team, each amount in the quota's unit.

    Args:
        in_force: The quotas in force; a missing one has no limit.
        own: The team's own quotas; the others in force are the default.
    """

    in_force: Mapping[Quota, int]
    own: Mapping[Quota, int]


@dataclass(frozen=True, slots=True)
class TeamUsage:
    """A team's current usage.

    Args:
        team: Name of the team.
        used: Usage of every quota, in its unit.
        quotas: The quotas in force; a missing one has no limit.
        queued_row_count: Number of unfinished rows of its active runs.
    """

    team: str
    used: Mapping[Quota, int]
    quotas: Mapping[Quota, int]
    queued_row_count: int


async def get_identity(client: Client) -> TokenInfo:
    """Return the record of the client's own token.

    Raises:
        UnauthenticatedError: The server does not accept the token.
        SetupError: The server has no identities (reason NO_IDENTITIES).
    """
    request = server_pb2.GetIdentityRequest()
    identity = await client.call(server_pb2_grpc.ServerServiceStub, lambda stub: stub.GetIdentity(request))
    if not identity.role:
        raise _no_identities(client.address)
    return record_from_wire(TokenInfo, identity)


async def create_team(client: Client, team: str) -> Team:
    """Create a team; for operators."""
    response = await call_admin(client, lambda stub: stub.CreateTeam(pb.CreateTeamRequest(team=team)))
    return record_from_wire(Team, response.team)


async def list_teams(client: Client) -> list[Team]:
    """Return all teams, sorted by name; for operators."""
    pages = _pages(client, pb.ListTeamsRequest(), lambda stub, request: stub.ListTeams(request))
    return [record_from_wire(Team, team) async for page in pages for team in page.teams]


async def update_team(
    client: Client,
    team: str,
    *,
    disabled: bool | None = None,
    keep_runs_days: int | None = None,
    keep_audit_days: int | None = None,
) -> tuple[Team, int]:
    """Change a team; for operators. Return it, and the number of runs that were paused.

    Args:
        client: A client with an operator's token.
        team: The team.
        disabled: True refuses the team's tokens and pauses its active runs; False accepts the tokens again, and the
            runs stay paused. None changes nothing.
        keep_runs_days: Days for ended runs; 0 keeps them for ever, None changes nothing.
        keep_audit_days: Days for audit entries; likewise.
    """
    state: Any = None if disabled is None else TEAM_STATES.to_wire(TeamState.DISABLED if disabled else TeamState.ACTIVE)
    changes = {"state": state, "keep_runs_days": keep_runs_days, "keep_audit_days": keep_audit_days}
    changed = pb.Team(
        team=team, state=state, keep_runs_days=keep_runs_days or None, keep_audit_days=keep_audit_days or None
    )
    paths = [name for name, value in changes.items() if value is not None]
    request = pb.UpdateTeamRequest(team=changed, update_mask=FieldMask(paths=paths))
    response = await call_admin(client, lambda stub: stub.UpdateTeam(request))
    return record_from_wire(Team, response.team), response.paused_run_count


async def delete_team(client: Client, team: str) -> int:
    """Start deleting a team with all its data; return the number of cancelled runs. For operators."""
    response = await call_admin(client, lambda stub: stub.DeleteTeam(pb.DeleteTeamRequest(team=team)))
    return int(response.cancelled_run_count)


async def get_team_deletion(client: Client, team: str) -> TeamDeletion:
    """Return the progress of a team's deletion; for operators."""
    response = await call_admin(client, lambda stub: stub.GetTeam(pb.GetTeamRequest(team=team)))
    stores = (
        DeletedStore(
            store.store, store.deleted_count, store.remaining_count if store.HasField("remaining_count") else None
        )
        for store in response.deleted_stores
    )
    return TeamDeletion(record_from_wire(Team, response.team), tuple(stores))


async def create_token(
    client: Client,
    role: str,
    name: str,
    *,
    team: str = "",
    lifetime_s: float | None = None,
    never_expires: bool = False,
) -> NewToken:
    """Create a token.

    Args:
        client: A client whose token has all rights of the new one.
        role: "viewer", "runner", "team-admin" or "operator".
        name: Purpose or holder.
        team: Team of the token; empty for the client's own team.
        lifetime_s: Seconds until it expires; None for 90 days.
        never_expires: Whether it never expires, in place of a lifetime.

    Raises:
        InvalidInputError: The role, the name or the lifetime is invalid.
    """
    roles = {role.value: role for role in Role}
    if role not in roles:
        raise InvalidInputError([Problem(f"must be one of {', '.join(roles)}, not {role[:60]!a}", "role")])
    expiry: dict[str, Any] = {} if lifetime_s is None else {"lifetime_ms": round(lifetime_s * 1000)}
    expiry |= {"never_expires": True} if never_expires else {}
    request = pb.CreateTokenRequest(
        team=team or await _own_team(client), role=ROLES.to_wire(roles[role]), name=name, **expiry
    )
    response = await call_admin(client, lambda stub: stub.CreateToken(request))
    return NewToken(response.secret, record_from_wire(TokenInfo, response.token))


async def list_tokens(client: Client, team: str = "") -> list[TokenInfo]:
    """Return the tokens of a team, oldest first; an empty name means the client's own team."""
    request = pb.ListTokensRequest(team=team or await _own_team(client))
    pages = _pages(client, request, lambda stub, request: stub.ListTokens(request))
    return [record_from_wire(TokenInfo, token) async for page in pages for token in page.tokens]


async def revoke_token(client: Client, token_id: str) -> TokenInfo:
    """Revoke a token; every process refuses it within 60 s."""
    response = await call_admin(client, lambda stub: stub.RevokeToken(pb.RevokeTokenRequest(token_id=token_id)))
    return record_from_wire(TokenInfo, response.token)


async def create_destination(
    client: Client, name: str, address: str, *, secrets: Sequence[str] = (), team: str = ""
) -> Destination:
    """Allow a team's runs to call an address; for team admins and operators.

    Args:
        client: A client whose token may administer the team.
        name: Name of the destination within the team.
        address: `HOST`, `HOST:PORT` or `https://HOST[:PORT]`, where HOST may be `*.example.org`.
        secrets: Names of the team's secrets that may be sent there.
        team: The team; empty for the client's own.
    """
    request = pb.CreateDestinationRequest(
        team=team or await _own_team(client), name=name, address=address, secrets=secrets
    )
    response = await call_admin(client, lambda stub: stub.CreateDestination(request))
    return record_from_wire(Destination, response.destination)


async def list_destinations(client: Client, team: str = "") -> list[Destination]:
    """Return the destinations of a team, sorted by name; an empty name means the client's own team."""
    request = pb.ListDestinationsRequest(team=team or await _own_team(client))
    pages = _pages(client, request, lambda stub, request: stub.ListDestinations(request))
    return [record_from_wire(Destination, place) async for page in pages for place in page.destinations]


async def delete_destination(client: Client, name: str, team: str = "") -> None:
    """Remove a destination; runs can no longer call it."""
    request = pb.DeleteDestinationRequest(team=team or await _own_team(client), name=name)
    await call_admin(client, lambda stub: stub.DeleteDestination(request))


async def update_quotas(
    client: Client, team: str, amounts: Mapping[Quota, int], removed: Collection[Quota] = ()
) -> None:
    """Set and remove quotas of a team; for operators.

    Args:
        client: A client with an operator's token.
        team: The team.
        amounts: Amounts by quota, each in its unit; money in billionths of a dollar.
        removed: Quotas to remove, for which the default then applies.
    """
    request = pb.UpdateQuotasRequest(team=team, quotas=quotas_to_wire(amounts), update_mask=_mask(amounts, removed))
    await call_admin(client, lambda stub: stub.UpdateQuotas(request))


async def update_default_quotas(client: Client, amounts: Mapping[Quota, int], removed: Collection[Quota] = ()) -> None:
    """Set and remove the quotas of teams without their own, as `update_quotas`; for operators."""
    request = pb.UpdateDefaultQuotasRequest(quotas=quotas_to_wire(amounts), update_mask=_mask(amounts, removed))
    await call_admin(client, lambda stub: stub.UpdateDefaultQuotas(request))


async def get_quotas(client: Client, team: str = "") -> TeamQuotas:
    """Return the quotas of a team; an empty name means the client's own team."""
    request = pb.GetQuotasRequest(team=team or await _own_team(client))
    response = await call_admin(client, lambda stub: stub.GetQuotas(request))
    return TeamQuotas(quotas_from_wire(response.quotas), quotas_from_wire(response.own_quotas))


async def get_default_quotas(client: Client) -> Mapping[Quota, int]:
    """Return the quotas of teams without their own; for operators."""
    response = await call_admin(client, lambda stub: stub.GetDefaultQuotas(pb.GetDefaultQuotasRequest()))
    return quotas_from_wire(response.quotas)


async def list_team_usage(client: Client, team: str = "") -> list[TeamUsage]:
    """Return the usage of a team. Without a name, return all teams to an operator, else the client's own."""
    request = pb.ListTeamUsageRequest(team=team)
    pages = _pages(client, request, lambda stub, request: stub.ListTeamUsage(request))
    return [
        TeamUsage(usage.team, quotas_from_wire(usage.used), quotas_from_wire(usage.quotas), usage.queued_row_count)
        async for page in pages
        for usage in page.teams
    ]


def _mask(amounts: Mapping[Quota, int], removed: Collection[Quota]) -> FieldMask:
    return FieldMask(paths=[QUOTA_FIELDS[quota] for quota in (*amounts, *removed)])


async def _own_team(client: Client) -> str:
    return (await get_identity(client)).team


async def _pages(
    client: Client, request: Any, call: Callable[[admin_pb2_grpc.AdminServiceAsyncStub, Any], Awaitable[Any]]
) -> AsyncGenerator[Any]:
    """Yield all pages of a list."""
    request.page_size = PAGE_SIZE
    while True:
        page = await call_admin(client, lambda stub: call(stub, request))
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


async def call_admin(client: Client, attempt: Callable[[admin_pb2_grpc.AdminServiceAsyncStub], Awaitable[Any]]) -> Any:
    """Return the response of a method of AdminService.

    Raises:
        SetupError: The server has no identities (reason NO_IDENTITIES).
    """
    with _explained(client.address):
        return await client.call(admin_pb2_grpc.AdminServiceStub, attempt, repeatable=False)


@contextmanager
def _explained(address: str) -> Iterator[None]:
    try:
        yield
    except SetupError as problem:
        if problem.reason not in ("SERVER_TOO_OLD", "UNIMPLEMENTED"):
            raise
        raise _no_identities(address) from problem


def _no_identities(address: str) -> SetupError:
    return SetupError(
        f"the orchestrator at {address} has no identities: it runs without --auth tokens", reason="NO_IDENTITIES"
    )
