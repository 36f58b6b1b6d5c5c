"""One replica calls the judge for a verdict at a time, and lost calls are known by the verdict that they are for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table of claims and the key of reservations."""
    op.create_table(
        "judge_claims",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(32), nullable=False),
        sa.Column("lease_until", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("team", "key"),
    )
    op.add_column("judge_reservations", sa.Column("key", sa.String(64), nullable=False, server_default=""))
