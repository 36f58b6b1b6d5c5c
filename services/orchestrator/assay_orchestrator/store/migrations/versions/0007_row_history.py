"""Attempts at rows that were retried or interrupted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "row_history",
        sa.Column("run_id", sa.String(120), primary_key=True),
        sa.Column("case_index", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("repeat_index", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt_index", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("answers_json", sa.Text),
        sa.Column("result_json", sa.Text),
        sa.Column("created_at", sa.String(32), nullable=False),
        sqlite_with_rowid=False,
    )
