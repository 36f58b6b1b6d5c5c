"""The orchestrator's database: a SQLite file, or PostgreSQL if the settings name one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.storage import database
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from assay.storage.database import Database
    from assay_orchestrator.settings import Settings


def open_database(settings: Settings) -> Database:
    """Open the database that the settings name, and update its tables or wait until they are current.

    Raises:
        StorageError: It cannot be opened, another orchestrator has the file, or a newer version wrote it.
        SetupError: The driver for PostgreSQL is not installed.
    """
    return database.open_database(
        TABLES,
        path=settings.database,
        url=settings.database_url,
        patience_s=settings.database_patience_s,
        migrates=settings.migrations == "apply",
    )
