"""Page tokens: opaque to callers, authenticated, and bound to their query and its scope."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay_orchestrator.store import signing_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.scope import Scope
    from assay.storage.database import Database

_KEY_NAME = "page_tokens"
_SIGNATURE_BYTES = 16
_MAX_TOKEN_CHARS = 4_000  # a position may contain a case id of 200 characters


class PageTokens:
    """Creates and reads page tokens.

    The key is stored in the database, so that every process accepts the tokens of all others.

    Args:
        database: The store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key = b""

    async def make(self, scope: Scope, query: Sequence[str | bool], position: Sequence[str | int]) -> str:
        """Return the token of the page that follows a position.

        Args:
            scope: The scope of the caller: the same pages for another team are another query.
            query: The method and every field that affects the content of its pages.
            position: Where the next page begins.
        """
        payload = json.dumps(position, separators=(",", ":")).encode()
        return _encoded(await self._signature(scope, query, payload) + payload)

    async def read(
        self, scope: Scope, query: Sequence[str | bool], token: str, kinds: Sequence[type]
    ) -> tuple[str | int, ...] | None:
        """Return the position in a token, or None for the first page.

        Raises:
            InvalidInputError: The token was not issued here, or belongs to another query or scope.
        """
        if not token:
            return None
        raw = _decoded(token)
        signature, payload = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        # In constant time: a client must not find a valid signature byte by byte.
        if not hmac.compare_digest(signature, await self._signature(scope, query, payload)):
            problem = Problem(
                "does not belong to this query, or its rows have changed: start again without one", "page_token"
            )
            raise InvalidInputError([problem], reason="PAGE_TOKEN_INVALID")
        position = tuple(json.loads(payload))
        assert [type(part) for part in position] == list(kinds), "a query's positions are all of one kind"
        return position

    async def _signature(self, scope: Scope, query: Sequence[str | bool], payload: bytes) -> bytes:
        self._key = self._key or await self._database.read(lambda c: signing_keys.get_key(c, _KEY_NAME))
        signed = json.dumps([scope.team, *query], separators=(",", ":")).encode() + b"\0" + payload
        return hmac.digest(self._key, signed, "sha256")[:_SIGNATURE_BYTES]


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(token: str) -> bytes:
    """Return the bytes of a token; empty, and so without a signature, if it is not valid base64."""
    if len(token) > _MAX_TOKEN_CHARS or not token.isascii():
        return b""
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except binascii.Error:
        return b""
    return raw if _encoded(raw) == token else b""  # the last character has spare bits
