"""Orders of verdicts and the batches in which they are submitted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
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
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("changed_at", sa.Float(53), nullable=False),
    )
    is_open = sa.text("outcome IS NULL")
    op.create_index(
        "judge_orders_open", "judge_orders", ["key"], unique=True, postgresql_where=is_open, sqlite_where=is_open
    )
    op.create_index("judge_orders_of_run", "judge_orders", ["key", "run_id"], unique=True)
    op.create_index("judge_orders_of_batch", "judge_orders", ["batch_id", "line"])
