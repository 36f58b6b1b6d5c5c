"""Which version of the tables a database has, and how it gets the newest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import StorageError
from assay.failpoints import failpoint

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["HEAD_REVISION", "needs_upgrade", "read_revision", "upgrade"]

HEAD_REVISION = "0009"


def needs_upgrade(revision: str | None, place: str, remedy: str) -> bool:
    """Return whether tables of this revision are to be upgraded; None stands for a new database.

    Args:
        revision: What `read_revision` returned.
        place: The database as users know it.
        remedy: What else than upgrading Assay a user can do about a database that is too new.

    Raises:
        StorageError: A newer version of Assay wrote it.
    """
    if revision is not None and revision > HEAD_REVISION:
        raise StorageError(
            f"{place} was written by a newer version of Assay (schema {revision}, this version knows up to "
            f"{HEAD_REVISION}): upgrade Assay, or {remedy}"
        )
    return revision != HEAD_REVISION


def read_revision(connection: sa.Connection) -> str | None:
    """Return the revision of the tables; None where there are none."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    revision: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return revision


def upgrade(connection: sa.Connection, revision: str = HEAD_REVISION) -> None:
    """Run the migrations up to a revision and commit them, all in one transaction."""
    # Imported here: alembic takes longer to import than most runs to start, and is rarely needed.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    failpoint("schema.before_commit")
    connection.commit()
    failpoint("schema.after_commit")
