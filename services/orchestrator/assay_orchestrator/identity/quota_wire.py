"""Converts quotas and their use to the messages of the AdminService and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.identity.quotas import MAX_AMOUNT, Quota
from assay.v1 import admin_pb2 as pb
from assay_orchestrator.store.teams import quotas

if TYPE_CHECKING:
    from collections.abc import Mapping

    import sqlalchemy as sa

_BY_NAME = {quota.value: quota for quota in Quota}


def changes_from_wire(request: pb.SetQuotasRequest) -> tuple[dict[Quota, int], list[Quota]]:
    """Return the quotas that a request sets, and those that it removes.

    Raises:
        InvalidInputError: They are invalid; contains every problem.
    """
    named = [(amount.quota, f"quotas[{at}].quota") for at, amount in enumerate(request.quotas)]
    named += [(name, f"cleared[{at}]") for at, name in enumerate(request.cleared)]
    problems, seen = [], set[str]()
    for name, field in named:
        if name not in _BY_NAME:
            problems.append(Problem(f"must be one of {', '.join(_BY_NAME)}, not {name[:40]!a}", field))
        elif name in seen:
            problems.append(Problem(f"{name} is given twice", field))
        seen.add(name)
    problems += [
        Problem(f"must be at most {MAX_AMOUNT:,}", f"quotas[{at}].amount")
        for at, amount in enumerate(request.quotas)
        if amount.amount > MAX_AMOUNT
    ]
    if not named:
        problems.append(Problem("names no quota: name a quota to set or to clear", "quotas"))
    if problems:
        raise InvalidInputError(problems)
    return {_BY_NAME[amount.quota]: amount.amount for amount in request.quotas}, [
        _BY_NAME[name] for name in request.cleared
    ]


def amounts_to_wire(amounts: Mapping[Quota, int]) -> list[pb.QuotaAmount]:
    """Return the messages of quotas, in the order of their declaration."""
    return [pb.QuotaAmount(quota=quota.value, amount=amounts[quota]) for quota in Quota if quota in amounts]


def status_of(connection: sa.Connection, team: str) -> pb.TeamStatus:
    """Return how much of its quotas a team uses."""
    uses = [pb.QuotaUse(quota=use.quota.value, used=use.used, limit=use.limit) for use in quotas.uses(connection, team)]
    return pb.TeamStatus(team=team, uses=uses, queued_rows=max(0, quotas.queued_rows(connection, team)))
