"""Groups of runs: the variants that are compared."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the column, and the index that finds the runs of a group."""
    op.add_column("runs", sa.Column("group_id", sa.String(64), nullable=False, server_default=""))
    op.create_index("ix_runs_group_id", "runs", ["team", "group_id"])
