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
    """The tables of one service. Services that share a database differ in every table's name.

    Args:
        service: The service as messages and connections name it, e.g. "orchestrator".
        create: Makes everything of the newest revision in an empty database; a test compares it with the migrations.
        write_marks: The table of the marks that changes leave, see `assay.storage.changes`.
        migrations: The folder of alembic's scripts.
        head_revision: The newest revision, of those that compare as texts do.
        version_table: Where the database holds its revision.
        other_folder: How a user chooses another folder for the SQLite file.
        other_process: What a user does about another process that has the file.
        running_processes: Returns the names of the processes that work with the tables in PostgreSQL, as messages name
            them; a service whose versions may share its tables has none.
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
