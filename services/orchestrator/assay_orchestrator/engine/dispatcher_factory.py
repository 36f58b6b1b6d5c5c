"""The choice between the two dispatchers, which follows from the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay_orchestrator.engine.embedded import EmbeddedDispatcher

if TYPE_CHECKING:
    from assay.storage.database import Database
    from assay_orchestrator.engine.dispatcher import Dispatcher
    from assay_orchestrator.settings import Settings


def open_dispatcher(settings: Settings, database: Database) -> Dispatcher:
    """Return the dispatcher of a process; it does not take jobs yet.

    Raises:
        SetupError: A package that PostgreSQL needs is not installed.
    """
    if not settings.database_url:
        return EmbeddedDispatcher(settings.shard_limit)
    try:
        from assay.storage.postgres import PostgresDatabase
        from assay_orchestrator.engine.queue import QueueDispatcher
    except ImportError as problem:
        raise SetupError(f"the queue cannot be used ({problem}): {install_hint('postgres')}") from problem
    assert isinstance(database, PostgresDatabase), "the URL is that of PostgreSQL"
    return QueueDispatcher(
        database.parameters,
        works=settings.role != "api",
        concurrency=settings.shard_limit,
        dead_after_s=settings.dead_after_s,
    )
