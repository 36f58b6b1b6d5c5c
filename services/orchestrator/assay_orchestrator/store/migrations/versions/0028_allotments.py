"""What runs have taken of the money and tokens of their team."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "allotments",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("nano_usd", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("recorded_nano_usd", sa.BigInteger, nullable=False),
        sa.Column("recorded_tokens", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "holder"),
    )
