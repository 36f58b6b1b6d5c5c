"""Trying rows with errors again: their results become history, and the run goes on without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.failpoints import failpoint
from assay_orchestrator.store import attempts

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.store.results import RowKey

__all__ = ["set_errors_aside"]

_BATCH_ROWS = 200


async def set_errors_aside(database: Database, run_id: str, try_limit: int) -> None:
    """Make history of every result with an error, in batches; a stop in between leaves the rest as they were."""
    after: RowKey | None = (-1, -1)
    while after is not None:
        after = await database.write(lambda c, after=after: _set_aside(c, run_id, after, try_limit))  # type: ignore[misc]
        failpoint("retry.after_commit")


def _set_aside(connection: sa.Connection, run_id: str, after: RowKey, try_limit: int) -> RowKey | None:
    last = attempts.set_aside(connection, run_id, after, _BATCH_ROWS, try_limit)
    failpoint("retry.before_commit")
    return last
