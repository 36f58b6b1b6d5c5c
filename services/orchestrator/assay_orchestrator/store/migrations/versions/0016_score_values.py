"""The values of a row's scores by metric, apart from their details: what rows are filtered and sorted by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

_FILL = {
    "sqlite": """
        UPDATE results SET values_json = (
            SELECT json_group_object(json_extract(value, '$.metric'), json_extract(value, '$.value'))
            FROM json_each(scores_json) WHERE json_extract(value, '$.value') IS NOT NULL)
        """,
    "postgresql": """
        UPDATE results SET values_json = (
            SELECT coalesce(json_object_agg(score ->> 'metric', score -> 'value'), '{}')::text
            FROM json_array_elements(scores_json::json) AS score WHERE score ->> 'value' IS NOT NULL)
        """,
}


def upgrade() -> None:
    """Add the column, and fill it from the scores."""
    op.add_column("results", sa.Column("values_json", sa.Text, nullable=False, server_default="{}"))
    connection = op.get_bind()
    connection.exec_driver_sql(_FILL[connection.dialect.name])
