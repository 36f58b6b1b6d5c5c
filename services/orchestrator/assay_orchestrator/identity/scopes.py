"""Allowed team names, and the scope of a team's calls."""

from __future__ import annotations

import re

from assay.errors import InvalidInputError, Problem
from assay.identity.audit import audited_call
from assay.identity.caller import caller
from assay.model.scope import Scope

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def check_team_name(team: str, *, field: str = "team") -> None:
    """Refuse a name that no team may have.

    Raises:
        InvalidInputError: The name is not allowed.
    """
    if not _NAME.fullmatch(team):
        problem = "must be 1 to 63 lower-case letters a-z, digits and '-', begin with a letter and not end with '-'"
        raise InvalidInputError([Problem(f"{problem}, not {team[:80]!a}", field)])


def call_scope(fixed: Scope | None) -> Scope:
    """Return the scope of the current call.

    Args:
        fixed: The scope of every call of the server; None if each call has an identity.

    Raises:
        LookupError: The call has no identity: its server requires none, and must not reach a team's data.
    """
    return fixed if fixed is not None else Scope(caller().team, audited_call())
