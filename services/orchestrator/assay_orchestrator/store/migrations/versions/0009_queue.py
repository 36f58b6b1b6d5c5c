"""On PostgreSQL, jobs are brought by procrastinate, whose tables stand beside ours."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create procrastinate's tables where several processes may share the work."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        from assay_orchestrator.engine.queue import create_tables

        create_tables(connection)
