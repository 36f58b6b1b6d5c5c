"""Teams, tokens, quotas and targets of an installation that teams share."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import SetupError
from assay.identity.quotas import Quota
from assay.v1 import admin_pb2 as pb
from assay.v1 import admin_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from assay.client.client import Client


@dataclass(frozen=True, slots=True)
class Team:
    """A team; times are ISO 8601, empty for never.

    Args:
        team: Its name.
        created_at: When it was made.
        disabled_at: Since when it is disabled.
        deleted_at: Since when it is deleted.
        erased_at: Since when nothing of a deleted team is left.
        keep_runs_days: Runs that ended longer ago are deleted, but for baselines; 0 for never.
        keep_audit_days: Audit entries that are older are deleted, but for the newest; 0 for never.
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
    """A table, or a part of another service, that had something of a deleted team.

    Args:
        store: Its name.
        deleted_count: How many entries were deleted.
        remaining_count: How many there were when they were counted again; None where that is still to be done.
    """

    store: str
    deleted_count: int
    remaining_count: int | None


@dataclass(frozen=True, slots=True)
class TeamDeletion:
    """How far the deletion of a team is: done once `team.erased_at` is set.

    Args:
        team: The team.
        stores: What was deleted.
        cancelled_count: How many runs this call has cancelled.
    """

    team: Team
    stores: tuple[DeletedStore, ...]
    cancelled_count: int


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """What a server knows of a token; times are ISO 8601, empty for never.

    Args:
        token_id: Its public part.
        team: Whose names it reaches.
        role: "viewer", "runner", "team-admin" or "operator".
        name: What it is for.
        created_at: When it was made.
        expires_at: From when it is refused.
        revoked_at: When it was revoked.
        last_used_at: When it was last used, to the hour.
        created_by: The id of the token that made it; empty for one that was made at the database.
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
    """A token that was made: its text, which is shown this once, and what the server knows of it."""

    text: str = field(repr=False)
    token: TokenInfo


@dataclass(frozen=True, slots=True)
class Target:
    """Where agents of a team's runs may be.

    Args:
        team: Whose it is.
        name: Its name in the team.
        address: `HOST`, `HOST:PORT` or `https://HOST[:PORT]`, where HOST may be `*.example.org`.
        secrets: The names of the team's secrets that may be sent there.
        created_at: When it was made, ISO 8601.
        created_by: The id of the token that made it.
    """

    team: str
    name: str
    address: str
    secrets: tuple[str, ...] = ()
    created_at: str = ""
    created_by: str = ""


@dataclass(frozen=True, slots=True)
class QuotaAmount:
    """A quota that holds for a team: how much in its unit, and whether it is the one of all teams without their own."""

    quota: Quota
    amount: int
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """What a team uses of a quota, in its unit; the limit is None where there is none."""

    quota: Quota
    used: int
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class TeamStatus:
    """What a team uses now, and how many rows of its active runs have no result yet."""

    team: str
    uses: tuple[QuotaUse, ...]
    queued_rows: int


async def get_identity(client: Client) -> TokenInfo:
    """Return whose token the client has.

    Raises:
        UnauthenticatedError: The server does not accept it.
        SetupError: The server has no identities (reason NO_IDENTITIES).
    """
    found = await call_admin(client, lambda stub: stub.GetIdentity(pb.GetIdentityRequest()))
    return TokenInfo(found.token_id, found.team, found.role, found.name, expires_at=found.expires_at)


async def create_team(client: Client, team: str) -> Team:
    """Add a team; for operators."""
    response = await call_admin(client, lambda stub: stub.CreateTeam(pb.CreateTeamRequest(team=team)))
    return _team(response.team)


async def list_teams(client: Client) -> list[Team]:
    """Return all teams by name; for operators."""
    response = await call_admin(client, lambda stub: stub.ListTeams(pb.ListTeamsRequest()))
    return [_team(each) for each in response.teams]


async def disable_team(client: Client, team: str) -> tuple[Team, int]:
    """Refuse the tokens of a team and pause its active runs; return it and how many were active. For operators."""
    response = await call_admin(client, lambda stub: stub.DisableTeam(pb.DisableTeamRequest(team=team)))
    return _team(response.team), response.paused_count


async def enable_team(client: Client, team: str) -> Team:
    """Take the tokens of a disabled team again; its runs stay paused. For operators."""
    response = await call_admin(client, lambda stub: stub.EnableTeam(pb.EnableTeamRequest(team=team)))
    return _team(response.team)


async def delete_team(client: Client, team: str) -> TeamDeletion:
    """Begin to delete a team with all its data; called again, say how far that is. For operators."""
    response = await call_admin(client, lambda stub: stub.DeleteTeam(pb.DeleteTeamRequest(team=team)))
    stores = (
        DeletedStore(each.store, each.deleted_count, each.remaining_count if each.HasField("remaining_count") else None)
        for each in response.stores
    )
    return TeamDeletion(_team(response.team), tuple(stores), response.cancelled_count)


async def set_team_retention(
    client: Client, team: str, *, keep_runs_days: int | None = None, keep_audit_days: int | None = None
) -> Team:
    """Set after how many days a team's runs and audit entries are deleted; for operators.

    Args:
        client: With the token of an operator.
        team: The team.
        keep_runs_days: For runs that have ended; 0 for never, None to leave it as it is.
        keep_audit_days: For audit entries; likewise.
    """
    request = pb.SetTeamRetentionRequest(team=team, keep_runs_days=keep_runs_days, keep_audit_days=keep_audit_days)
    response = await call_admin(client, lambda stub: stub.SetTeamRetention(request))
    return _team(response.team)


async def create_token(client: Client, role: str, name: str, *, team: str = "", lifetime_s: int = 0) -> NewToken:
    """Make a token.

    Args:
        client: Its token's role has all rights of the new one.
        role: "viewer", "runner", "team-admin" or "operator".
        name: What it is for.
        team: Whose names it reaches; empty for the team of the client's own token.
        lifetime_s: After how many seconds it expires; 0 for never.
    """
    request = pb.CreateTokenRequest(team=team, role=role, name=name, lifetime_s=lifetime_s)
    response = await call_admin(client, lambda stub: stub.CreateToken(request))
    return NewToken(response.text, _info(response.token))


async def list_tokens(client: Client, team: str = "") -> list[TokenInfo]:
    """Return the tokens of a team, the oldest first; empty for the team of the client's own token."""
    response = await call_admin(client, lambda stub: stub.ListTokens(pb.ListTokensRequest(team=team)))
    return [_info(each) for each in response.tokens]


async def revoke_token(client: Client, token_id: str) -> TokenInfo:
    """Revoke a token; every process refuses it within 60 s."""
    response = await call_admin(client, lambda stub: stub.RevokeToken(pb.RevokeTokenRequest(token_id=token_id)))
    return _info(response.token)


async def create_target(
    client: Client, name: str, address: str, *, secrets: Sequence[str] = (), team: str = ""
) -> Target:
    """Register where agents of a team may be; for team admins and operators.

    Args:
        client: Its token's role may administer the team.
        name: The target's name in the team.
        address: `HOST`, `HOST:PORT` or `https://HOST[:PORT]`, where HOST may be `*.example.org`.
        secrets: The names of the team's secrets that may be sent there.
        team: Empty for the team of the client's own token.
    """
    request = pb.CreateTargetRequest(team=team, name=name, address=address, secrets=secrets)
    return _target((await call_admin(client, lambda stub: stub.CreateTarget(request))).target)


async def list_targets(client: Client, team: str = "") -> list[Target]:
    """Return the targets of a team, by name; empty for the team of the client's own token."""
    response = await call_admin(client, lambda stub: stub.ListTargets(pb.ListTargetsRequest(team=team)))
    return [_target(each) for each in response.targets]


async def delete_target(client: Client, name: str, team: str = "") -> None:
    """Remove a target; new runs, and those that are resumed, are refused there."""
    await call_admin(client, lambda stub: stub.DeleteTarget(pb.DeleteTargetRequest(team=team, name=name)))


async def set_quotas(
    client: Client, amounts: Mapping[Quota, int], cleared: Collection[Quota] = (), *, team: str = ""
) -> None:
    """Set and remove quotas of a team, or of "default", all teams without their own; for operators.

    Args:
        client: Its token is an operator's.
        amounts: The quotas, each in its unit: money in billionths of a dollar.
        cleared: The quotas that the team has no more.
        team: The team; empty for that of the client's token.
    """
    request = pb.SetQuotasRequest(
        team=team,
        quotas=[pb.QuotaAmount(quota=quota.value, amount=amount) for quota, amount in amounts.items()],
        cleared=[quota.value for quota in cleared],
    )
    await call_admin(client, lambda stub: stub.SetQuotas(request))


async def get_quotas(client: Client, team: str = "") -> list[QuotaAmount]:
    """Return the quotas that hold for a team; empty for that of the client's token."""
    found = await call_admin(client, lambda stub: stub.GetQuotas(pb.GetQuotasRequest(team=team)))
    return [
        QuotaAmount(Quota(each.quota), each.amount, is_default=each.quota in found.defaulted)
        for each in found.quotas
        if each.quota in _QUOTAS
    ]


async def get_status(client: Client, team: str = "") -> list[TeamStatus]:
    """Return what teams use of their quotas: a team, or where none is named all for an operator, else the own one."""
    found = await call_admin(client, lambda stub: stub.GetStatus(pb.GetStatusRequest(team=team)))
    return [TeamStatus(each.team, tuple(map(_use, _known(each.uses))), each.queued_rows) for each in found.teams]


def _known(uses: Iterable[pb.QuotaUse]) -> Iterator[pb.QuotaUse]:
    """Yield what this version knows: a newer server has more quotas."""
    return (use for use in uses if use.quota in _QUOTAS)


def _use(use: pb.QuotaUse) -> QuotaUse:
    return QuotaUse(Quota(use.quota), use.used, use.limit if use.HasField("limit") else None)


async def call_admin(client: Client, attempt: Callable[[admin_pb2_grpc.AdminServiceAsyncStub], Awaitable[Any]]) -> Any:
    """Return the response of a method of AdminService.

    Raises:
        SetupError: The server has no identities (reason NO_IDENTITIES).
    """
    with _explained(client.address):
        return await client.call_service(admin_pb2_grpc.AdminServiceStub, attempt)


@contextmanager
def _explained(address: str) -> Iterator[None]:
    try:
        yield
    except SetupError as problem:
        if problem.reason not in ("SERVER_TOO_OLD", "UNIMPLEMENTED"):
            raise
        raise SetupError(
            f"the orchestrator at {address} has no identities: it is of an older version, or its operator has not "
            "started it with --auth tokens",
            reason="NO_IDENTITIES",
        ) from problem


def _team(team: pb.Team) -> Team:
    return Team(*(getattr(team, name) for name in Team.__slots__))


def _target(target: pb.Target) -> Target:
    return Target(target.team, target.name, target.address, tuple(target.secrets), target.created_at, target.created_by)


def _info(token: pb.Token) -> TokenInfo:
    return TokenInfo(*(getattr(token, name) for name in TokenInfo.__slots__))


_QUOTAS = frozenset(quota.value for quota in Quota)
