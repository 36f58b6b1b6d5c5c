"""Verdicts, spending and reservations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "judge_verdicts",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("used_at", sa.Float(53), nullable=False, index=True),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "judge_spending",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("nano", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False, index=True),
    )
    op.create_table(
        "judge_reservations",
        sa.Column("reservation_id", sa.String(32), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False, index=True),
        sa.Column("nano", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
    )
    op.create_table(
        "judge_write_marks",
        sa.Column("writer", sa.String(64), primary_key=True),
        sa.Column("mark", sa.String(32), nullable=False),
    )
