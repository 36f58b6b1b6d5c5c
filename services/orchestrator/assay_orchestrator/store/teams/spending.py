"""What runs have spent and stored, by team and UTC day, for the quotas of tokens, money and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from assay.identity.quotas import MAX_AMOUNT
from assay.storage.texts import CleanString
from assay.storage.times import now
from assay_orchestrator.store import schema

_spending = schema.spending
_SUMS = ("tokens", "nano_usd", "stored_bytes")
_DELETED = ""
"""The run id under which the spending of deleted runs is kept."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of some rows.

    Args:
        tokens: Reported tokens of agents and judges.
        nano_usd: Their cost, in billionths of a dollar.
        stored_bytes: Their stored size.
    """

    tokens: int = 0
    nano_usd: int = 0
    stored_bytes: int = 0


def add_spent(connection: sa.Connection, run_id: str, spent: Spent) -> None:
    """Add to a run's spending and storage of today; sums stay between 0 and the largest amount."""
    if spent == Spent():
        return
    limited = {f"more_{name}": max(0, min(getattr(spent, name), MAX_AMOUNT)) for name in _SUMS}
    connection.execute(_addition(connection.dialect.name), {"of_run": run_id, "today": now()[:10], **limited})


@cache  # built once: building the statement takes several times as long as running it, and every batch of rows does
def _addition(dialect: str) -> sa.Insert:
    runs = schema.runs.c
    amounts = [sa.bindparam(f"more_{name}", type_=sa.BigInteger) for name in _SUMS]
    new = sa.select(runs.team, sa.bindparam("today", type_=sa.String), runs.run_id, *amounts)
    return _added_to_stored(dialect, new.where(runs.run_id == sa.bindparam("of_run")))


def forget_run(connection: sa.Connection, run_id: str) -> None:
    """Drop a run's name and stored bytes; its spending remains with its team."""
    own = _spending.c.run_id == run_id
    remaining = sa.select(
        _spending.c.team, _spending.c.day, sa.literal(_DELETED, CleanString(120)),
        _spending.c.tokens, _spending.c.nano_usd, sa.literal(0, sa.BigInteger),
    )  # fmt: skip
    connection.execute(_added_to_stored(connection.dialect.name, remaining.where(own)))
    connection.execute(_spending.delete().where(own))


def tokens_of_day(connection: sa.Connection, team: str) -> int:
    """Return the tokens that a team has used today."""
    return _amount(connection, tokens_query(team))


def money_of_month(connection: sa.Connection, team: str) -> int:
    """Return what a team has spent this month, in billionths of a dollar."""
    return _amount(connection, money_query(team))


def tokens_query(team: str) -> sa.ScalarSelect[int]:
    """Return the query behind `tokens_of_day`."""
    return _sum_query(_spending.c.tokens, _spending.c.team == team, _spending.c.day == now()[:10])


def money_query(team: str) -> sa.ScalarSelect[int]:
    """Return the query behind `money_of_month`."""
    month = now()[:7]
    days = _spending.c.day.between(f"{month}-01", f"{month}-31")
    return _sum_query(_spending.c.nano_usd, _spending.c.team == team, days)


def bytes_stored(connection: sa.Connection, team: str) -> int:
    """Return the size of a team's datasets and rows, in bytes."""
    datasets = schema.datasets.c
    return _sum(connection, _spending.c.stored_bytes, _spending.c.team == team) + _sum(
        connection, datasets.stored_bytes, datasets.team == team
    )


def _sum(connection: sa.Connection, column: sa.Column[int], *where: sa.ColumnElement[bool]) -> int:
    return _amount(connection, _sum_query(column, *where))


def _amount(connection: sa.Connection, query: sa.ScalarSelect[int]) -> int:
    return min(int(connection.execute(sa.select(query)).scalar_one()), MAX_AMOUNT)


def _sum_query(column: sa.Column[int], *where: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    return sa.select(total(column)).where(*where).scalar_subquery()


def total(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return the sum of a column: exact up to 2⁵³, and never too large for the database."""
    # SQLite's sum of integers fails beyond 64 bits; its sum of floats does not.
    return sa.func.coalesce(sa.func.sum(column * sa.literal(1.0, sa.Float)), 0)


def _added_to_stored(dialect: str, rows: sa.Select[Any]) -> sa.Insert:
    """Return the statement that adds rows to the stored sums."""
    insert: Any
    if dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert
    statement = insert(_spending).from_select([column.name for column in _spending.c], rows)
    sums = {name: _added(_spending.c[name], statement.excluded[name]) for name in _SUMS}
    addition: sa.Insert = statement.on_conflict_do_update(index_elements=["team", "day", "run_id"], set_=sums)
    return addition


def _added(stored: sa.ColumnElement[int], more: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return the sum of two amounts, capped at the largest amount: the database's integers end soon after it."""
    return sa.case((stored > MAX_AMOUNT - more, MAX_AMOUNT), else_=stored + more)
