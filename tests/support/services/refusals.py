"""PostgreSQL tables that refuse changes to their rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from psycopg import sql
from tests.support.processes.waiting import until

if TYPE_CHECKING:
    import psycopg

_FUNCTION = """
CREATE SEQUENCE refused;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM nextval('refused'); RAISE 'refused here' USING ERRCODE = {};
END $$
"""
_TRIGGER = "CREATE TRIGGER refuse BEFORE {} ON {} FOR EACH {} EXECUTE FUNCTION refuse()"


class Refusal:
    """Triggers that refuse changes to some tables and count the refusals; created by `refuse`."""

    def __init__(self, admin: psycopg.Connection[Any], tables: tuple[str, ...]) -> None:
        self._admin = admin
        self._tables = tables

    async def until_met(self, count: int) -> None:
        """Wait for a number of refusals; those in rolled-back transactions count too."""
        await until(lambda: asyncio.to_thread(self._count), lambda seen: seen >= count)

    async def lift(self) -> None:
        """Allow changes again."""
        await asyncio.to_thread(self._lift)

    def _count(self) -> int:
        row = self._admin.execute("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM refused").fetchone()
        assert row is not None
        return int(row[0])

    def _lift(self) -> None:
        for table in self._tables:
            self._admin.execute(sql.SQL("DROP TRIGGER refuse ON {}").format(sql.Identifier(table)))


async def refuse(
    admin: psycopg.Connection[Any], state: str, *tables: str, change: str = "INSERT OR UPDATE", each: str = "STATEMENT"
) -> Refusal:
    """Refuse changes to some tables from now on.

    Args:
        admin: A connection of an administrator that commits by itself.
        state: The SQLSTATE of the refusals.
        tables: Which tables.
        change: What is refused.
        each: Whether to refuse a STATEMENT, though it may change nothing, or a ROW.
    """

    def make() -> None:
        admin.execute(sql.SQL(_FUNCTION).format(sql.Literal(state)))
        for table in tables:
            admin.execute(sql.SQL(_TRIGGER).format(sql.SQL(change), sql.Identifier(table), sql.SQL(each)))

    await asyncio.to_thread(make)  # it waits for locks that connections of the calling loop may have
    return Refusal(admin, tables)
