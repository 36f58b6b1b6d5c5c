"""The tables. A change here needs a numbered migration; a test compares the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.storage.texts import CleanString, CleanText

if TYPE_CHECKING:
    from collections.abc import Sequence

metadata = sa.MetaData()

datasets = sa.Table(
    "datasets",
    metadata,
    sa.Column("dataset_id", CleanString(64), nullable=False),
    sa.Column("upload_id", CleanString(64), nullable=False, unique=True),
    sa.Column("case_count", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.PrimaryKeyConstraint("team", "dataset_id"),
)

# The versions of each name: the one uploaded last is its current version.
dataset_names = sa.Table(
    "dataset_names",
    metadata,
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("name", CleanText, nullable=False),
    sa.Column("dataset_id", CleanString(64), nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("uploaded_at", sa.String(32), nullable=False),
    sa.Column("note", CleanText, nullable=False, server_default=""),
    sa.Column("parents_json", sa.Text, nullable=False, server_default="[]"),
    sa.PrimaryKeyConstraint("team", "name", "dataset_id"),
    sa.ForeignKeyConstraint(
        ("team", "dataset_id"), ("datasets.team", "datasets.dataset_id"), name="fk_dataset_names_dataset"
    ),
    sa.Index("ix_dataset_names_uploaded_at", "team", "uploaded_at"),
    sa.Index("ix_dataset_names_dataset_id", "team", "dataset_id"),
)

# Uploads that are not yet datasets.
uploads = sa.Table(
    "uploads",
    metadata,
    sa.Column("upload_id", CleanString(64), primary_key=True),
    sa.Column("team", CleanString(64), nullable=False),
)

dataset_cases = sa.Table(
    "dataset_cases",
    metadata,
    sa.Column("upload_id", CleanString(64), primary_key=True),
    sa.Column("case_index", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("case_id", CleanText, nullable=False),
    sa.Column("case_json", sa.Text, nullable=False),
    sa.Column("question_text", CleanText, nullable=False, server_default=""),
    sa.UniqueConstraint("upload_id", "case_id", name="uq_dataset_cases_case_id"),
    sqlite_with_rowid=False,
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", CleanString(120), primary_key=True),
    sa.Column("request_id", CleanString(100), nullable=False),
    sa.Column("request_hash", sa.String(64), nullable=False),
    sa.Column("dataset_id", CleanString(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("state_message", CleanText, nullable=False, server_default=""),
    sa.Column("total_count", sa.BigInteger, nullable=False),
    sa.Column("finished_count", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("passed_count", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("failed_count", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("agent_error_count", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("interrupted_count", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("last_sequence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("assay_version", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("started_at", sa.String(32)),
    sa.Column("ended_at", sa.String(32)),
    sa.Column("pause_cause", sa.String(16), nullable=False, server_default=""),
    sa.Column("fair_share", CleanString(64), nullable=False, server_default=""),
    sa.Column("weight", sa.Float, nullable=False, server_default="1"),
    sa.Column("agent_key", CleanText, nullable=False, server_default=""),
    sa.Column("concurrency", sa.Integer, nullable=False, server_default="1"),
    sa.Column("hosted", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("finish_tag", sa.Float, nullable=False, server_default="0"),
    sa.Column("team_tag", sa.Float, nullable=False, server_default="0"),
    sa.Column("attended_at", sa.String(32)),
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("group_id", CleanString(64), nullable=False, server_default=""),
    sa.Column("stop_json", sa.Text),
    sa.Column("removed_count", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("traceparent", sa.String(64), nullable=False, server_default=""),
    sa.Column("dataset_name", CleanText, nullable=False, server_default=""),
    sa.Column("figures_json", sa.Text, nullable=False, server_default="{}"),
    # Last, so that SQLite reads the other columns without the pages that continue a long text.
    sa.Column("spec_json", sa.Text, nullable=False),
    sa.Column("summary_json", sa.Text),
    sa.UniqueConstraint("team", "request_id", name="uq_runs_request_id"),
    sa.ForeignKeyConstraint(("team", "dataset_id"), ("datasets.team", "datasets.dataset_id"), name="fk_runs_dataset"),
    sa.Index("ix_runs_team_created_at", "team", "created_at"),
    sa.Index("ix_runs_group_id", "team", "group_id"),
    sa.Index("ix_runs_dataset_id", "team", "dataset_id"),
)

baselines = sa.Table(
    "baselines",
    metadata,
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("name", CleanText, nullable=False),
    sa.Column("run_id", CleanString(120), nullable=False),
    sa.Column("set_at", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("team", "name"),
)

calibrations = sa.Table(
    "calibrations",
    metadata,
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("rubric", CleanText, nullable=False),
    sa.Column("criterion", CleanText, nullable=False),
    sa.Column("fingerprints", CleanText, nullable=False),
    sa.Column("calibration_json", CleanText, nullable=False),
    sa.Column("set_at", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("team", "rubric", "criterion", "fingerprints"),
)

shards = sa.Table(
    "shards",
    metadata,
    sa.Column("run_id", CleanString(120), primary_key=True),
    sa.Column("shard_index", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("first_case", sa.BigInteger, nullable=False),
    sa.Column("case_count", sa.Integer, nullable=False),
    sa.Column("row_count", sa.Integer, nullable=False),
    sa.Column("state", sa.String(8), nullable=False, server_default="waiting"),
    sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("slots", sa.Integer, nullable=False, server_default="0"),
    sa.Column("tag", sa.Float, nullable=False, server_default="0"),
    sa.Column("careful", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("ticket", sa.Integer, nullable=False, server_default="0"),
    sa.Column("retry_errors", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("ix_shards_state", "state", "run_id"),
    sqlite_with_rowid=False,
)

fair_clock = sa.Table(
    "fair_clock",
    metadata,
    sa.Column("clock_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("virtual_time", sa.Float, nullable=False),
)

answers = sa.Table(
    "answers",
    metadata,
    sa.Column("run_id", CleanString(120), primary_key=True),
    sa.Column("case_index", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("turn_index", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("response_json", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("answer_text", CleanText, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)

results = sa.Table(
    "results",
    metadata,
    sa.Column("run_id", CleanString(120), primary_key=True),
    sa.Column("case_index", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("case_id", CleanText, nullable=False),
    sa.Column("category", CleanText, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("passed", sa.Boolean),
    sa.Column("latency_ms", sa.Float),
    sa.Column("message", CleanText, nullable=False),
    sa.Column("scores_json", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("tags_json", sa.Text, nullable=False, server_default="[]"),
    sa.Column("weight", sa.Float, nullable=False, server_default="1"),
    sa.Column("answer_vector", sa.LargeBinary),
    sa.Column("started_at", sa.String(32)),
    sa.Column("duration_ms", sa.Float),
    sa.Column("values_json", sa.Text, nullable=False, server_default="{}"),
    sa.UniqueConstraint("run_id", "sequence", name="uq_results_sequence"),
    sqlite_with_rowid=False,
)

# The values in `results.values_json`, metric by metric: sorting by a metric reads nothing else. A null is a value
# that an error left missing.
score_values = sa.Table(
    "score_values",
    metadata,
    sa.Column("run_id", CleanString(120), nullable=False),
    sa.Column("metric", CleanText, nullable=False),
    sa.Column("case_index", sa.BigInteger, nullable=False),
    sa.Column("repeat", sa.Integer, nullable=False),
    sa.Column("value", sa.Float, nullable=False),
    sa.PrimaryKeyConstraint("run_id", "metric", "case_index", "repeat"),
    sqlite_with_rowid=False,
)

run_events = sa.Table(
    "run_events",
    metadata,
    sa.Column("run_id", CleanString(120), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("message", CleanText, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("pause_cause", sa.String(16), nullable=False, server_default=""),
    sa.Column("counts_json", sa.Text, nullable=False, server_default="{}"),
    sqlite_with_rowid=False,
)


# Deleted runs and datasets whose rows are still to be removed: of each, one of the two ids is set.
deletions = sa.Table(
    "deletions",
    metadata,
    sa.Column("run_id", CleanString(120), primary_key=True, server_default=""),
    sa.Column("upload_id", CleanString(64), primary_key=True, server_default=""),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("team", CleanString(64), nullable=False, server_default=""),
)

row_history = sa.Table(
    "row_history",
    metadata,
    sa.Column("run_id", CleanString(120), primary_key=True),
    sa.Column("case_index", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("attempt_index", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("answers_json", sa.Text),
    sa.Column("result_json", sa.Text),
    sa.Column("created_at", sa.String(32), nullable=False),
    sqlite_with_rowid=False,
)

signing_keys = sa.Table(
    "signing_keys",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("key_hex", sa.String(64), nullable=False),
)

teams = sa.Table(
    "teams",
    metadata,
    sa.Column("team", CleanString(64), primary_key=True),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("disabled_at", sa.String(32)),
    sa.Column("keep_audit_days", sa.Integer),
    sa.Column("keep_runs_days", sa.Integer),
    sa.Column("deleted_at", sa.String(32)),
    sa.Column("erased_at", sa.String(32)),
)

# The number of deleted entries of a deleted team, by table or part of another service.
erasures = sa.Table(
    "erasures",
    metadata,
    sa.Column("team", CleanString(64), primary_key=True),
    sa.Column("store", sa.String(64), primary_key=True),
    sa.Column("deleted_count", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("remaining_count", sa.BigInteger),
    sqlite_with_rowid=False,
)

# Only the SHA-256 of a token is stored.
tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("token_id", sa.String(16), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("team", CleanString(64), sa.ForeignKey("teams.team", name="fk_tokens_team"), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("name", CleanText, nullable=False),
    sa.Column("created_by", sa.String(16), nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("expires_at", sa.String(32)),
    sa.Column("revoked_at", sa.String(32)),
    sa.Column("last_used_at", sa.String(32)),
    sa.Index("ix_tokens_team", "team", "created_at"),
)

destinations = sa.Table(
    "destinations",
    metadata,
    sa.Column("team", CleanString(64), sa.ForeignKey("teams.team", name="fk_destinations_team"), primary_key=True),
    sa.Column("name", CleanString(100), primary_key=True),
    sa.Column("address", CleanText, nullable=False),
    sa.Column("secrets_json", sa.Text, nullable=False),
    sa.Column("created_by", sa.String(16), nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
)

# Append-only: `audit_triggers` refuses everything else. Each team's entries are numbered from 1 without gaps.
audit_entries = sa.Table(
    "audit_entries",
    metadata,
    sa.Column("team", CleanString(64), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("action", sa.String(64), nullable=False),
    sa.Column("resource", CleanText, nullable=False),
    sa.Column("outcome", sa.String(64), nullable=False),
    sa.Column("actor", CleanString(16), nullable=False),
    sa.Column("actor_name", CleanText, nullable=False),
    sa.Column("actor_team", CleanString(64), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("address", CleanText, nullable=False),
    sa.Column("request_id", CleanText, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Index("ix_audit_entries_at", "at", "team", "sequence"),
    sqlite_with_rowid=False,
)

quotas = sa.Table(
    "quotas",
    metadata,
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("quota", sa.String(32), nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("team", "quota"),
)

# What runs have spent and stored per UTC day. Spending outlives its run: deleting a run returns no money.
spending = sa.Table(
    "spending",
    metadata,
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("day", sa.String(10), nullable=False),
    sa.Column("run_id", CleanString(120), nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("nano_usd", sa.BigInteger, nullable=False),
    sa.Column("stored_bytes", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("team", "day", "run_id"),
)

# The money and tokens that processes have taken from a team for a run, and the part already stored in `spending`.
allotments = sa.Table(
    "allotments",
    metadata,
    sa.Column("run_id", CleanString(120), nullable=False),
    sa.Column("holder", sa.String(32), nullable=False),
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("nano_usd", sa.BigInteger, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("recorded_nano_usd", sa.BigInteger, nullable=False),
    sa.Column("recorded_tokens", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("run_id", "holder"),
)

# The requests that an installation's processes have taken from the current minute's limit.
requests = sa.Table(
    "requests",
    metadata,
    sa.Column("team", CleanString(64), primary_key=True),
    sa.Column("minute", sa.String(16), nullable=False),
    sa.Column("taken", sa.BigInteger, nullable=False),
)

# For PostgreSQL only; `changes` explains its use.
write_marks = sa.Table(
    "write_marks",
    metadata,
    sa.Column("writer", sa.String(64), primary_key=True),
    sa.Column("mark", sa.String(32), nullable=False),
)


def at_positions(column: sa.Column[int], indexes: Sequence[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of some ascending positions; a dense page becomes a range."""
    span = indexes[-1] - indexes[0] + 1
    if span <= 2 * len(indexes):
        return sa.and_(column >= indexes[0], column <= indexes[-1])
    return column.in_(indexes)


def json_field(connection: sa.Connection, column: sa.ColumnElement[Any], field: str) -> sa.ColumnElement[str]:
    """Return a field of a JSON object: a string's text, or the JSON text of anything else."""
    if connection.dialect.name == "postgresql":
        value: sa.ColumnElement[str] = sa.cast(column, sa.JSON)[field].as_string()
        return value
    return sa.func.json_extract(column, f"$.{field}", type_=sa.Text)


def lock(connection: sa.Connection, kind: int, team: str = "") -> None:
    """Hold a lock until the commit, of one team or of the installation; SQLite has one write transaction at a time."""
    if connection.dialect.name == "postgresql":
        key = sa.func.hashtext(sa.func.current_schema() + sa.literal(f" {team}"))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(kind, key)))


def create_all(connection: sa.Connection) -> None:
    """Create the tables of a new database."""
    if connection.dialect.name == "postgresql":
        # Set here rather than in the table: naming a PostgreSQL option imports its dialect, which a file does not
        # need. PostgreSQL sorts by latency from this index alone; SQLite stores rows in key order, and they are
        # short to read.
        (by_sequence,) = (constraint for constraint in results.constraints if constraint.name == "uq_results_sequence")
        by_sequence.dialect_options["postgresql"]["include"] = ["case_index", "repeat", "latency_ms"]
        score_values.primary_key.dialect_options["postgresql"]["include"] = ["value"]
    metadata.create_all(connection)
