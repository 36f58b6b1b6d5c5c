"""The start of a process that has its database alone: resumes or pauses every run that a stop interrupted."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from assay.model.scope import Scope
from assay.process.failpoints import failpoint
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import Command, Phase
from assay_orchestrator.store.shards import shards
from assay_orchestrator.store.teams import tokens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.store.runs.runs import RunRecord

_INTERRUPTED = "the orchestrator stopped while the run was running; stored rows are kept"

_log = logging.getLogger(__name__)


async def recover_runs(database: Database, resume: Callable[[Scope, str], Awaitable[None]], *, resumes: bool) -> None:
    """Resume or pause the pending and running runs; a run that was pausing is paused.

    Args:
        database: The store.
        resume: Resumes a run of a scope.
        resumes: Whether runs resume; those of disabled teams pause in any case.
    """

    def tidy(connection: sa.Connection) -> tuple[list[RunRecord], frozenset[str]]:
        shards.release_all(connection)
        return runs.list_unfinished(connection), tokens.disabled_teams(connection)

    records, disabled = await database.write(tidy)
    for record in records:
        if record.phase is Phase.PAUSING:
            message = await database.write(lambda c, run_id=record.run_id: runs.drain(c, run_id))  # type: ignore[misc]
            _log.info("paused run: run=%s reason=%s", record.run_id, message)
        elif resumes and record.team not in disabled:
            await resume(Scope(record.team), record.run_id)
        else:
            message = runs.PAUSED_TEAM_DISABLED if record.team in disabled else _INTERRUPTED
            change = partial(runs.apply_command, run_id=record.run_id, command=Command.INTERRUPT, message=message)
            await database.write(change)
            _log.info("paused run: run=%s reason=%s", record.run_id, message)
        failpoint("recovery.run_continued")
