"""Administration of a shared server: teams, tokens, quotas and targets."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.admin.v1 import admin_pb2, admin_pb2_grpc
from assay.errors import SetupError
from assay.identity.quotas import Quota
from assay.v1 import server_pb2, server_pb2_grpc
from assay.wire.times import record_from_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from assay.client.client import Client


@dataclass(frozen=True, slots=True)
class Team:
    """A team; times are ISO 8601, or empty.

    Args:
        team: Name of the team.
        created_at: Time of creation.
        disabled_at: Time since when it is disabled.
        deleted_at: Time of the deletion.
        erased_at: Time since when all data of the deleted team is gone.
        keep_runs_days: Days after which ended runs are deleted, except baselines; 0 for never.
        keep_audit_days: Days after which audit entries are deleted, except the newest; 0 for never.
    """

    team: str
    created_at: str
    disabled_at: str = ""
    deleted_at: str = ""
    erased_at: str = ""
    keep_runs_days: int = 0
    keep_audit_days: int = 0


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
        cancelled_count: Number of runs that this call cancelled.
    """

    team: Team
    stores: tuple[DeletedStore, ...]
    cancelled_count: int


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
    """A new token: its secret text, which is shown only once, and its record."""

    text: str = field(repr=False)
    token: TokenInfo


@dataclass(frozen=True, slots=True)
class Target:
    """An address that a team's runs may call.

    Args:
        team: Team of the target.
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
class QuotaAmount:
    """A quota in force for a team: the amount in its unit, and whether it is the default of all teams."""

    quota: Quota
    amount: int
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A team's usage of a quota, in its unit; the limit is None if unlimited."""

    quota: Quota
    used: int
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class TeamStatus:
    """A team's current usage, and the number of unfinished rows of its active runs."""

    team: str
    uses: tuple[QuotaUse, ...]
    queued_rows: int


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
    response = await call_admin(client, lambda stub: stub.CreateTeam(admin_pb2.CreateTeamRequest(team=team)))
    return record_from_wire(Team, response.team)


async def list_teams(client: Client) -> list[Team]:
    """Return all teams, sorted by name; for operators."""
    response = await call_admin(client, lambda stub: stub.ListTeams(admin_pb2.ListTeamsRequest()))
    return [record_from_wire(Team, team) for team in response.teams]


async def disable_team(client: Client, team: str) -> tuple[Team, int]:
    """Refuse a team's tokens and pause its active runs; return the team and the number of paused runs. For
    operators."""
    response = await call_admin(client, lambda stub: stub.DisableTeam(admin_pb2.DisableTeamRequest(team=team)))
    return record_from_wire(Team, response.team), response.paused_count


async def enable_team(client: Client, team: str) -> Team:
    """Accept a disabled team's tokens again; its runs stay paused. For operators."""
    response = await call_admin(client, lambda stub: stub.EnableTeam(admin_pb2.EnableTeamRequest(team=team)))
    return record_from_wire(Team, response.team)


async def delete_team(client: Client, team: str) -> TeamDeletion:
    """Start deleting a team with all its data, or return the progress of the deletion. For operators."""
    response = await call_admin(client, lambda stub: stub.DeleteTeam(admin_pb2.DeleteTeamRequest(team=team)))
    stores = (
        DeletedStore(
            store.store, store.deleted_count, store.remaining_count if store.HasField("remaining_count") else None
        )
        for store in response.stores
    )
    return TeamDeletion(record_from_wire(Team, response.team), tuple(stores), response.cancelled_count)


async def set_team_retention(
    client: Client, team: str, *, keep_runs_days: int | None = None, keep_audit_days: int | None = None
) -> Team:
    """Set the retention of a team's runs and audit entries; for operators.

    Args:
        client: A client with an operator's token.
        team: The team.
        keep_runs_days: Days for ended runs; 0 keeps them for ever, None changes nothing.
        keep_audit_days: Days for audit entries; likewise.
    """
    request = admin_pb2.SetTeamRetentionRequest(
        team=team, keep_runs_days=keep_runs_days, keep_audit_days=keep_audit_days
    )
    response = await call_admin(client, lambda stub: stub.SetTeamRetention(request))
    return record_from_wire(Team, response.team)


async def create_token(client: Client, role: str, name: str, *, team: str = "", lifetime_s: int = 0) -> NewToken:
    """Create a token.

    Args:
        client: A client whose token has all rights of the new one.
        role: "viewer", "runner", "team-admin" or "operator".
        name: Purpose or holder.
        team: Team of the token; empty for the client's own team.
        lifetime_s: Seconds until it expires; 0 for never.
    """
    request = admin_pb2.CreateTokenRequest(team=team, role=role, name=name, lifetime_s=lifetime_s)
    response = await call_admin(client, lambda stub: stub.CreateToken(request))
    return NewToken(response.text, record_from_wire(TokenInfo, response.token))


async def list_tokens(client: Client, team: str = "") -> list[TokenInfo]:
    """Return the tokens of a team, oldest first; an empty name means the client's own team."""
    response = await call_admin(client, lambda stub: stub.ListTokens(admin_pb2.ListTokensRequest(team=team)))
    return [record_from_wire(TokenInfo, token) for token in response.tokens]


async def revoke_token(client: Client, token_id: str) -> TokenInfo:
    """Revoke a token; every process refuses it within 60 s."""
    response = await call_admin(client, lambda stub: stub.RevokeToken(admin_pb2.RevokeTokenRequest(token_id=token_id)))
    return record_from_wire(TokenInfo, response.token)


async def create_target(
    client: Client, name: str, address: str, *, secrets: Sequence[str] = (), team: str = ""
) -> Target:
    """Allow a team's runs to call an address; for team admins and operators.

    Args:
        client: A client whose token may administer the team.
        name: Name of the target within the team.
        address: `HOST`, `HOST:PORT` or `https://HOST[:PORT]`, where HOST may be `*.example.org`.
        secrets: Names of the team's secrets that may be sent there.
        team: The team; empty for the client's own.
    """
    request = admin_pb2.CreateTargetRequest(team=team, name=name, address=address, secrets=secrets)
    return record_from_wire(Target, (await call_admin(client, lambda stub: stub.CreateTarget(request))).target)


async def list_targets(client: Client, team: str = "") -> list[Target]:
    """Return the targets of a team, sorted by name; an empty name means the client's own team."""
    response = await call_admin(client, lambda stub: stub.ListTargets(admin_pb2.ListTargetsRequest(team=team)))
    return [record_from_wire(Target, target) for target in response.targets]


async def delete_target(client: Client, name: str, team: str = "") -> None:
    """Remove a target; new and resumed runs can no longer call it."""
    await call_admin(client, lambda stub: stub.DeleteTarget(admin_pb2.DeleteTargetRequest(team=team, name=name)))


async def set_quotas(
    client: Client, amounts: Mapping[Quota, int], cleared: Collection[Quota] = (), *, team: str = ""
) -> None:
    """Set and remove quotas of a team, or of "default", all teams without their own; for operators.

    Args:
        client: A client with an operator's token.
        amounts: Amounts by quota, each in its unit; money in billionths of a dollar.
        cleared: Quotas to remove.
        team: The team; empty for the client's own.
    """
    request = admin_pb2.SetQuotasRequest(
        team=team,
        quotas=[admin_pb2.QuotaAmount(quota=quota.value, amount=amount) for quota, amount in amounts.items()],
        cleared=[quota.value for quota in cleared],
    )
    await call_admin(client, lambda stub: stub.SetQuotas(request))


async def get_quotas(client: Client, team: str = "") -> list[QuotaAmount]:
    """Return the quotas in force for a team; an empty name means the client's own team."""
    quotas = await call_admin(client, lambda stub: stub.GetQuotas(admin_pb2.GetQuotasRequest(team=team)))
    return [
        QuotaAmount(Quota(quota.quota), quota.amount, is_default=quota.quota in quotas.defaulted)
        for quota in quotas.quotas
        if quota.quota in _QUOTAS
    ]


async def get_status(client: Client, team: str = "") -> list[TeamStatus]:
    """Return the usage of a team. Without a name, return all teams to an operator, else the client's own."""
    status = await call_admin(client, lambda stub: stub.GetStatus(admin_pb2.GetStatusRequest(team=team)))
    return [
        TeamStatus(team_status.team, tuple(map(_use, _known(team_status.uses))), team_status.queued_rows)
        for team_status in status.teams
    ]


def _known(uses: Iterable[admin_pb2.QuotaUse]) -> Iterator[admin_pb2.QuotaUse]:
    """Yield the quotas that this version knows; a newer server may have more."""
    return (use for use in uses if use.quota in _QUOTAS)


def _use(use: admin_pb2.QuotaUse) -> QuotaUse:
    return QuotaUse(Quota(use.quota), use.used, use.limit if use.HasField("limit") else None)


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


_QUOTAS = frozenset(quota.value for quota in Quota)
