"""Names for the runs that others are compared with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "baselines",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("set_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("team", "name"),
    )
