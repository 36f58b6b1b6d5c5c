"""Identifies the caller of a token: looked up in the database, and cached for a moment."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from assay.errors import StorageError, UnauthenticatedError
from assay.identity.caller import Identity
from assay.identity.rights import Role
from assay.identity.tokens import PREFIX, parse_token
from assay.storage.times import now
from assay_orchestrator.store.teams import tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.identity.authenticator import Authenticator
    from assay.storage.database import Database
    from assay_orchestrator.store.teams.tokens import TokenRecord

KEEP_S = 25.0
"""How long an accepted token is cached. Open streams check every 30 s, so a revoked token ends within 60 s."""
_MOST_KEPT = 10_000
_HOUR_CHARS = 13  # 2026-05-01T09


@dataclass(frozen=True, slots=True)
class _Kept:
    identity: Identity
    until_s: float
    ends_s: float


class TokenVerifier:
    """Identifies the tokens of the database; an `Authenticator`.

    Args:
        database: The store.
        oidc: Identifies the tokens of other issuers; None without any.
        monotonic_s: A clock in seconds.
    """

    def __init__(
        self,
        database: Database,
        oidc: Authenticator | None = None,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._oidc = oidc
        self._monotonic_s = monotonic_s
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()  # by the hash of the whole token

    async def authenticate(self, text: str) -> Identity:
        """Return the identity of a token.

        Raises:
            UnauthenticatedError: It is not a token (TOKEN_MALFORMED), not of this installation (TOKEN_UNKNOWN), has
                ended (TOKEN_EXPIRED, TOKEN_REVOKED), or its team is disabled (TEAM_DISABLED).
            StorageError: It cannot be looked up.
        """
        digest = hashlib.sha256(text.encode()).digest()
        cached = self._kept.get(digest)
        if (
            cached is not None
            and self._monotonic_s() < cached.until_s
            and (not cached.ends_s or time.time() < cached.ends_s)
        ):
            return cached.identity
        self._kept.pop(digest, None)
        if self._oidc is not None and not text.startswith(PREFIX):
            identity = await self._oidc.authenticate(text)
        else:
            identity = await self._look_up(text)
        self._kept[digest] = _Kept(identity, self._monotonic_s() + KEEP_S, _seconds(identity.expires_at))
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return identity

    async def _look_up(self, text: str) -> Identity:
        token = parse_token(text)
        if token is None:
            raise UnauthenticatedError(
                "the token is cut off or mistyped: copy it again, from `assay_` to its end", reason="TOKEN_MALFORMED"
            )
        record, disabled = await self._database.read(
            lambda c: (tokens.find_token(c, token.token_id), tokens.disabled_teams(c))
        )
        # A wrong secret and an unknown id get the same answer: ids appear in lists and logs.
        if record is None or not token.has_digest(record.digest) or record.role not in _ROLES:
            raise UnauthenticatedError(
                "the token is not of this installation: check the server's address, or ask its operator for a token",
                reason="TOKEN_UNKNOWN",
            )
        if record.revoked_at is not None:
            raise UnauthenticatedError(
                f"token {record.token_id} was revoked: ask for a new one", reason="TOKEN_REVOKED"
            )
        if record.expires_at and record.expires_at <= now():
            raise UnauthenticatedError(
                f"token {record.token_id} expired at {record.expires_at}: ask for a new one", reason="TOKEN_EXPIRED"
            )
        if record.team in disabled:
            raise UnauthenticatedError(
                "the operator has disabled the team of this token: ask for it to be enabled", reason="TEAM_DISABLED"
            )
        await self._note_used(record)
        return Identity(record.team, Role(record.role), record.token_id, record.name, record.expires_at or "")

    async def _note_used(self, record: TokenRecord) -> None:
        if (record.last_used_at or "")[:_HOUR_CHARS] == now()[:_HOUR_CHARS]:
            return
        with contextlib.suppress(StorageError):  # a database that cannot be written can still be read
            await self._database.write(lambda c: tokens.note_used(c, record.token_id))


_ROLES = frozenset(role.value for role in Role)


def _seconds(moment: str) -> float:
    """Return the seconds since 1970 of an ISO 8601 time; 0 for none."""
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0
