"""Writers leave marks, so that a commit whose connection broke can be looked up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "write_marks",
        sa.Column("writer", sa.String(64), primary_key=True),
        sa.Column("mark", sa.String(32), nullable=False),
    )
