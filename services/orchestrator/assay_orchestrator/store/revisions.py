"""The newest revision of the tables, and the migrations that lead to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay.storage.tables import ServiceTables
from assay_orchestrator.store import audit_triggers, schema, signing_keys, views
from assay_orchestrator.store.processes import running_processes

if TYPE_CHECKING:
    import sqlalchemy as sa

HEAD_REVISION = "0001"


def _create(connection: sa.Connection) -> None:
    schema.create_all(connection)
    connection.execute(schema.fair_clock.insert().values(clock_id=1, virtual_time=0.0))
    connection.execute(schema.signing_keys.insert(), list(map(signing_keys.new_row, signing_keys.NAMES)))
    views.create_views(connection)
    audit_triggers.create_triggers(connection)


TABLES = ServiceTables(
    service="orchestrator",
    create=_create,
    write_marks=schema.write_marks,
    migrations=Path(__file__).parent / "migrations",
    head_revision=HEAD_REVISION,
    version_table="alembic_version",
    running_processes=running_processes,
)
