"""The authenticator, which resolves tokens to callers."""

from __future__ import annotations

from typing import Protocol

from assay.identity.caller import Identity


class Authenticator(Protocol):
    """Resolves tokens."""

    async def authenticate(self, text: str) -> Identity:
        """Return the caller that a token belongs to.

        Raises:
            UnauthenticatedError: It is not a token, or is not accepted; see the reason.
            UnavailableError: It cannot be looked up now.
        """
