"""The money and tokens that a team's allotments reserve."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay_orchestrator.store import schema
from assay_orchestrator.store.teams.allotments import Amount

if TYPE_CHECKING:
    from collections.abc import Callable


def held_by(team: str) -> Callable[[sa.Connection], Amount]:
    """Return a query for the amounts that a team's leases reserve, without recorded spending."""

    def read(connection: sa.Connection) -> Amount:
        table = schema.allotments.c
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        held = sa.select(table.nano_usd - table.recorded_nano_usd, table.tokens - table.recorded_tokens).where(
            table.team == team, table.expires_at > now
        )
        rows = connection.execute(held).all()
        return Amount(*(sum(max(0, int(row[place])) for row in rows) for place in (0, 1)))

    return read
