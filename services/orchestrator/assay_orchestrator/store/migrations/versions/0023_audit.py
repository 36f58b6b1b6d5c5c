"""The audit: entries that are only added, each with the digest of the one before; how long a team keeps them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from assay_orchestrator.store.audit_triggers import create_triggers

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Add table, column and triggers."""
    op.add_column("teams", sa.Column("keep_audit_days", sa.Integer))
    op.create_table(
        "audit_entries",
        sa.Column("team", sa.String(64), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("outcome", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(16), nullable=False),
        sa.Column("actor_name", sa.Text, nullable=False),
        sa.Column("actor_team", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_audit_entries_at", "audit_entries", ["at", "team", "sequence"])
    create_triggers(op.get_bind())
