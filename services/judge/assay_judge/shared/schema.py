"""The judge's tables. A change here comes with a numbered migration; a test compares the two."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from assay.storage.tables import ServiceTables
from assay.storage.texts import CleanText

__all__ = ["HEAD_REVISION", "TABLES", "VERSION_TABLE", "metadata", "reservations", "spending", "verdicts"]

HEAD_REVISION = "0001"
VERSION_TABLE = "judge_version"

metadata = sa.MetaData()

verdicts = sa.Table(
    "judge_verdicts",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("used_at", sa.Float(53), nullable=False, index=True),
    sa.Column("record", sa.Text, nullable=False),
)

# What a run has paid, in billionths of a dollar; the row is locked while an amount is set aside.
spending = sa.Table(
    "judge_spending",
    metadata,
    sa.Column("run_id", CleanText, primary_key=True),
    sa.Column("nano", sa.BigInteger, nullable=False),
    sa.Column("changed_at", sa.Float(53), nullable=False, index=True),
)

# What is set aside for calls under way, of whichever process.
reservations = sa.Table(
    "judge_reservations",
    metadata,
    sa.Column("reservation_id", sa.String(32), primary_key=True),
    sa.Column("run_id", CleanText, nullable=False, index=True),
    sa.Column("nano", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Float(53), nullable=False),
)

write_marks = sa.Table(
    "judge_write_marks",
    metadata,
    sa.Column("writer", sa.String(64), primary_key=True),
    sa.Column("mark", sa.String(32), nullable=False),
)

TABLES = ServiceTables(
    service="judge",
    create=metadata.create_all,
    write_marks=write_marks,
    migrations=Path(__file__).parent / "migrations",
    head_revision=HEAD_REVISION,
    version_table=VERSION_TABLE,
)
