"""The states of a team."""

from __future__ import annotations

import enum


class TeamState(enum.Enum):
    """The state of a team: only an active team works, and a deleted one never comes back."""

    ACTIVE = "active"
    DISABLED = "disabled"
    DELETING = "deleting"
    DELETED = "deleted"
