"""When a client that hosts a run's agent was last known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column."""
    op.add_column("runs", sa.Column("attended_at", sa.String(32)))
