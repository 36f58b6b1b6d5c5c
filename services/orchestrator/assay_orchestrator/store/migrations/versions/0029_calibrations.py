"""How far judges agree with people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "calibrations",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("rubric", sa.Text, nullable=False),
        sa.Column("criterion", sa.Text, nullable=False),
        sa.Column("fingerprints", sa.Text, nullable=False),
        sa.Column("calibration_json", sa.Text, nullable=False),
        sa.Column("set_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("team", "rubric", "criterion", "fingerprints"),
    )
