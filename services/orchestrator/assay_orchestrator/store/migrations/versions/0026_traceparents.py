"""The span of the call that made a run, which the spans of its cases have for their parent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Add the column."""
    op.add_column("runs", sa.Column("traceparent", sa.String(64), nullable=False, server_default=""))
