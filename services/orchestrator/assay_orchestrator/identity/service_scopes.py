"""The names by which the embedder and the judge know teams; names share no cache entry, queue or account.

A name contains a part that only this installation can compute. A client that reaches one of the services, but is not
the orchestrator, cannot call it in the name of a team, nor learn from response times what a team has requested before.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from assay.model.scope import LOCAL
from assay_orchestrator.store import signing_keys

if TYPE_CHECKING:
    from assay.storage.database import Database

KEY_NAME = "service_scopes"
_READABLE_CHARS = 31
_TAG_CHARS = 32  # hexadecimal digits, 128 bits: the whole name has 64 characters


class ServiceScopes:
    """The names of teams at the embedder and the judge, the same for all processes of an installation.

    Args:
        database: The store, with the installation's key.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key = b""

    async def of(self, team: str) -> str:
        """Return the name of a team; empty for the team of an installation without identities."""
        if team == LOCAL.team:
            return ""
        self._key = self._key or await self._database.read(lambda c: signing_keys.get_key(c, KEY_NAME))
        tag = hmac.digest(self._key, team.encode(), "sha256").hex()[:_TAG_CHARS]
        return f"{team[:_READABLE_CHARS]}~{tag}"
