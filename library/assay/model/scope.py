"""Scopes: the team under whose name a call reads and stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.identity.audit import AuditedCall


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that a call may use. A name outside its scope is treated as not existing.

    Args:
        team: The team that names belong to.
        call: The call, for the audit; None for unrecorded calls and background work.
    """

    team: str
    call: AuditedCall | None = field(default=None, compare=False, repr=False)


LOCAL = Scope("local")
"""The scope of every call to an installation without identities."""
