"""Views for people: run_overview, result_rows, score_rows."""

from __future__ import annotations

from alembic import op

from assay_orchestrator.store import views

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the views."""
    views.create_views(op.get_bind(), revision)
