"""Datasets, runs and request ids belong to a team; the team of a run's spec is called its fair share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from assay_orchestrator.store import views

revision = "0015"
down_revision = "0014"

# The names that PostgreSQL gave to what the first revision left without a name; SQLite gives none.
_NAMES = {"pk": "%(table_name)s_pkey", "uq": "%(table_name)s_%(column_0_name)s_key"} | {
    "fk": "%(table_name)s_%(column_0_name)s_fkey"
}


def upgrade() -> None:
    """Change keys; what is stored belongs to the team `default`."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":  # it makes changed tables anew, which views of them would not outlive
        for view in ("run_overview", "result_rows", "score_rows"):
            connection.exec_driver_sql(f"DROP VIEW {view}")
    op.alter_column("runs", "team", new_column_name="fair_share")
    for table in ("runs", "datasets"):
        op.add_column(table, sa.Column("team", sa.String(64), nullable=False, server_default="default"))
    op.drop_index("ix_runs_created_at", "runs")
    with op.batch_alter_table("runs", naming_convention=_NAMES) as runs:
        runs.drop_constraint("runs_dataset_id_fkey", type_="foreignkey")
        runs.drop_constraint("runs_request_id_key", type_="unique")
        runs.create_unique_constraint("uq_runs_request_id", ["team", "request_id"])
    with op.batch_alter_table("datasets", naming_convention=_NAMES) as datasets:
        datasets.alter_column("team", server_default=None)
        datasets.drop_constraint("datasets_pkey", type_="primary")
        datasets.create_primary_key("datasets_pkey", ["team", "dataset_id"])
    with op.batch_alter_table("runs", naming_convention=_NAMES) as runs:
        runs.alter_column("team", server_default=None)
        runs.create_foreign_key("fk_runs_dataset", "datasets", ["team", "dataset_id"], ["team", "dataset_id"])
        runs.create_index("ix_runs_team_created_at", ["team", "created_at"])
    views.create_views(connection, revision)
