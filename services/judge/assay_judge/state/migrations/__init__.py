"""Numbered migrations of the judge's tables, run by alembic without a configuration file."""
