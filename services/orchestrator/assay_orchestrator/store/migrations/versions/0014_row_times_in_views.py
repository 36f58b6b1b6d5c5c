"""The view result_rows says when work on a row began, and how long the whole row took."""

from __future__ import annotations

from alembic import op

from assay_orchestrator.store import views

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Renew the views; PostgreSQL replaces them, so that the rights that were granted on them stay."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        for view in ("run_overview", "result_rows", "score_rows"):
            connection.exec_driver_sql(f"DROP VIEW {view}")
    views.create_views(connection, revision)
