"""Teams and the tokens of their members."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "teams",
        sa.Column("team", sa.String(64), primary_key=True),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("disabled_at", sa.String(32)),
    )
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.String(16), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("team", sa.String(64), sa.ForeignKey("teams.team", name="fk_tokens_team"), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_by", sa.String(16), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("expires_at", sa.String(32)),
        sa.Column("revoked_at", sa.String(32)),
        sa.Column("last_used_at", sa.String(32)),
    )
    op.create_index("ix_tokens_team", "tokens", ["team", "created_at"])
