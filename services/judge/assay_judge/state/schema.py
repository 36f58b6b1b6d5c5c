"""The judge's tables. Every change needs a numbered migration; a test compares the two."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from assay.storage.tables import ServiceTables
from assay.storage.texts import CleanString, CleanText

HEAD_REVISION = "0001"
VERSION_TABLE = "judge_version"

metadata = sa.MetaData()

verdicts = sa.Table(
    "judge_verdicts",
    metadata,
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("used_at", sa.Float(53), nullable=False, index=True),
    sa.Column("record", sa.Text, nullable=False),
    sa.Column("team", CleanString(64), nullable=False),
    sa.PrimaryKeyConstraint("team", "key"),
)

# The amount that a run has paid, in billionths of a dollar; the row is locked while an amount is reserved.
spending = sa.Table(
    "judge_spending",
    metadata,
    sa.Column("run_id", CleanText, nullable=False),
    sa.Column("nano", sa.BigInteger, nullable=False),
    sa.Column("changed_at", sa.Float(53), nullable=False, index=True),
    sa.Column("team", CleanString(64), nullable=False),
    sa.PrimaryKeyConstraint("team", "run_id"),
)

# The reservations of calls in flight, in all processes. After expires_at the call is lost, and its amount counts as
# spent. key is the verdict's key: another call for that verdict shows how much the lost call can have cost.
reservations = sa.Table(
    "judge_reservations",
    metadata,
    sa.Column("reservation_id", sa.String(32), primary_key=True),
    sa.Column("run_id", CleanText, nullable=False),
    sa.Column("nano", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Float(53), nullable=False),
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("key", sa.String(64), nullable=False, server_default=""),
    sa.Index("judge_reservations_of_run", "team", "run_id"),
)

# Claims: the process that calls the judge for a verdict, while the others wait. Its owner renews the lease.
claims = sa.Table(
    "judge_claims",
    metadata,
    sa.Column("team", CleanString(64), nullable=False),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("owner", sa.String(32), nullable=False),
    sa.Column("lease_until", sa.Float(53), nullable=False),
    sa.PrimaryKeyConstraint("team", "key"),
)

# Unfinished batches. The owner's lease ends at lease_until, by the database's clock. Each acquisition increments the
# epoch; every write of the batch or its orders checks it.
batches = sa.Table(
    "judge_batches",
    metadata,
    sa.Column("batch_id", sa.String(32), primary_key=True),
    sa.Column("line", CleanText, nullable=False),
    sa.Column("provider_id", CleanText, nullable=False),
    sa.Column("created_at", sa.Float(53), nullable=False),
    sa.Column("requests", sa.Integer, nullable=False),
    sa.Column("owner", sa.String(32), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("lease_until", sa.Float(53), nullable=False),
)

# Orders without an outcome, unique per team and key, and outcomes, unique per run and key.
orders = sa.Table(
    "judge_orders",
    metadata,
    sa.Column("item_id", sa.String(32), primary_key=True),
    sa.Column("batch_id", sa.String(32), nullable=False),
    sa.Column("line", CleanText, nullable=False),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("run_id", CleanText, nullable=False),
    sa.Column("cap", sa.BigInteger),
    sa.Column("reserved", sa.BigInteger, nullable=False),
    sa.Column("reservation", sa.String(32), nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("request", CleanText, nullable=False),
    sa.Column("outcome", CleanText),
    sa.Column("changed_at", sa.Float(53), nullable=False),
    sa.Column("team", CleanString(64), nullable=False),
)
_OPEN = orders.c.outcome.is_(None)
sa.Index("judge_orders_open", orders.c.team, orders.c.key, unique=True, postgresql_where=_OPEN, sqlite_where=_OPEN)
sa.Index("judge_orders_of_run", orders.c.team, orders.c.key, orders.c.run_id, unique=True)
sa.Index("judge_orders_of_batch", orders.c.batch_id, orders.c.line)

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
    other_folder="give another folder with --state-dir",
    other_process="stop it",
)
