"""The caller's identity, carried from the token to the handler that works for its team."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from assay.identity.rights import RIGHTS, Right, Role


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of a request.

    Args:
        team: The team whose resources the call reaches.
        role: The role, which determines its rights.
        token_id: The public part of its token.
        name: The token's name.
        expires_at: When the token expires, ISO 8601; empty for never.
    """

    team: str
    role: Role
    token_id: str
    name: str = ""
    expires_at: str = ""

    def may(self, right: Right) -> bool:
        """Return whether its role has a right."""
        return right is Right.NONE or right in RIGHTS[self.role]


_current: ContextVar[Identity] = ContextVar("identity of the call")


def set_caller(identity: Identity) -> None:
    """Set the identity of the current call, for its handler and the tasks that the handler starts."""
    _current.set(identity)


def caller() -> Identity:
    """Return the identity of the current call.

    Raises:
        LookupError: There is none: the server requires no identity, or this is not a call.
    """
    return _current.get()
