"""Stores audit entries; frequent entries are stored once a minute, with their count."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from assay.errors import StorageError
from assay_orchestrator.store.teams import audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.identity.audit import AuditEntry
    from assay.storage.database import Database

WINDOW_S = 60.0
MOST_KINDS = 100
"""Kinds of refusals of unknown callers that are counted separately per minute; all further kinds share a count."""

_Kind: TypeAlias = tuple[str, ...]

_log = logging.getLogger(__name__)


class AuditLog:
    """Stores entries; an `Auditor`.

    Args:
        database: The store.
        monotonic_s: A clock in seconds.
    """

    def __init__(self, database: Database, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic_s = monotonic_s
        self._since_s = 0.0
        self._counted: dict[_Kind, AuditEntry] = {}  # of the current minute; 0 if only the first has occurred
        self._ending: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def record(self, entry: AuditEntry) -> None:
        """Store an entry.

        Raises:
            StorageError: It cannot be stored.
        """
        await self._database.write(lambda c: audit.append(c, entry))

    async def count(self, entry: AuditEntry) -> None:
        """Store the first entry of a kind in a minute at once, and the number of the others when the minute is over.

        A process that is killed loses the counts of its last minute.

        Raises:
            StorageError: The first cannot be stored.
        """
        if self._counted and self._monotonic_s() - self._since_s >= WINDOW_S:
            await self.flush()
        kind = self._kind(entry)
        counted = self._counted.get(kind)
        if counted is not None:
            self._counted[kind] = replace(counted, count=counted.count + 1)
            return
        if not self._counted:
            self._begin_window()
        # Counted before the write: entries of this kind that arrive during it are only added up.
        self._counted[kind] = replace(entry, count=0)
        try:
            await self.record(entry)
        except StorageError:
            self._counted[kind] = replace(self._counted[kind], count=self._counted[kind].count + 1)
            raise

    async def flush(self) -> None:
        """Store the current counts, and start counting anew."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        counted, self._counted = self._counted, {}
        entries = [entry for entry in counted.values() if entry.count]
        if entries:
            await self._database.write(lambda c: [audit.append(c, entry) for entry in entries])

    async def aclose(self) -> None:
        """Store the current counts."""
        if self._flushing is not None:
            await self._flushing
        with contextlib.suppress(StorageError):  # the store logs the problem itself
            await self.flush()

    def _begin_window(self) -> None:
        self._since_s = self._monotonic_s()
        self._ending = asyncio.get_running_loop().call_later(WINDOW_S, self._end_window)

    def _end_window(self) -> None:
        self._ending = None
        self._flushing = asyncio.create_task(self._flush_logged(), name="audit counts")

    async def _flush_logged(self) -> None:
        try:
            await self.flush()
        except StorageError as problem:
            _log.warning("cannot store counts of the audit: %s", problem.message)

    def _kind(self, entry: AuditEntry) -> _Kind:
        if entry.actor:  # a token has as many kinds as actions and reasons, and as runs it may read
            return (entry.actor, entry.action, entry.outcome, entry.resource)
        kind = ("", entry.action, entry.outcome, entry.address)
        if kind in self._counted or len(self._counted) < MOST_KINDS:
            return kind
        return ("", entry.action, "", "")
