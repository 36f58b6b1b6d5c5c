"""What rows are found and sorted by, apart from their JSON: texts, values of metrics, latency."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

FILL = {
    "sqlite": (
        "UPDATE answers SET answer_text = coalesce(json_extract(response_json, '$.text'), '')",
        """
        UPDATE dataset_cases SET question_text = coalesce((
            SELECT group_concat(coalesce(nullif(json_extract(turn.value, '$.input'), ''),
                                         json_extract(case_json, '$.variables'), ''), char(30))
            FROM json_each(case_json, '$.turns') AS turn), '')
        """,
        """
        INSERT INTO score_values SELECT run_id, key, case_index, repeat_index, value
        FROM results, json_each(values_json)
        """,
    ),
    "postgresql": (
        "UPDATE answers SET answer_text = coalesce(response_json::json ->> 'text', '')",
        """
        UPDATE dataset_cases SET question_text = coalesce((
            SELECT string_agg(coalesce(nullif(turn ->> 'input', ''), case_json::json ->> 'variables', ''), chr(30))
            FROM json_array_elements(case_json::json -> 'turns') AS turn), '')
        """,
        """
        INSERT INTO score_values SELECT run_id, key, case_index, repeat_index, value::float8
        FROM results, json_each_text(values_json::json)
        """,
    ),
}


def upgrade() -> None:
    """Add columns, table and index, and fill them from the JSON."""
    op.add_column("answers", sa.Column("answer_text", sa.Text, nullable=False, server_default=""))
    op.add_column("dataset_cases", sa.Column("question_text", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "score_values",
        sa.Column("run_id", sa.String(120), nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("case_index", sa.BigInteger, nullable=False),
        sa.Column("repeat_index", sa.Integer, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "metric", "case_index", "repeat_index", postgresql_include=["value"]),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    for statement in FILL[connection.dialect.name]:
        connection.exec_driver_sql(statement)
    if connection.dialect.name == "postgresql":
        op.drop_constraint("uq_results_sequence", "results")
        connection.exec_driver_sql(
            "ALTER TABLE results ADD CONSTRAINT uq_results_sequence "
            "UNIQUE (run_id, sequence) INCLUDE (case_index, repeat_index, latency_ms)"
        )
