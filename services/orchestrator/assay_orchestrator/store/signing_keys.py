"""Keys that sign what an installation issues to clients; created with its tables and shared by all processes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay_orchestrator.store import schema

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = ("page_tokens", "service_scopes")
_KEY_BYTES = 32


def new_row(name: str) -> Mapping[str, str]:
    """Return the row of a new key."""
    return {"name": name, "key_hex": secrets.token_hex(_KEY_BYTES)}


def get_key(connection: sa.Connection, name: str) -> bytes:
    """Return a key."""
    table = schema.signing_keys
    return bytes.fromhex(connection.execute(sa.select(table.c.key_hex).where(table.c.name == name)).scalar_one())
