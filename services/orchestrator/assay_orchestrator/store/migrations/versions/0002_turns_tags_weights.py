"""Answers are kept per turn; results know tags and weight, and the answer's vector where a metric needs it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Change the tables."""
    op.create_table(
        "answers_by_turn",
        sa.Column("run_id", sa.String(120), primary_key=True),
        sa.Column("case_index", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("repeat_index", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("turn_index", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("response_json", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO answers_by_turn (run_id, case_index, repeat_index, turn_index, response_json, created_at) "
        "SELECT run_id, case_index, repeat_index, 0, response_json, created_at FROM answers"
    )
    op.drop_table("answers")
    op.rename_table("answers_by_turn", "answers")
    op.add_column("results", sa.Column("tags_json", sa.Text, nullable=False, server_default="[]"))
    op.add_column("results", sa.Column("weight", sa.Float, nullable=False, server_default="1"))
    op.add_column("results", sa.Column("answer_vector", sa.LargeBinary))
