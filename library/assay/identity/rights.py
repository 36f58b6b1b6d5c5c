"""Rights, and the roles that have them."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Right(enum.Enum):
    """The right that a method requires. Each right except NONE applies to the caller's own team, and OPERATE to all
    teams."""

    NONE = "none"
    READ = "read"
    RUN = "run"
    ADMINISTER = "administer"
    OPERATE = "operate"


class Role(enum.Enum):
    """The role of a token's holder."""

    VIEWER = "viewer"
    RUNNER = "runner"
    TEAM_ADMIN = "team-admin"
    OPERATOR = "operator"


RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.VIEWER: frozenset({Right.READ}),
    Role.RUNNER: frozenset({Right.READ, Right.RUN}),
    Role.TEAM_ADMIN: frozenset({Right.READ, Right.RUN, Right.ADMINISTER}),
    Role.OPERATOR: frozenset({Right.READ, Right.RUN, Right.ADMINISTER, Right.OPERATE}),
}
"""The rights of each role. A role gives out only roles whose rights it has."""


def roles_with(right: Right) -> list[Role]:
    """Return the roles that have a right, the least powerful first."""
    return [role for role in Role if right in RIGHTS[role]]
