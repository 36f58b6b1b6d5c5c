"""Scopes: the team whose names a call finds and stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.identity.audit import AuditedCall


@dataclass(frozen=True, slots=True)
class Scope:
    """What one call may name. A name outside its scope is treated like one that does not exist.

    Args:
        team: Names are found and stored under it.
        call: The call, for the audit; None where it is not recorded, and for work in the background.
    """

    team: str
    call: AuditedCall | None = field(default=None, compare=False, repr=False)


LOCAL = Scope("local")
"""The scope of every call to an installation without identities."""
