"""The revision of a database's tables, and upgrades to the newest revision."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from assay.errors import StorageError
from assay.process.failpoints import failpoint

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.storage.tables import ServiceTables

_log = logging.getLogger(__name__)


def needs_upgrade(tables: ServiceTables, revision: str | None, place: str, remedy: str) -> bool:
    """Return whether tables of this revision must be upgraded; None is a new database.

    Args:
        tables: The tables of the service.
        revision: The result of `read_revision`.
        place: The database as users know it.
        remedy: What helps with a too new database, besides upgrading Assay.

    Raises:
        StorageError: A newer version of Assay wrote it.
    """
    if revision is not None and revision > tables.head_revision:
        raise StorageError(
            f"{place} was written by a newer version of Assay (schema {revision}, this version knows up to "
            f"{tables.head_revision}): upgrade Assay, or {remedy}"
        )
    return revision != tables.head_revision


def read_revision(connection: sa.Connection, tables: ServiceTables) -> str | None:
    """Return the revision of the tables; None if there are none."""
    if not connection.dialect.has_table(connection, tables.version_table):
        return None
    revision: str | None = connection.exec_driver_sql(f"SELECT version_num FROM {tables.version_table}").scalar()  # noqa: S608 - no value
    return revision


def upgrade(connection: sa.Connection, tables: ServiceTables, revision: str = "head") -> None:
    """Run the migrations up to a revision and commit them in one transaction."""
    # Imported here: alembic takes longer to import than most runs to start, and is rarely needed.
    from alembic import command
    from alembic.config import Config

    before = read_revision(connection, tables)
    config = Config()
    config.set_main_option("script_location", str(tables.migrations))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    after = read_revision(connection, tables)
    failpoint("schema.before_commit")
    connection.commit()
    _log.info("migrated database: service=%s from=%s to=%s", tables.service, before or "none", after or "none")
    failpoint("schema.after_commit")
