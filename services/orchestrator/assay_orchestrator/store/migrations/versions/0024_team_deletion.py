"""Deletion of teams: which, what of them, whose uploads and deleted runs there are; how long runs stay."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Add tables and columns."""
    for column in (sa.Column("keep_runs_days", sa.Integer), sa.Column("deleted_at", sa.String(32))):
        op.add_column("teams", column)
    op.add_column("teams", sa.Column("erased_at", sa.String(32)))
    op.add_column("deletions", sa.Column("team", sa.String(64), nullable=False, server_default=""))
    op.create_table(
        "uploads",
        sa.Column("upload_id", sa.String(64), primary_key=True),
        sa.Column("team", sa.String(64), nullable=False),
    )
    op.create_table(
        "erasures",
        sa.Column("team", sa.String(64), primary_key=True),
        sa.Column("store", sa.String(64), primary_key=True),
        sa.Column("deleted_count", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("remaining_count", sa.BigInteger),
        sqlite_with_rowid=False,
    )
