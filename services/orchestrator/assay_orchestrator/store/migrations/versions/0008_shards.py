"""Runs are divided into shards, which workers take in a fair order."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_HOSTED = "python"


def upgrade() -> None:
    """Add tables and columns; runs that are not over are divided when they are resumed."""
    connection = op.get_bind()
    for column in (
        sa.Column("team", sa.String(64), nullable=False, server_default=""),
        sa.Column("weight", sa.Float, nullable=False, server_default="1"),
        sa.Column("agent_key", sa.Text, nullable=False, server_default=""),
        sa.Column("concurrency", sa.Integer, nullable=False, server_default="1"),
        sa.Column("hosted", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("finish_tag", sa.Float, nullable=False, server_default="0"),
        sa.Column("team_tag", sa.Float, nullable=False, server_default="0"),
    ):
        op.add_column("runs", column)
    runs = sa.table("runs", *map(sa.column, ("run_id", "spec_json", "concurrency", "hosted")))
    for run_id, text in connection.execute(sa.select(runs.c.run_id, runs.c.spec_json)).all():
        agent = json.loads(text).get("agent", {})
        values = {"concurrency": agent.get("concurrency", 1), "hosted": agent.get("adapter") == _HOSTED}
        connection.execute(runs.update().where(runs.c.run_id == run_id).values(**values))
    op.create_table(
        "shards",
        sa.Column("run_id", sa.String(120), primary_key=True),
        sa.Column("shard_index", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first_case", sa.BigInteger, nullable=False),
        sa.Column("case_count", sa.Integer, nullable=False),
        sa.Column("row_count", sa.Integer, nullable=False),
        sa.Column("state", sa.String(8), nullable=False, server_default="waiting"),
        sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
        sa.Column("slots", sa.Integer, nullable=False, server_default="0"),
        sa.Column("tag", sa.Float, nullable=False, server_default="0"),
        sa.Column("careful", sa.Boolean, nullable=False, server_default=sa.false()),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_shards_state", "shards", ["state", "run_id"])
    clock = op.create_table(
        "fair_clock",
        sa.Column("clock_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("virtual_time", sa.Float, nullable=False),
    )
    op.bulk_insert(clock, [{"clock_id": 1, "virtual_time": 0.0}])
