"""Access control: a call's token, the right its method needs, and the teams its messages name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import grpc.aio

from assay.errors import AssayError, PermissionDeniedError, UnauthenticatedError, UnavailableError
from assay.identity.authenticator import Authenticator
from assay.identity.caller import Identity, set_caller
from assay.identity.rights import Right, roles_with
from assay.identity.tokens import parse_token
from assay.rpc.methods import MethodRule, Name
from assay.rpc.team_admission import TeamAdmission
from assay.telemetry.context import add_fields

TOKEN_KEY = "authorization"  # noqa: S105 - the name of metadata
SCHEME = "Bearer "

Context = grpc.aio.ServicerContext[Any, Any]


class Access:
    """Admits the calls of identities with the right of their method.

    Args:
        authenticator: Identifies tokens; None if calls need none.
        recheck_s: How often the token of an open stream is looked up again, in seconds.
        teams: Limits the calls of teams; None for no limit.
    """

    def __init__(
        self, authenticator: Authenticator | None, recheck_s: float, teams: TeamAdmission | None = None
    ) -> None:
        self._authenticator = authenticator
        self._teams = teams
        self._recheck_s = recheck_s

    async def identify(self, context: Context, rule: MethodRule) -> Identity | None:
        """Return the caller; None if no token is needed.

        Raises:
            UnauthenticatedError: The call has no token, or one that is not accepted.
        """
        if self._authenticator is None or rule.right is Right.NONE:
            return None
        return await self._authenticator.authenticate(_token(context))

    async def admit_team(self, identity: Identity | None) -> None:
        """Count a call of the caller's team.

        Raises:
            TeamRefusedError: The team makes too many calls.
        """
        if self._teams is not None and identity is not None:
            await self._teams.admit(identity.team)

    def while_accepted(self, context: Context, rule: MethodRule) -> AbstractAsyncContextManager[None]:
        """End a stream inside the block with an error as soon as its token is no longer accepted."""
        known, is_stream = self._authenticator, rule.client_streams or rule.server_streams
        if known is None or rule.right is Right.NONE or not is_stream:
            return nullcontext()
        return self._while_accepted(known, _token(context))

    @asynccontextmanager
    async def _while_accepted(self, known: Authenticator, text: str) -> AsyncIterator[None]:
        limit, refusals = asyncio.timeout(None), list[AssayError]()

        async def watch() -> None:
            while not refusals:
                await asyncio.sleep(self._recheck_s)
                try:
                    await known.authenticate(text)
                except UnavailableError:
                    continue  # the database does not answer: a call that was admitted is not ended for that
                except AssayError as refusal:
                    refusals.append(refusal)
                    # Ends the block in the handler's own task: cancelling the task would look like a client that left.
                    limit.reschedule(0)

        try:
            async with limit:
                watching = asyncio.create_task(watch())
                try:
                    yield
                finally:
                    watching.cancel()
        except TimeoutError:
            if refusals and limit.expired():
                raise refusals[0] from None
            raise


def check_right(identity: Identity | None, method: str, rule: MethodRule) -> None:
    """Require the right of a method, and set the caller for its handler.

    Raises:
        PermissionDeniedError: The role of the caller lacks the right.
    """
    if identity is None:
        return
    if rule.right is None or not identity.may(rule.right):
        raise PermissionDeniedError(_refusal(identity, method, rule))
    set_caller(identity)
    add_fields(team=identity.team)


def named_teams(rule: MethodRule) -> Sequence[tuple[str, Name]]:
    """Return the fields of a method's request that name a team, by their paths."""
    return [(path, kind) for path, kind in rule.names.items() if kind in (Name.TEAM, Name.OWN_TEAM)]


def check_named_teams(identity: Identity, named: Sequence[tuple[str, Name]], message: Any) -> None:
    """Refuse a message that names a team other than the caller's.

    Args:
        identity: The caller.
        named: The result of `named_teams`.
        message: The message.

    Raises:
        PermissionDeniedError: It does; the error names the field and reveals nothing about the team.
    """
    for path, kind in named:
        if kind is Name.TEAM and identity.may(Right.OPERATE):
            continue
        if any(team and team != identity.team for team in values_at(message, path.split("."))):
            raise PermissionDeniedError(
                f"{path}: names another team than that of the token, {identity.team!r}: leave it out",
                reason="TEAM_DIFFERS",
            )


def values_at(message: Any, path: Sequence[str]) -> Iterator[str]:
    """Yield the texts at a path of a message; an unset field yields none."""
    name, *rest = path
    if rest:
        if message.HasField(name):
            yield from values_at(getattr(message, name), rest)
        return
    value = getattr(message, name)
    yield from [value] if isinstance(value, str) else value


def _token(context: Context) -> str:
    """Return the token of a call.

    Raises:
        UnauthenticatedError: It has none, or several.
    """
    given = [value for key, value in context.invocation_metadata() or () if key == TOKEN_KEY]
    if not given:
        raise UnauthenticatedError(
            "this server asks for a token: use `assay login --server ADDRESS`, or set ASSAY_TOKEN",
            reason="TOKEN_MISSING",
        )
    if len(given) > 1 or not isinstance(given[0], str) or not given[0].startswith(SCHEME):
        raise UnauthenticatedError(
            "the call's authorization is not `Bearer TOKEN`: send one token", reason="TOKEN_MALFORMED"
        )
    return given[0].removeprefix(SCHEME)


def claimed_token_id(context: Context) -> str:
    """Return the public part of a call's token, valid or not; empty if there is none."""
    try:
        token = parse_token(_token(context))
    except UnauthenticatedError:
        return ""
    return "" if token is None else token.token_id


def _refusal(identity: Identity, method: str, rule: MethodRule) -> str:
    if rule.right is None:
        return f"{method} is for no identity"
    roles = ", ".join(role.value for role in roles_with(rule.right))
    return (
        f"{method.rpartition('/')[2]} needs the right {rule.right.value!r}, which the role {identity.role.value!r} of "
        f"this token lacks: use a token of a role that has it ({roles})"
    )
