"""The tables of a later version, which does not exist yet: one migration more than this one has."""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING

from assay_orchestrator.store.revisions import HEAD_REVISION, TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from assay.storage.tables import ServiceTables

NEXT_REVISION = f"{int(HEAD_REVISION) + 1:04}"
_MIGRATION = f'''
import sqlalchemy as sa
from alembic import op

revision = "{NEXT_REVISION}"
down_revision = "{HEAD_REVISION}"


def upgrade() -> None:
    op.add_column("baselines", sa.Column("note", sa.Text, nullable=False, server_default="none"))
'''


def later_tables(folder: Path) -> ServiceTables:
    """Return the tables of a version that adds the column `note` to `baselines`.

    Args:
        folder: Where its migrations are written.
    """
    migrations = folder / "migrations"
    shutil.copytree(TABLES.migrations, migrations, ignore=shutil.ignore_patterns("__pycache__"))
    (migrations / "versions" / f"{NEXT_REVISION}_next.py").write_text(_MIGRATION, encoding="utf-8")
    return dataclasses.replace(TABLES, migrations=migrations, head_revision=NEXT_REVISION)
