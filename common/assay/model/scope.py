"""Scopes: the team under which a call stores new names, and the teams whose names it reaches."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from assay.records import dataclass

if TYPE_CHECKING:
    from assay.identity.audit import AuditedCall

BEFORE_TEAMS = "default"
"""The team of what was stored before names belonged to teams."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What one call may name. A name outside its scope is treated like one that does not exist.

    Args:
        team: New names are stored under it.
        reads: Teams whose names the call finds, itself first; empty for `team` alone.
        call: The call, for the audit; None where it is not recorded, and for work in the background.
    """

    team: str
    reads: tuple[str, ...] = ()
    call: AuditedCall | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", (self.team, *(team for team in self.reads if team != self.team)))


LOCAL = Scope("local", reads=("local", BEFORE_TEAMS))
"""The scope of every call to an installation without identities."""
