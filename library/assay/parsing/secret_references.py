"""References to secrets, as specs write them: `secret://TEAM/NAME`, or `secret://NAME` for the team's own.

In `${…}` where characters follow that a name may have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SCHEME = "secret://"
REFERENCE = re.compile(r"\$\{secret://([^}]*)\}|secret://([A-Za-z0-9._/-]*)", re.ASCII)
"""Finds references in a text, also those that are none by their form; one of the groups is what follows the scheme."""

_TEAM = r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?"
_PATH = re.compile(rf"(?:({_TEAM})/)?({_NAME})", re.ASCII)


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A secret by its name, both of which are safe in a path.

    Args:
        team: Whose it is; empty for the team that names it.
        name: Its name in the team.
    """

    team: str
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.team}/{self.name}" if self.team else f"{SCHEME}{self.name}"

    def of(self, team: str) -> SecretReference:
        """Return the reference with a team's name where it has none."""
        return self if self.team else SecretReference(team, self.name)


def parse_path(path: str) -> SecretReference | None:
    """Return the reference that `TEAM/NAME` or `NAME` is, without its scheme; None where the form is wrong."""
    found = _PATH.fullmatch(path)
    return SecretReference(found[1] or "", found[2]) if found else None


def is_secret_name(name: str) -> bool:
    """Return whether a secret may have a name."""
    return re.fullmatch(_NAME, name, re.ASCII) is not None


def form_problem(path: str) -> str:
    """Return what is wrong with what follows `secret://` in a spec; empty where nothing is."""
    if parse_path(path) is not None:
        return ""
    return (
        f"{SCHEME}{path[:80]} names no secret: write {SCHEME}TEAM/NAME or {SCHEME}NAME, in ${{…}} where letters "
        "follow; names have letters, digits, '.', '_' and '-'"
    )
