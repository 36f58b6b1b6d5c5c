"""Which names teams may have, and what the calls of a team reach."""

from __future__ import annotations

import re
from dataclasses import replace

from assay.errors import InvalidInputError, Problem
from assay.identity.audit import audited_call
from assay.identity.caller import caller
from assay.model.scope import BEFORE_TEAMS, LOCAL, Scope

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def check_team_name(team: str, *, field: str = "team") -> None:
    """Refuse a name that no team may have.

    Raises:
        InvalidInputError: It is one.
    """
    if not _NAME.fullmatch(team):
        problem = "must be 1 to 63 lower-case letters a-z, digits and '-', begin with a letter and not end with '-'"
        raise InvalidInputError([Problem(f"{problem}, not {team[:80]!a}", field)])
    if team == BEFORE_TEAMS:
        problem = f"is what was stored before there were teams: create the team {LOCAL.team!r}, which reaches it"
        raise InvalidInputError([Problem(problem, field)])


def scope_of(team: str) -> Scope:
    """Return what the calls of a team reach: what it has stored; the team `local` also what was stored before teams."""
    return LOCAL if team == LOCAL.team else Scope(team)


def call_scope(fixed: Scope | None) -> Scope:
    """Return what the present call reaches.

    Args:
        fixed: What every call of the server reaches; None where each has an identity.

    Raises:
        LookupError: The call has no identity: its server asks for none, and must not reach a team's data.
    """
    return fixed if fixed is not None else replace(scope_of(caller().team), call=audited_call())
