"""The first tables: datasets and their cases, runs, answers, results, run events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "datasets",
        sa.Column("dataset_id", sa.String(64), primary_key=True),
        sa.Column("upload_id", sa.String(64), nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("format", sa.Text, nullable=False),
        sa.Column("case_count", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "dataset_cases",
        sa.Column("upload_id", sa.String(64), primary_key=True),
        sa.Column("case_index", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("case_id", sa.Text, nullable=False),
        sa.Column("case_json", sa.Text, nullable=False),
        sa.UniqueConstraint("upload_id", "case_id", name="uq_dataset_cases_case_id"),
        sqlite_with_rowid=False,
    )
    _create_runs()
    op.create_table(
        "answers",
        *_row_key(),
        sa.Column("response_json", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "results",
        *_row_key(),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("case_id", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("passed", sa.Boolean),
        sa.Column("latency_ms", sa.Float),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("scores_json", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.UniqueConstraint("run_id", "sequence", name="uq_results_sequence"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.String(120), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sqlite_with_rowid=False,
    )


def _create_runs() -> None:
    counts = ("finished_count", "passed_count", "failed_count", "agent_error_count", "last_sequence")
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(120), primary_key=True),
        sa.Column("request_id", sa.String(100), nullable=False, unique=True),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("spec_json", sa.Text, nullable=False),
        sa.Column("dataset_id", sa.String(64), sa.ForeignKey("datasets.dataset_id"), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("state_reason", sa.Text, nullable=False, server_default=""),
        sa.Column("total_count", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in counts),
        sa.Column("summary_json", sa.Text),
        sa.Column("assay_version", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False, index=True),
        sa.Column("started_at", sa.String(32)),
        sa.Column("ended_at", sa.String(32)),
    )


def _row_key() -> tuple[sa.Column[str], sa.Column[int], sa.Column[int]]:
    return (
        sa.Column("run_id", sa.String(120), primary_key=True),
        sa.Column("case_index", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("repeat_index", sa.Integer, primary_key=True, autoincrement=False),
    )
