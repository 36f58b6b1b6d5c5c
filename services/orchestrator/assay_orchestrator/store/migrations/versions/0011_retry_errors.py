"""Shards know whether their rows with errors are to be tried again; counts of runs that were retried are right."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

# Two processes that retried a run's errors at once subtracted them twice.
_RECOUNT = """
UPDATE runs SET (finished_count, passed_count, failed_count, agent_error_count) = (
    SELECT count(*), count(*) FILTER (WHERE passed), count(*) FILTER (WHERE NOT passed),
           count(*) FILTER (WHERE status = 'error')
    FROM results WHERE results.run_id = runs.run_id
)
WHERE run_id IN (SELECT run_id FROM row_history WHERE outcome = 'retried')
"""


def upgrade() -> None:
    """Add the column, and count anew."""
    op.add_column("shards", sa.Column("retry_errors", sa.Boolean, nullable=False, server_default=sa.false()))
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        # Orchestrators of the version before may be storing results: they lock the run first.
        connection.exec_driver_sql("SELECT run_id FROM runs ORDER BY run_id FOR UPDATE")
    connection.exec_driver_sql(_RECOUNT)
