"""A key with which page tokens are signed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from assay_orchestrator.store import signing_keys

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table and the key."""
    table = op.create_table(
        "signing_keys",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("key_hex", sa.String(64), nullable=False),
    )
    op.get_bind().execute(table.insert(), signing_keys.new_row("page_tokens"))
