"""Runs that stop early: the decision, and how many rows were taken back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("runs", sa.Column("stop_json", sa.Text))
    op.add_column("runs", sa.Column("removed_count", sa.BigInteger, nullable=False, server_default="0"))
