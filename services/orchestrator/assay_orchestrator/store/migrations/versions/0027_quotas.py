"""Quotas of teams, and what they use of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

_DATASETS = """
UPDATE datasets SET stored_bytes = COALESCE(
    (SELECT SUM({length}(case_json)) FROM dataset_cases WHERE dataset_cases.upload_id = datasets.upload_id), 0)
"""
_RUNS = """
INSERT INTO spending (team, day, run_id, tokens, nano_usd, stored_bytes)
SELECT team, SUBSTR(created_at, 1, 10), run_id, 0, 0,
    COALESCE((SELECT SUM({length}(response_json) + {length}(answer_text)) FROM answers
              WHERE answers.run_id = runs.run_id), 0)
  + COALESCE((SELECT SUM({length}(scores_json)) FROM results WHERE results.run_id = runs.run_id), 0)
FROM runs
"""


def upgrade() -> None:
    """Add the tables and columns, and count what is stored."""
    op.create_table(
        "quotas",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("quota", sa.String(32), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("team", "quota"),
    )
    op.create_table(
        "spending",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("nano_usd", sa.BigInteger, nullable=False),
        sa.Column("stored_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("team", "day", "run_id"),
    )
    op.create_table(
        "requests",
        sa.Column("team", sa.String(64), primary_key=True),
        sa.Column("minute", sa.String(16), nullable=False),
        sa.Column("taken", sa.BigInteger, nullable=False),
    )
    op.add_column("datasets", sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0"))
    length = "octet_length" if op.get_bind().dialect.name == "postgresql" else "length"
    for statement in (_DATASETS, _RUNS):
        op.execute(statement.format(length=length))
