"""The tables of version 0.1.0: verdicts, spending, orders and batches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    _create_verdicts()
    _create_orders()
    op.create_table(
        "judge_write_marks",
        sa.Column("writer", sa.String(64), primary_key=True),
        sa.Column("mark", sa.String(32), nullable=False),
    )


def _create_verdicts() -> None:
    op.create_table(
        "judge_verdicts",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("used_at", sa.Float(53), nullable=False, index=True),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("team", "key"),
    )
    op.create_table(
        "judge_claims",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(32), nullable=False),
        sa.Column("lease_until", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("team", "key"),
    )
    op.create_table(
        "judge_spending",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("nano", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False, index=True),
        sa.Column("team", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("team", "run_id"),
    )
    op.create_table(
        "judge_reservations",
        sa.Column("reservation_id", sa.String(32), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("nano", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("key", sa.String(64), nullable=False, server_default=""),
    )
    op.create_index("judge_reservations_of_run", "judge_reservations", ["team", "run_id"])


def _create_orders() -> None:
    op.create_table(
        "judge_batches",
        sa.Column("batch_id", sa.String(32), primary_key=True),
        sa.Column("line", sa.Text, nullable=False),
        sa.Column("provider_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("requests", sa.Integer, nullable=False),
        sa.Column("owner", sa.String(32), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("lease_until", sa.Float(53), nullable=False),
    )
    op.create_table(
        "judge_orders",
        sa.Column("item_id", sa.String(32), primary_key=True),
        sa.Column("batch_id", sa.String(32), nullable=False),
        sa.Column("line", sa.Text, nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("cap", sa.BigInteger),
        sa.Column("reserved", sa.BigInteger, nullable=False),
        sa.Column("reservation", sa.String(32), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("changed_at", sa.Float(53), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
    )
    is_open = sa.text("outcome IS NULL")
    op.create_index(
        "judge_orders_open",
        "judge_orders",
        ["team", "key"],
        unique=True,
        postgresql_where=is_open,
        sqlite_where=is_open,
    )
    op.create_index("judge_orders_of_run", "judge_orders", ["team", "key", "run_id"], unique=True)
    op.create_index("judge_orders_of_batch", "judge_orders", ["batch_id", "line"])
