"""OIDC tokens: JSON Web Tokens signed by an issuer of the operator's choice."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jwt

from assay.errors import UnauthenticatedError
from assay.identity.caller import Identity
from assay.identity.rights import RIGHTS, Right, Role
from assay_orchestrator.identity.key_sets import KeySet
from assay_orchestrator.store.teams import tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.storage.database import Database
    from assay_orchestrator.identity.issuers import Issuer

LEEWAY_S = 30
"""The maximum difference between the clocks of an issuer and this process."""
MAX_LIFETIME_S = 86_400
"""The maximum remaining validity of a token: only its expiry revokes it."""
_MAX_CHARS = 16_000
_ROLES = {role.value: role for role in Role if Right.OPERATE not in RIGHTS[role]}


class OidcVerifier:
    """Identifies the tokens of issuers.

    The issuer determines key, algorithms and audience. Of a token's own claims only `iss` and `kid` are read before its
    signature is checked, and only to find these.

    Args:
        issuers: The accepted issuers.
        database: The store of teams.
        monotonic_s: A clock in seconds, for caching keys.
    """

    def __init__(
        self, issuers: Sequence[Issuer], database: Database, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._issuers = {issuer.issuer: (issuer, KeySet(issuer.keys, monotonic_s)) for issuer in issuers}
        self._database = database

    async def authenticate(self, text: str) -> Identity:
        """Return the identity of a token.

        Raises:
            UnauthenticatedError: It is not a token (TOKEN_MALFORMED), belongs to no known issuer or team
                (TOKEN_UNKNOWN), or has expired (TOKEN_EXPIRED).
            UnavailableError: The keys of its issuer cannot be fetched.
        """
        claimed, key_id, algorithm = _unchecked(text)
        if claimed not in self._issuers:
            raise _unknown()
        issuer, keys = self._issuers[claimed]
        key = await keys.find(key_id) if algorithm in issuer.algorithms else None
        if key is None or key.get("alg", algorithm) != algorithm:
            raise _unknown()
        return await self._identity(issuer, _claims(text, issuer, key, algorithm))

    async def _identity(self, issuer: Issuer, claims: Mapping[str, Any]) -> Identity:
        team, role = claims.get(issuer.team_claim), claims.get(issuer.role_claim)
        if not isinstance(team, str) or not isinstance(role, str) or role not in _ROLES:
            raise UnauthenticatedError(
                f"the token must have a team in the claim {issuer.team_claim!r}, and one of {', '.join(_ROLES)} in "
                f"{issuer.role_claim!r}: ask the operator of its issuer",
                reason="TOKEN_UNKNOWN",
            )
        if not await self._database.read(lambda c: tokens.has_team(c, team) and team not in tokens.disabled_teams(c)):
            raise _unknown()
        if claims["exp"] - time.time() > MAX_LIFETIME_S + LEEWAY_S:
            raise UnauthenticatedError(
                f"the token is valid for more than {MAX_LIFETIME_S:,} s, and could not be revoked so long: let its "
                "issuer create shorter-lived tokens",
                reason="TOKEN_UNKNOWN",
            )
        subject = str(claims["sub"])
        digest = hashlib.sha256(f"{issuer.issuer}\0{subject}".encode()).hexdigest()
        expires = datetime.fromtimestamp(claims["exp"], UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return Identity(team, _ROLES[role], f"oidc-{digest[:11]}", subject[:100], expires)


def _unchecked(text: str) -> tuple[str, str, str]:
    """Return the issuer, key id and algorithm that a token claims.

    Raises:
        UnauthenticatedError: It is not an OIDC token.
    """
    try:
        if len(text) > _MAX_CHARS or not text.isascii():
            raise ValueError
        parts = jwt.decode_complete(text, options={"verify_signature": False})
        claims = parts["payload"]["iss"], parts["header"]["kid"], parts["header"]["alg"]
        if not all(isinstance(part, str) for part in claims):
            raise TypeError
    except (jwt.InvalidTokenError, ValueError, KeyError, TypeError, RecursionError):
        raise UnauthenticatedError(
            "the token is neither an Assay token nor an OIDC token with an issuer and a key id: copy it again",
            reason="TOKEN_MALFORMED",
        ) from None
    return claims


def _claims(text: str, issuer: Issuer, key: Mapping[str, Any], algorithm: str) -> Mapping[str, Any]:
    """Return the claims of a token whose signature, issuer, audience and times are valid.

    Raises:
        UnauthenticatedError: They are not.
    """
    try:
        claims: Mapping[str, Any] = jwt.decode(
            text,
            jwt.PyJWK(dict(key), algorithm),
            algorithms=[algorithm],
            audience=issuer.audience,
            issuer=issuer.issuer,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
    except jwt.ExpiredSignatureError:
        raise UnauthenticatedError(
            "the token has expired: get a new one from its issuer", reason="TOKEN_EXPIRED"
        ) from None
    except (jwt.PyJWTError, ValueError, TypeError):
        raise _unknown() from None
    return claims


def _unknown() -> UnauthenticatedError:
    return UnauthenticatedError(
        "this installation does not accept the token: check the server's address, and the issuer, audience and "
        "team of the token",
        reason="TOKEN_UNKNOWN",
    )
