"""When work on a row began, and how long the whole row took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("results", sa.Column("started_at", sa.String(32)))
    op.add_column("results", sa.Column("duration_ms", sa.Float))
