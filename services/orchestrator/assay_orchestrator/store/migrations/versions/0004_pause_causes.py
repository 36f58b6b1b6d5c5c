"""Runs know what paused them, or that their owner wants them to pause."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column."""
    op.add_column("runs", sa.Column("pause_cause", sa.String(16), nullable=False, server_default=""))
