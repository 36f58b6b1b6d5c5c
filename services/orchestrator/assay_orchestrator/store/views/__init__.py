"""SQL views for people who query the database: one file per revision and dialect.

Later revisions bring files of their own, so that an older migration still creates what it created. A migration that
removes or renames a column of a view drops the views first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["NEWEST", "create_views"]

NEWEST = "0001"


def create_views(connection: sa.Connection, revision: str = NEWEST) -> None:
    """Create the views of a revision."""
    path = Path(__file__).parent / f"{revision}_{connection.dialect.name}.sql"
    for statement in path.read_text(encoding="utf-8").split(";\n"):
        if statement.strip():
            connection.exec_driver_sql(statement.strip())
