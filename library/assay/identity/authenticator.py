"""What a server asks whose token a text is."""

from __future__ import annotations

from typing import Protocol

from assay.identity.caller import Identity


class Authenticator(Protocol):
    """Knows tokens."""

    async def authenticate(self, text: str) -> Identity:
        """Return whose token a text is.

        Raises:
            UnauthenticatedError: It is none, or none that is accepted; the reason says why.
            UnavailableError: It cannot be looked up now.
        """
        ...
