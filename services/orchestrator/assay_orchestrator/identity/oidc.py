"""OIDC tokens: JSON Web Tokens signed by an issuer of the operator's choice."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
import urllib.request
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jwt

from assay.errors import UnauthenticatedError, UnavailableError
from assay.identity.caller import Identity
from assay.identity.rights import RIGHTS, Right, Role
from assay.storage.times import stamp
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


FRESH_S = 3_600.0
PAUSE_S = 60.0
"""The minimum time between fetches, whatever key a token names: anyone can send a token."""
KEPT_S = 86_400.0
"""How long keys are used while newer keys cannot be fetched."""
_MAX_BYTES = 1 << 20
_TIMEOUT_S = 10.0
_NO_KEYS = (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a key set raises: the URL does not answer, its reply is garbled, or it is not a key set."""

_log = logging.getLogger(__name__)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        """Follow no redirect: the operator has named the place of the keys."""


class KeySet:
    """The public keys of one issuer, fetched when needed and cached for an hour.

    Args:
        source: An https URL, or a file.
        monotonic_s: A clock in seconds.
    """

    def __init__(self, source: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._monotonic_s = monotonic_s
        self._keys: Mapping[str, Mapping[str, Any]] = {}
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._lock = asyncio.Lock()

    async def find(self, key_id: str) -> Mapping[str, Any] | None:
        """Return the key with an id as a JWK; None if the issuer has no such key.

        An unknown key may be new: the set is fetched again, at most once a minute.

        Raises:
            UnavailableError: The keys cannot be fetched, and the cached keys are too old.
        """
        async with self._lock:
            if self._is_due(known=key_id in self._keys):
                await self._fetch()
            if self._fetched_s is None or self._monotonic_s() - self._fetched_s > KEPT_S:
                raise UnavailableError("the keys of the token's issuer cannot be fetched now: try again in a minute")
            return self._keys.get(key_id)

    def _is_due(self, *, known: bool) -> bool:
        now_s = self._monotonic_s()
        if self._tried_s is not None and now_s - self._tried_s < PAUSE_S:
            return False
        return not known or self._fetched_s is None or now_s - self._fetched_s >= FRESH_S

    async def _fetch(self) -> None:
        self._tried_s = self._monotonic_s()
        try:
            self._keys = await asyncio.to_thread(_read_keys, self._source)
        except _NO_KEYS as problem:
            _log.warning("cannot fetch keys of issuer: source=%s: %r", self._source, problem)
            return
        self._fetched_s = self._tried_s


def _read_keys(source: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the signature keys of a JWK set, by their ids."""
    if "://" in source:
        opener = urllib.request.build_opener(_NoRedirects)
        with opener.open(source, timeout=_TIMEOUT_S) as response:
            raw = response.read(_MAX_BYTES + 1)
    else:
        raw = Path(source).expanduser().read_bytes()
    if len(raw) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
    return {key["kid"]: key for key in json.loads(raw)["keys"] if "kid" in key and key.get("use", "sig") == "sig"}


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
        expires = stamp(datetime.fromtimestamp(claims["exp"], UTC))
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
