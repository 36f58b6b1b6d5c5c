"""AdminService on the wire: teams, tokens, quotas, targets and the audit.

The interceptor has already checked rights and the teams that a request names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from assay.admin.v1 import admin_pb2, admin_pb2_grpc
from assay.errors import InvalidInputError, PermissionDeniedError, Problem
from assay.http.addresses import pattern_problem
from assay.identity.audit import OPERATORS, audited_call
from assay.identity.caller import Identity, caller
from assay.identity.quotas import ALL_TEAMS, MAX_AMOUNT, Quota
from assay.identity.rights import RIGHTS, Right, Role
from assay.identity.tokens import new_token
from assay.model.scope import Scope
from assay.parsing.names import name_problem
from assay.parsing.secret_references import is_secret_name
from assay.storage.times import now
from assay.wire.times import record_to_wire
from assay_orchestrator.identity.audit_pages import AuditPages
from assay_orchestrator.identity.scopes import check_team_name
from assay_orchestrator.store.removal import erasure, retention
from assay_orchestrator.store.teams import audit, quotas, targets, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import sqlalchemy as sa

    from assay.identity.quotas import Quota
    from assay.rpc.access import Context
    from assay.storage.database import Database
    from assay_orchestrator.store.teams.targets import TargetRecord
    from assay_orchestrator.store.teams.tokens import TeamRecord

SERVICE_NAME = "assay.admin.v1.AdminService"
MAX_TOKEN_NAME_CHARS = 100
MAX_RETENTION_DAYS = 36_500
_RETENTIONS = ("keep_runs_days", "keep_audit_days")
MAX_LIFETIME_S = 10 * 366 * 86_400
MAX_TARGET_NAME_CHARS = 100
MAX_TARGET_SECRETS = 100

T = TypeVar("T")

_log = logging.getLogger(__name__)
_QUOTAS_BY_NAME = {quota.value: quota for quota in Quota}


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
    """Manages teams, tokens, quotas and targets.

    Args:
        database: The store.
        runs: The runs of teams.
        upkeep: Deletes the data of teams.
    """

    def __init__(self, database: Database, runs: TeamRuns, upkeep: TeamUpkeep) -> None:
        self._database = database
        self._runs = runs
        self._upkeep = upkeep
        self._audit = AuditPages(database)

    async def CreateTeam(self, request: admin_pb2.CreateTeamRequest, context: Context) -> admin_pb2.CreateTeamResponse:
        """Add a team."""
        check_team_name(request.team)
        created = await self._recorded(lambda c: tokens.create_team(c, request.team))
        _log.info("created team: team=%s by=%s", request.team, caller().token_id)
        return admin_pb2.CreateTeamResponse(team=record_to_wire(admin_pb2.Team, created))

    async def ListTeams(self, request: admin_pb2.ListTeamsRequest, context: Context) -> admin_pb2.ListTeamsResponse:
        """Return all teams."""
        teams = await self._database.read(tokens.list_teams)
        return admin_pb2.ListTeamsResponse(teams=[record_to_wire(admin_pb2.Team, team) for team in teams])

    async def DisableTeam(
        self, request: admin_pb2.DisableTeamRequest, context: Context
    ) -> admin_pb2.DisableTeamResponse:
        """Refuse the tokens of a team, and pause its active runs."""
        own = caller()
        if request.team == own.team:
            raise InvalidInputError([Problem("is your own team, which you could not re-enable", "team")])
        changed = await self._recorded(lambda c: tokens.set_disabled(c, request.team, disabled=True))
        _log.info("disabled team: team=%s by=%s", request.team, own.token_id)
        paused = await self._runs.pause_active(Scope(request.team))
        return admin_pb2.DisableTeamResponse(team=record_to_wire(admin_pb2.Team, changed), paused_count=paused)

    async def EnableTeam(self, request: admin_pb2.EnableTeamRequest, context: Context) -> admin_pb2.EnableTeamResponse:
        """Accept the tokens of a team again."""
        changed = await self._recorded(lambda c: tokens.set_disabled(c, request.team, disabled=False))
        _log.info("enabled team: team=%s by=%s", request.team, caller().token_id)
        return admin_pb2.EnableTeamResponse(team=record_to_wire(admin_pb2.Team, changed))

    async def DeleteTeam(self, request: admin_pb2.DeleteTeamRequest, context: Context) -> admin_pb2.DeleteTeamResponse:
        """Begin to delete a team with all its data, or report the progress."""
        own, call = caller(), audited_call()
        if request.team == own.team:
            raise InvalidInputError([Problem("is your own team: let an operator of another team delete it", "team")])

        def begin(connection: sa.Connection) -> tuple[TeamRecord, bool]:
            record, is_new = erasure.begin_erasure(connection, request.team)
            if is_new:
                audit.record(connection, call, team=request.team, resource=request.team)
            elif call is not None:
                call.settle()
            return record, is_new

        record, is_new = await self._database.write(begin)
        cancelled = await self._runs.stop(Scope(request.team)) if is_new else 0
        if is_new:
            _log.info("deleted team, erasing its data: team=%s by=%s", request.team, own.token_id)
        self._upkeep.wake()
        counts = await self._database.read(lambda c: erasure.list_counts(c, request.team))
        stores = [
            admin_pb2.DeletedStore(store=count.store, deleted_count=count.deleted, remaining_count=count.remaining)
            for count in counts
        ]
        return admin_pb2.DeleteTeamResponse(
            team=record_to_wire(admin_pb2.Team, record), stores=stores, cancelled_count=cancelled
        )

    async def SetTeamRetention(
        self, request: admin_pb2.SetTeamRetentionRequest, context: Context
    ) -> admin_pb2.SetTeamRetentionResponse:
        """Set how long a team's data is kept."""
        present_fields = {field.name for field, _ in request.ListFields()}
        days_by_field = {name: getattr(request, name) for name in _RETENTIONS if name in present_fields}
        if problems := [
            Problem(f"must be at most {MAX_RETENTION_DAYS:,} days, not {days:,}", name)
            for name, days in days_by_field.items()
            if days > MAX_RETENTION_DAYS
        ]:
            raise InvalidInputError(problems)
        days = {name: value or None for name, value in days_by_field.items()}
        changed = await self._recorded(lambda c: retention.set_retention(c, request.team, days))
        self._upkeep.wake()
        return admin_pb2.SetTeamRetentionResponse(team=record_to_wire(admin_pb2.Team, changed))

    async def CreateToken(
        self, request: admin_pb2.CreateTokenRequest, context: Context
    ) -> admin_pb2.CreateTokenResponse:
        """Create a token; only the response contains its text."""
        own = caller()
        new = _wanted(request, own)
        token = new_token()
        record = await self._recorded(
            lambda c: tokens.create_token(c, token, new), lambda stored: (stored.team, stored.token_id)
        )
        _log.info(
            "created token: token=%s team=%s role=%s by=%s", record.token_id, record.team, record.role, own.token_id
        )
        return admin_pb2.CreateTokenResponse(text=token.text, token=record_to_wire(admin_pb2.Token, record))

    async def ListTokens(self, request: admin_pb2.ListTokensRequest, context: Context) -> admin_pb2.ListTokensResponse:
        """Return the tokens of a team."""
        team = request.team or caller().team
        records = await self._database.read(lambda c: tokens.list_tokens(c, team))
        return admin_pb2.ListTokensResponse(tokens=[record_to_wire(admin_pb2.Token, token) for token in records])

    async def RevokeToken(
        self, request: admin_pb2.RevokeTokenRequest, context: Context
    ) -> admin_pb2.RevokeTokenResponse:
        """Revoke a token."""
        own = caller()
        team = None if own.may(Right.OPERATE) else own.team
        roles = [role.value for role in Role if RIGHTS[role] <= RIGHTS[own.role]]
        record = await self._recorded(
            lambda c: tokens.revoke_token(c, request.token_id, team, roles), lambda gone: (gone.team, gone.token_id)
        )
        _log.info("revoked token: token=%s team=%s by=%s", record.token_id, record.team, own.token_id)
        return admin_pb2.RevokeTokenResponse(token=record_to_wire(admin_pb2.Token, record))

    async def CreateTarget(
        self, request: admin_pb2.CreateTargetRequest, context: Context
    ) -> admin_pb2.CreateTargetResponse:
        """Register an address for a team's agents."""
        own = caller()
        target = _wanted_target(request, own)
        created = await self._recorded(lambda c: targets.create_target(c, target))
        _log.info(
            "created target: name=%s team=%s address=%s by=%s",
            created.name,
            created.team,
            created.address,
            own.token_id,
        )
        return admin_pb2.CreateTargetResponse(target=record_to_wire(admin_pb2.Target, created))

    async def ListTargets(
        self, request: admin_pb2.ListTargetsRequest, context: Context
    ) -> admin_pb2.ListTargetsResponse:
        """Return the targets of a team."""
        team = request.team or caller().team
        records = await self._database.read(lambda c: targets.list_targets(c, team))
        return admin_pb2.ListTargetsResponse(targets=[record_to_wire(admin_pb2.Target, target) for target in records])

    async def DeleteTarget(
        self, request: admin_pb2.DeleteTargetRequest, context: Context
    ) -> admin_pb2.DeleteTargetResponse:
        """Remove a target."""
        own = caller()
        team = request.team or own.team
        await self._recorded(lambda c: targets.delete_target(c, team, request.name))
        _log.info("deleted target: name=%s team=%s by=%s", request.name, team, own.token_id)
        return admin_pb2.DeleteTargetResponse()

    async def ListAuditEvents(
        self, request: admin_pb2.ListAuditEventsRequest, context: Context
    ) -> admin_pb2.ListAuditEventsResponse:
        """Return a page of the audit."""
        return await self._audit.read(caller(), request)

    async def SetQuotas(self, request: admin_pb2.SetQuotasRequest, context: Context) -> admin_pb2.SetQuotasResponse:
        """Set and remove quotas of a team."""
        team, own = request.team or caller().team, caller()
        amounts, cleared = changes_from_wire(request)

        def change(connection: sa.Connection) -> dict[Quota, int]:
            _require_quota_team(connection, team)
            quotas.set_quotas(connection, team, amounts, cleared)
            return quotas.read_quotas(connection, team)

        effective = await self._recorded(change, lambda _: (OPERATORS if team == ALL_TEAMS else team, team))
        changed = [f"{quota.value}={amount}" for quota, amount in amounts.items()]
        changed += [f"{quota.value}=none" for quota in cleared]
        _log.info("set quotas: team=%s quotas=%s by=%s", team, ",".join(changed), own.token_id)
        await self._runs.requeue_idle()
        return admin_pb2.SetQuotasResponse(quotas=amounts_to_wire(effective))

    async def GetQuotas(self, request: admin_pb2.GetQuotasRequest, context: Context) -> admin_pb2.GetQuotasResponse:
        """Return the quotas that apply to a team."""
        team = request.team or caller().team

        def read(connection: sa.Connection) -> tuple[dict[Quota, int], dict[Quota, int]]:
            _require_quota_team(connection, team)
            return quotas.read_quotas(connection, team), quotas.own_quotas(connection, team)

        amounts, own = await self._database.read(read)
        defaulted = [quota.value for quota in amounts if quota not in own]
        return admin_pb2.GetQuotasResponse(quotas=amounts_to_wire(amounts), defaulted=defaulted)

    async def GetStatus(self, request: admin_pb2.GetStatusRequest, context: Context) -> admin_pb2.GetStatusResponse:
        """Return how much of their quotas teams use."""
        own = caller()
        team = request.team or ("" if own.may(Right.OPERATE) else own.team)

        def read(connection: sa.Connection) -> list[admin_pb2.TeamStatus]:
            names = [team] if team else [record.team for record in tokens.list_teams(connection)]
            if team:
                tokens.get_team(connection, team)
            return [status_of(connection, name) for name in names]

        return admin_pb2.GetStatusResponse(teams=await self._database.read(read))

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


def _require_quota_team(connection: sa.Connection, team: str) -> None:
    if team != ALL_TEAMS:
        tokens.get_team(connection, team)


def _wanted(request: admin_pb2.CreateTokenRequest, own: Identity) -> tokens.NewToken:
    """Return the requested token.

    Raises:
        InvalidInputError: It is invalid; contains every problem.
        PermissionDeniedError: Its role has more rights than the caller.
    """
    roles = {role.value: role for role in Role}
    role = roles.get(request.role)
    problems = []
    if role is None:
        problems.append(Problem(f"must be one of {', '.join(roles)}, not {request.role[:60]!a}", "role"))
    if problem := name_problem(request.name, MAX_TOKEN_NAME_CHARS):
        problems.append(Problem(problem, "name"))
    if request.lifetime_s > MAX_LIFETIME_S:
        problems.append(Problem(f"must be at most {MAX_LIFETIME_S:,} seconds, ten years", "lifetime_s"))
    if role is None or problems:
        raise InvalidInputError(problems)
    if not RIGHTS[role] <= RIGHTS[own.role]:
        raise PermissionDeniedError(
            f"role: {role.value!r} has rights that the role {own.role.value!r} of this token lacks: ask an operator"
        )
    expires_at = now(request.lifetime_s) if request.lifetime_s else None
    return tokens.NewToken(request.team or own.team, role, request.name, own.token_id, expires_at)


def _wanted_target(request: admin_pb2.CreateTargetRequest, own: Identity) -> TargetRecord:
    """Return the requested target.

    Raises:
        InvalidInputError: It is invalid; contains every problem.
    """
    checks = [
        ("name", name_problem(request.name, MAX_TARGET_NAME_CHARS)),
        ("address", pattern_problem(request.address)),
        ("secrets", "" if len(request.secrets) <= MAX_TARGET_SECRETS else f"must be at most {MAX_TARGET_SECRETS}"),
        *(("secrets", f"{name[:80]!r} is not a secret's name") for name in request.secrets if not is_secret_name(name)),
    ]
    if problems := [Problem(message, field) for field, message in checks if message]:
        raise InvalidInputError(problems)
    secrets = tuple(sorted(set(request.secrets)))
    return targets.TargetRecord(request.team or own.team, request.name, request.address, secrets, own.token_id)


def changes_from_wire(request: admin_pb2.SetQuotasRequest) -> tuple[dict[Quota, int], list[Quota]]:
    """Return the quotas that a request sets, and those that it removes.

    Raises:
        InvalidInputError: They are invalid; contains every problem.
    """
    named = [(amount.quota, f"quotas[{at}].quota") for at, amount in enumerate(request.quotas)]
    named += [(name, f"cleared[{at}]") for at, name in enumerate(request.cleared)]
    problems, seen = [], set[str]()
    for name, field in named:
        if name not in _QUOTAS_BY_NAME:
            problems.append(Problem(f"must be one of {', '.join(_QUOTAS_BY_NAME)}, not {name[:40]!a}", field))
        elif name in seen:
            problems.append(Problem(f"{name} is given twice", field))
        seen.add(name)
    problems += [
        Problem(f"must be at most {MAX_AMOUNT:,}", f"quotas[{at}].amount")
        for at, amount in enumerate(request.quotas)
        if amount.amount > MAX_AMOUNT
    ]
    if not named:
        problems.append(Problem("names no quota: name a quota to set or to clear", "quotas"))
    if problems:
        raise InvalidInputError(problems)
    return {_QUOTAS_BY_NAME[amount.quota]: amount.amount for amount in request.quotas}, [
        _QUOTAS_BY_NAME[name] for name in request.cleared
    ]


def amounts_to_wire(amounts: Mapping[Quota, int]) -> list[admin_pb2.QuotaAmount]:
    """Return the messages of quotas, in the order of their declaration."""
    return [admin_pb2.QuotaAmount(quota=quota.value, amount=amounts[quota]) for quota in Quota if quota in amounts]


def status_of(connection: sa.Connection, team: str) -> admin_pb2.TeamStatus:
    """Return how much of its quotas a team uses."""
    uses = [
        admin_pb2.QuotaUse(quota=use.quota.value, used=use.used, limit=use.limit)
        for use in quotas.uses(connection, team)
    ]
    return admin_pb2.TeamStatus(team=team, uses=uses, queued_rows=max(0, quotas.queued_rows(connection, team)))
