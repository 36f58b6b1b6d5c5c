"""Runs that were deleted, and whose rows are still going."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "deletions",
        sa.Column("run_id", sa.String(120), primary_key=True),
        sa.Column("upload_id", sa.String(64)),
        sa.Column("created_at", sa.String(32), nullable=False),
    )
