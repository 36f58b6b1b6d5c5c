"""Numbered migrations, run by alembic without a configuration file."""
