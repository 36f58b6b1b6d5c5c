"""What version 0.1.0 stores: its tables, views and triggers, and the rows that a new database begins with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from assay_orchestrator.store import audit_triggers, queue_tables, signing_keys, views

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make everything."""
    _create_datasets()
    _create_runs()
    _create_shards()
    _create_rows()
    _create_names()
    _create_teams()
    _create_audit()
    _create_budgets()
    _create_keys()
    connection = op.get_bind()
    views.create_views(connection, revision)
    audit_triggers.create_triggers(connection)
    if connection.dialect.name == "postgresql":
        queue_tables.create_queue_tables(connection, revision)


def _create_datasets() -> None:
    op.create_table(
        "datasets",
        sa.Column("dataset_id", sa.String(64), nullable=False),
        sa.Column("upload_id", sa.String(64), nullable=False),
        sa.Column("case_count", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger, server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("team", "dataset_id"),
        sa.UniqueConstraint("upload_id"),
    )
    op.create_table(
        "dataset_names",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("dataset_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("uploaded_at", sa.String(32), nullable=False),
        sa.Column("note", sa.Text, server_default="", nullable=False),
        sa.Column("parents_json", sa.Text, server_default="[]", nullable=False),
        sa.PrimaryKeyConstraint("team", "name", "dataset_id"),
        sa.ForeignKeyConstraint(
            ["team", "dataset_id"], ["datasets.team", "datasets.dataset_id"], name="fk_dataset_names_dataset"
        ),
    )
    op.create_index("ix_dataset_names_dataset_id", "dataset_names", ["team", "dataset_id"])
    op.create_index("ix_dataset_names_uploaded_at", "dataset_names", ["team", "uploaded_at"])
    op.create_table(
        "uploads",
        sa.Column("upload_id", sa.String(64), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("upload_id"),
    )
    op.create_table(
        "dataset_cases",
        sa.Column("upload_id", sa.String(64), nullable=False),
        sa.Column("case_index", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("case_id", sa.Text, nullable=False),
        sa.Column("case_json", sa.Text, nullable=False),
        sa.Column("question_text", sa.Text, server_default="", nullable=False),
        sa.PrimaryKeyConstraint("upload_id", "case_index"),
        sa.UniqueConstraint("upload_id", "case_id", name="uq_dataset_cases_case_id"),
        sqlite_with_rowid=False,
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("request_id", sa.String(100), nullable=False),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("dataset_id", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("state_message", sa.Text, server_default="", nullable=False),
        sa.Column("total_count", sa.BigInteger, nullable=False),
        sa.Column("finished_count", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("passed_count", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("failed_count", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("agent_error_count", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("interrupted_count", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("last_sequence", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("assay_version", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("started_at", sa.String(32)),
        sa.Column("ended_at", sa.String(32)),
        sa.Column("pause_cause", sa.String(16), server_default="", nullable=False),
        sa.Column("fair_share", sa.String(64), server_default="", nullable=False),
        sa.Column("weight", sa.Float, server_default="1", nullable=False),
        sa.Column("agent_key", sa.Text, server_default="", nullable=False),
        sa.Column("concurrency", sa.Integer, server_default="1", nullable=False),
        sa.Column("hosted", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("finish_tag", sa.Float, server_default="0", nullable=False),
        sa.Column("team_tag", sa.Float, server_default="0", nullable=False),
        sa.Column("attended_at", sa.String(32)),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("group_id", sa.String(64), server_default="", nullable=False),
        sa.Column("stop_json", sa.Text),
        sa.Column("removed_count", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("traceparent", sa.String(64), server_default="", nullable=False),
        sa.Column("dataset_name", sa.Text, server_default="", nullable=False),
        sa.Column("figures_json", sa.Text, nullable=False, server_default="{}"),
        sa.Column("spec_json", sa.Text, nullable=False),
        sa.Column("summary_json", sa.Text),
        sa.ForeignKeyConstraint(
            ["team", "dataset_id"], ["datasets.team", "datasets.dataset_id"], name="fk_runs_dataset"
        ),
        sa.PrimaryKeyConstraint("run_id"),
        sa.UniqueConstraint("team", "request_id", name="uq_runs_request_id"),
    )
    op.create_index("ix_runs_dataset_id", "runs", ["team", "dataset_id"])
    op.create_index("ix_runs_group_id", "runs", ["team", "group_id"])
    op.create_index("ix_runs_team_created_at", "runs", ["team", "created_at"])
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("sequence", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("pause_cause", sa.String(16), nullable=False, server_default=""),
        sa.Column("counts_json", sa.Text, nullable=False, server_default="{}"),
        sa.PrimaryKeyConstraint("run_id", "sequence"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deletions",
        sa.Column("run_id", sa.String(120), server_default="", nullable=False),
        sa.Column("upload_id", sa.String(64), server_default="", nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("team", sa.String(64), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("run_id", "upload_id"),
    )


def _create_shards() -> None:
    op.create_table(
        "shards",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("shard_index", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("first_case", sa.BigInteger, nullable=False),
        sa.Column("case_count", sa.Integer, nullable=False),
        sa.Column("row_count", sa.Integer, nullable=False),
        sa.Column("state", sa.String(8), server_default="waiting", nullable=False),
        sa.Column("epoch", sa.Integer, server_default="0", nullable=False),
        sa.Column("slots", sa.Integer, server_default="0", nullable=False),
        sa.Column("tag", sa.Float, server_default="0", nullable=False),
        sa.Column("careful", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("ticket", sa.Integer, server_default="0", nullable=False),
        sa.Column("retry_errors", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "shard_index"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_shards_state", "shards", ["state", "run_id"])


def _create_rows() -> None:
    op.create_table(
        "answers",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("case_index", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("repeat", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("turn_index", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("response_json", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("answer_text", sa.Text, server_default="", nullable=False),
        sa.PrimaryKeyConstraint("run_id", "case_index", "repeat", "turn_index"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "results",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("case_index", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("repeat", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("case_id", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("passed", sa.Boolean),
        sa.Column("latency_ms", sa.Float),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("scores_json", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("tags_json", sa.Text, server_default="[]", nullable=False),
        sa.Column("weight", sa.Float, server_default="1", nullable=False),
        sa.Column("answer_vector", sa.LargeBinary),
        sa.Column("started_at", sa.String(32)),
        sa.Column("duration_ms", sa.Float),
        sa.Column("values_json", sa.Text, server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("run_id", "case_index", "repeat"),
        # PostgreSQL sorts by latency from its index alone; SQLite's rows lie in the order of their key.
        sa.UniqueConstraint(
            "run_id",
            "sequence",
            name="uq_results_sequence",
            postgresql_include=["case_index", "repeat", "latency_ms"],
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "score_values",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("case_index", sa.BigInteger, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "metric", "case_index", "repeat", postgresql_include=["value"]),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "row_history",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("case_index", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("repeat", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("attempt_index", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("answers_json", sa.Text),
        sa.Column("result_json", sa.Text),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "case_index", "repeat", "attempt_index"),
        sqlite_with_rowid=False,
    )


def _create_names() -> None:
    op.create_table(
        "baselines",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("set_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("team", "name"),
    )
    op.create_table(
        "calibrations",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("rubric", sa.Text, nullable=False),
        sa.Column("criterion", sa.Text, nullable=False),
        sa.Column("fingerprints", sa.Text, nullable=False),
        sa.Column("calibration_json", sa.Text, nullable=False),
        sa.Column("set_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("team", "rubric", "criterion", "fingerprints"),
    )


def _create_teams() -> None:
    op.create_table(
        "teams",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("disabled_at", sa.String(32)),
        sa.Column("keep_audit_days", sa.Integer),
        sa.Column("keep_runs_days", sa.Integer),
        sa.Column("deleted_at", sa.String(32)),
        sa.Column("erased_at", sa.String(32)),
        sa.PrimaryKeyConstraint("team"),
    )
    op.create_table(
        "erasures",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("store", sa.String(64), nullable=False),
        sa.Column("deleted_count", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("remaining_count", sa.BigInteger),
        sa.PrimaryKeyConstraint("team", "store"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_by", sa.String(16), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("expires_at", sa.String(32)),
        sa.Column("revoked_at", sa.String(32)),
        sa.Column("last_used_at", sa.String(32)),
        sa.ForeignKeyConstraint(["team"], ["teams.team"], name="fk_tokens_team"),
        sa.PrimaryKeyConstraint("token_id"),
    )
    op.create_index("ix_tokens_team", "tokens", ["team", "created_at"])
    op.create_table(
        "destinations",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("secrets_json", sa.Text, nullable=False),
        sa.Column("created_by", sa.String(16), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.ForeignKeyConstraint(["team"], ["teams.team"], name="fk_destinations_team"),
        sa.PrimaryKeyConstraint("team", "name"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit_entries",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger, autoincrement=False, nullable=False),
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
        sa.PrimaryKeyConstraint("team", "sequence"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_audit_entries_at", "audit_entries", ["at", "team", "sequence"])


def _create_budgets() -> None:
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
        "allotments",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("nano_usd", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("recorded_nano_usd", sa.BigInteger, nullable=False),
        sa.Column("recorded_tokens", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "holder"),
    )
    op.create_table(
        "requests",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("minute", sa.String(16), nullable=False),
        sa.Column("taken", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("team"),
    )


def _create_keys() -> None:
    fair_clock = op.create_table(
        "fair_clock",
        sa.Column("clock_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("virtual_time", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("clock_id"),
    )
    op.get_bind().execute(fair_clock.insert().values(clock_id=1, virtual_time=0.0))
    keys = op.create_table(
        "signing_keys",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("key_hex", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.get_bind().execute(keys.insert(), list(map(signing_keys.new_row, signing_keys.NAMES)))
    op.create_table(
        "write_marks",
        sa.Column("writer", sa.String(64), nullable=False),
        sa.Column("mark", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("writer"),
    )
