"""What requests of AdminService ask for, checked, and the messages of teams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.admin.v1 import admin_pb2 as pb
from assay.errors import InvalidInputError, PermissionDeniedError, Problem
from assay.http.addresses import pattern_problem
from assay.identity.quotas import MAX_AMOUNT, Quota
from assay.identity.rights import RIGHTS, Role
from assay.identity.team_state import TeamState
from assay.parsing.names import name_problem
from assay.parsing.secret_references import is_secret_name
from assay.storage.times import now
from assay.wire.admin import QUOTA_FIELDS, TEAM_STATES, quotas_from_wire, record_to_wire
from assay.wire.field_masks import masked_names
from assay.wire.roles import ROLES
from assay_orchestrator.store.teams import destinations, tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.field_mask_pb2 import FieldMask

    from assay.identity.caller import Identity
    from assay_orchestrator.store.teams.destinations import DestinationRecord
    from assay_orchestrator.store.teams.tokens import TeamRecord

MAX_NAME_CHARS = 100
MAX_DESTINATION_SECRETS = 100
MAX_RETENTION_DAYS = 36_500
DEFAULT_LIFETIME_S = 90 * 86_400
MAX_LIFETIME_MS = 10 * 366 * 86_400_000
_RETENTIONS = ("keep_runs_days", "keep_audit_days")


@dataclass(frozen=True, slots=True)
class TeamChange:
    """A requested change of a team.

    Args:
        team: The team's name.
        disabled: Whether it is to be disabled; None if unchanged.
        days: The new retention by "keep_runs_days" and "keep_audit_days", None for ever; without the unchanged ones.
    """

    team: str
    disabled: bool | None
    days: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A requested change of quotas: amounts to set, and quotas to remove."""

    amounts: Mapping[Quota, int]
    removed: tuple[Quota, ...]

    def __str__(self) -> str:
        """Return the change for a log."""
        changes = [f"{quota.value}={amount}" for quota, amount in self.amounts.items()]
        return ",".join(changes + [f"{quota.value}=none" for quota in self.removed])


def required_team(team: str, field: str = "team") -> str:
    """Return the team that a request names.

    Raises:
        InvalidInputError: It names none.
    """
    if not team:
        raise InvalidInputError([Problem("is missing: name the team", field)])
    return team


def team_to_wire(record: TeamRecord) -> pb.Team:
    """Return the message of a team."""
    message = record_to_wire(pb.Team, record)
    message.state = TEAM_STATES.to_wire(record.state)
    return message


def team_change(request: pb.UpdateTeamRequest, own: Identity) -> TeamChange:
    """Return the requested change of a team.

    Raises:
        InvalidInputError: It is invalid; contains every problem.
    """
    names = masked_names(request.update_mask, ("state", *_RETENTIONS))
    team, message, problems = required_team(request.team.team, "team.team"), request.team, []
    disabled, days = None, dict[str, int | None]()
    if "state" in names:
        disabled = message.state == pb.TEAM_STATE_DISABLED
        if TEAM_STATES.from_wire(message.state) not in (TeamState.ACTIVE, TeamState.DISABLED):
            problems.append(Problem("must be TEAM_STATE_ACTIVE or TEAM_STATE_DISABLED", "team.state"))
    if disabled and team == own.team:
        problems.append(Problem("is your own team, which you could not re-enable", "team.team"))
    present = {field.name: value for field, value in message.ListFields()}
    for name in (name for name in _RETENTIONS if name in names):
        days[name] = kept = present.get(name)
        if kept is not None and not 1 <= kept <= MAX_RETENTION_DAYS:
            problem = f"must be 1 to {MAX_RETENTION_DAYS:,} days, not {kept:,}"
            problems.append(Problem(f"{problem}: leave it out to keep the data for ever", f"team.{name}"))
    if problems:
        raise InvalidInputError(problems)
    return TeamChange(team, disabled, days)


def token_to_create(request: pb.CreateTokenRequest, own: Identity) -> tokens.NewToken:
    """Return the requested token.

    Raises:
        InvalidInputError: It is invalid; contains every problem.
        PermissionDeniedError: Its role has more rights than the caller.
    """
    team, role = required_team(request.team), ROLES.from_wire(request.role)
    problems = []
    if role is None:
        problems.append(Problem(f"is missing: name one of {', '.join(f'ROLE_{role.name}' for role in Role)}", "role"))
    if problem := name_problem(request.name, MAX_NAME_CHARS):
        problems.append(Problem(problem, "name"))
    expiry = request.WhichOneof("expiry")
    if expiry == "lifetime_ms" and not 1 <= request.lifetime_ms <= MAX_LIFETIME_MS:
        problems.append(Problem(f"must be 1 to {MAX_LIFETIME_MS:,} milliseconds, ten years", "lifetime_ms"))
    if expiry == "never_expires" and not request.never_expires:
        problems.append(Problem("must be true, or left out: the token then expires after 90 days", "never_expires"))
    if role is None or problems:
        raise InvalidInputError(problems)
    if not RIGHTS[role] <= RIGHTS[own.role]:
        raise PermissionDeniedError(
            f"role: {role.value!r} has rights that the role {own.role.value!r} of this token lacks: ask an operator"
        )
    lifetime_s = request.lifetime_ms / 1000 if expiry == "lifetime_ms" else DEFAULT_LIFETIME_S
    expires_at = None if expiry == "never_expires" else now(lifetime_s)
    return tokens.NewToken(team, role, request.name, own.token_id, expires_at)


def destination_to_create(request: pb.CreateDestinationRequest, own: Identity) -> DestinationRecord:
    """Return the requested destination.

    Raises:
        InvalidInputError: It is invalid; contains every problem.
    """
    most = MAX_DESTINATION_SECRETS
    checks = [
        ("team", "" if request.team else "is missing: name the team"),
        ("name", name_problem(request.name, MAX_NAME_CHARS)),
        ("address", pattern_problem(request.address)),
        ("secrets", "" if len(request.secrets) <= most else f"must be at most {most}"),
        *(("secrets", f"{name[:80]!r} is not a secret's name") for name in request.secrets if not is_secret_name(name)),
    ]
    if problems := [Problem(message, field) for field, message in checks if message]:
        raise InvalidInputError(problems)
    secrets = tuple(sorted(set(request.secrets)))
    return destinations.DestinationRecord(request.team, request.name, request.address, secrets, own.token_id)


def quota_change(message: pb.Quotas, mask: FieldMask) -> QuotaChange:
    """Return the requested change of quotas.

    Raises:
        InvalidInputError: It is invalid; contains every problem.
    """
    names = masked_names(mask, tuple(QUOTA_FIELDS.values()))
    named = [quota for quota, field in QUOTA_FIELDS.items() if field in names]
    amounts = {quota: amount for quota, amount in quotas_from_wire(message).items() if quota in named}
    if problems := [
        Problem(f"must be at most {MAX_AMOUNT:,}", f"quotas.{QUOTA_FIELDS[quota]}")
        for quota, amount in amounts.items()
        if amount > MAX_AMOUNT
    ]:
        raise InvalidInputError(problems)
    return QuotaChange(amounts, tuple(quota for quota in named if quota not in amounts))
