"""Jobs know for which of the times that their shard was queued they were made; procrastinate brings them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from assay_orchestrator.store import queue_tables

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column, and procrastinate's tables where several processes may share the work."""
    op.add_column("shards", sa.Column("ticket", sa.Integer, nullable=False, server_default="0"))
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        queue_tables.create_queue_tables(connection, revision)
