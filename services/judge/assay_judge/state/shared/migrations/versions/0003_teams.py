"""Verdicts, accounts and orders belong to a team; what is stored belongs to the team `default`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

# The names that PostgreSQL gave to the first revision's keys; SQLite gives none.
_NAMES = {"pk": "%(table_name)s_pkey"}


def upgrade() -> None:
    """Change keys and indexes."""
    op.drop_index("ix_judge_reservations_run_id", "judge_reservations")
    for index in ("judge_orders_open", "judge_orders_of_run"):
        op.drop_index(index, "judge_orders")
    for table, key in (("judge_verdicts", "key"), ("judge_spending", "run_id")):
        _add_team(table)
        with op.batch_alter_table(table, naming_convention=_NAMES) as changed:
            changed.alter_column("team", server_default=None)
            changed.drop_constraint(f"{table}_pkey", type_="primary")
            changed.create_primary_key(f"{table}_pkey", ["team", key])
    for table in ("judge_reservations", "judge_orders"):
        _add_team(table)
        with op.batch_alter_table(table) as changed:
            changed.alter_column("team", server_default=None)
    op.create_index("judge_reservations_of_run", "judge_reservations", ["team", "run_id"])
    op.create_index("judge_orders_of_run", "judge_orders", ["team", "key", "run_id"], unique=True)
    is_open = sa.text("outcome IS NULL")
    columns = ["team", "key"]
    op.create_index(
        "judge_orders_open", "judge_orders", columns, unique=True, postgresql_where=is_open, sqlite_where=is_open
    )


def _add_team(table: str) -> None:
    op.add_column(table, sa.Column("team", sa.String(64), nullable=False, server_default="default"))
