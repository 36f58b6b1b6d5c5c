"""Alembic's entry point: run the migrations on the connection that the store hands over."""

from __future__ import annotations

from alembic import context

from assay_judge.state.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], transactional_ddl=True, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
