"""The public keys of an issuer, fetched when needed and cached for an hour."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    """The keys of one issuer.

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
