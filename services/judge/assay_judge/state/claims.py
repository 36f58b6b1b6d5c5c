"""Claims to verdicts: one replica calls the judge for a verdict, and the others wait for it.

A claim is a lease that its owner renews during the call. When a replica is killed, another one acquires its claims
after the lease; until then identical requests wait, each up to its own deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.errors import StorageError
from assay_judge.state import schema
from assay_judge.state.statements import insert_into

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.storage.database import Database

LEASE_S = 12.0
_FIRST_POLL_S, _LONGEST_POLL_S = 0.05, 1.0

logger = logging.getLogger("assay_judge")


class Claims:
    """The claims of one replica.

    Args:
        database: The database of all replicas.
        lease_s: Duration of the lease, in seconds.
    """

    def __init__(self, database: Database, lease_s: float = LEASE_S) -> None:
        self._database = database
        self._lease_s = lease_s

    @asynccontextmanager
    async def held(self, team: str, key: str) -> AsyncIterator[None]:
        """Hold the claim to a verdict inside the block, waiting while another replica holds it."""
        owner = secrets.token_hex(16)
        await self._acquire(team, key, owner)
        renewing = asyncio.ensure_future(self._renew(team, key, owner))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            with contextlib.suppress(StorageError):  # the claim then ends with its lease
                await asyncio.shield(self._release(team, key, owner))

    async def _acquire(self, team: str, key: str, owner: str) -> None:
        """Return once the owner has the claim, or if the database does not answer."""
        poll_s = _FIRST_POLL_S
        while True:
            work = asyncio.ensure_future(self._database.write(lambda c: _claim(c, team, key, owner, self._lease_s)))
            try:
                # A claim that is committed after its caller left would make the other replicas wait for a whole lease.
                if await asyncio.shield(work):
                    return
            except asyncio.CancelledError:
                with contextlib.suppress(StorageError):
                    if await work:
                        await asyncio.shield(self._release(team, key, owner))
                raise
            except StorageError as problem:
                logger.warning("cannot claim a verdict, another replica may pay for it too: key=%s: %s", key, problem)
                return
            await asyncio.sleep(poll_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads replicas, no secret
            poll_s = min(2 * poll_s, _LONGEST_POLL_S)

    async def _renew(self, team: str, key: str, owner: str) -> None:
        table = schema.claims
        own = sa.and_(table.c.team == team, table.c.key == key, table.c.owner == owner)
        while True:
            # Three times per lease, so that one renewal that fails does not lose the claim.
            await asyncio.sleep(self._lease_s / 3)
            with contextlib.suppress(StorageError):
                await self._database.write(
                    lambda connection: connection.execute(
                        table.update().where(own).values(lease_until=time.time() + self._lease_s)
                    )
                )

    async def _release(self, team: str, key: str, owner: str) -> None:
        table = schema.claims
        own = sa.and_(table.c.team == team, table.c.key == key, table.c.owner == owner)
        await self._database.write(lambda connection: connection.execute(table.delete().where(own)))


def _claim(connection: sa.Connection, team: str, key: str, owner: str, lease_s: float) -> bool:
    """Try to claim a verdict; return whether the owner has it now."""
    table, now = schema.claims, time.time()
    values = {"owner": owner, "lease_until": now + lease_s}
    insert = insert_into(table, connection.dialect.name).values(team=team, key=key, **values)
    claimed = insert.on_conflict_do_update(
        index_elements=["team", "key"], set_=values, where=table.c.lease_until < now
    ).returning(table.c.owner)
    return connection.execute(claimed).first() is not None
