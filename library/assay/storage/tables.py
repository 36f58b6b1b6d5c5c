"""The declaration of one service's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import sqlalchemy as sa


@dataclass(frozen=True)
class ServiceTables:
    """The tables of one service. Services that share a database have no table name in common.

    Args:
        service: The service's name in messages and connections, e.g. "orchestrator".
        create: Creates the newest revision in an empty database; a test compares it with the migrations.
        write_marks: The table of marks, see `assay.storage.changes`.
        migrations: The folder of alembic's scripts.
        head_revision: The newest revision; revisions compare as texts.
        version_table: The table of the database's revision.
        other_folder: How to choose another folder for the SQLite file.
        other_process: What to do about another process that has the file.
        running_processes: Returns the names, for messages, of the processes that use the tables in PostgreSQL; None if
            different versions of the service may share its tables.
    """

    service: str
    create: Callable[[sa.Connection], None]
    write_marks: sa.Table
    migrations: Path
    head_revision: str
    version_table: str
    other_folder: str = "choose another folder with ASSAY_HOME"
    other_process: str = "use that one with --server, stop it"
    running_processes: Callable[[sa.Connection], list[str]] = lambda connection: []
