"""A key for the names by which embedder and judge know teams."""

from __future__ import annotations

from alembic import op

from assay_orchestrator.store import schema, signing_keys

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Create the key."""
    op.get_bind().execute(schema.signing_keys.insert(), signing_keys.new_row("service_scopes"))
