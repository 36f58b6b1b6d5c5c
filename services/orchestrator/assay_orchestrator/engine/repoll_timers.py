"""Timers that poll ordered verdicts again, one per run; ordered verdicts may take hours."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_USUAL_S = 30.0

_log = logging.getLogger(__name__)


class RepollTimers:
    """Polls the runs that await ordered verdicts, with at most one timer per run.

    Timers exist in memory only: if the process ends, the search for orphaned shards schedules the run again.

    Args:
        repoll: Requeues the shards of a run that await ordered verdicts.
    """

    def __init__(self, repoll: Callable[[str], Awaitable[None]]) -> None:
        self._repoll = repoll
        self._after_s: dict[str, float] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}

    def note_delay(self, run_id: str, after_s: float) -> None:
        """Record in how many seconds some of a run's verdicts may be ready."""
        self._after_s[run_id] = min(after_s, self._after_s.get(run_id, after_s))

    def schedule(self, run_id: str) -> None:
        """Poll a run when its first verdicts may be ready, unless a timer is already set."""
        if run_id not in self._timers:
            after_s = self._after_s.pop(run_id, _USUAL_S)
            self._timers[run_id] = asyncio.create_task(self._wait(run_id, after_s), name=f"repoll verdicts of {run_id}")

    async def aclose(self) -> None:
        """Cancel all timers."""
        timers = list(self._timers.values())
        for timer in timers:
            timer.cancel()
        await asyncio.gather(*timers, return_exceptions=True)

    async def _wait(self, run_id: str, after_s: float) -> None:
        try:
            await asyncio.sleep(after_s)
        finally:
            del self._timers[run_id]
        try:
            await self._repoll(run_id)
        except AssayError as problem:
            _log.warning("cannot poll the verdicts of a run, retrying: run=%s: %s", run_id, problem.message)
            self.schedule(run_id)
