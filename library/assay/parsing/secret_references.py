"""References to secrets in specs: `secret://TEAM/NAME`, or `secret://NAME` for the team's own.

Write `${…}` around a reference that is followed by characters of a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SCHEME = "secret://"
REFERENCE = re.compile(r"\$\{secret://([^}]*)\}|secret://([A-Za-z0-9._/-]*)", re.ASCII)
"""Matches references in a text, including malformed ones; one of the groups is the part after the scheme."""

_TEAM = r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?"
_PATH = re.compile(rf"(?:({_TEAM})/)?({_NAME})", re.ASCII)


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A secret's team and name, both safe as parts of a path.

    Args:
        team: The owning team; empty for the team of the spec.
        name: The secret's name in the team.
    """

    team: str
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.team}/{self.name}" if self.team else f"{SCHEME}{self.name}"

    def of(self, team: str) -> SecretReference:
        """Return the reference, with this team's name if it has none."""
        return self if self.team else SecretReference(team, self.name)


def parse_path(path: str) -> SecretReference | None:
    """Return the reference in `TEAM/NAME` or `NAME`, without the scheme; None if malformed."""
    match = _PATH.fullmatch(path)
    return SecretReference(match[1] or "", match[2]) if match else None


def is_secret_name(name: str) -> bool:
    """Return whether a name is valid for a secret."""
    return re.fullmatch(_NAME, name, re.ASCII) is not None


def form_problem(path: str) -> str:
    """Return the problem of the text after `secret://`; empty if there is none."""
    if parse_path(path) is not None:
        return ""
    return (
        f"{SCHEME}{path[:80]} names no secret: write {SCHEME}TEAM/NAME or {SCHEME}NAME, in ${{…}} where letters "
        "follow; names have letters, digits, '.', '_' and '-'"
    )
