"""Where the agents of teams may be, and which secrets may be sent there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "targets",
        sa.Column("team", sa.String(64), sa.ForeignKey("teams.team", name="fk_targets_team"), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("secrets_json", sa.Text, nullable=False),
        sa.Column("created_by", sa.String(16), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
    )
