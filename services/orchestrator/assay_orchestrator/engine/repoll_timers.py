"""When to look again for verdicts that come hours after they were ordered: a timer a run."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Looks"]

_USUAL_S = 30.0

_log = logging.getLogger(__name__)


class Looks:
    """Looks again at runs, each at most once at a time.

    Timers are in memory alone: a run that has shards to look at is found again by whoever takes it up.

    Args:
        look: Lets a run go on.
    """

    def __init__(self, look: Callable[[str], Awaitable[None]]) -> None:
        self._look = look
        self._after_s: dict[str, float] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}

    def note(self, run_id: str, after_s: float) -> None:
        """Note in how many seconds some of a run's verdicts may be there."""
        self._after_s[run_id] = min(after_s, self._after_s.get(run_id, after_s))

    def later(self, run_id: str) -> None:
        """Look at a run when its first verdicts may be there, unless that is to be done already."""
        if run_id not in self._timers:
            after_s = self._after_s.pop(run_id, _USUAL_S)
            self._timers[run_id] = asyncio.create_task(self._wait(run_id, after_s), name=f"look at {run_id}")

    async def aclose(self) -> None:
        """Look at nothing any more."""
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
            await self._look(run_id)
        except AssayError as problem:
            _log.warning("cannot poll the verdicts of a run, retrying: run=%s: %s", run_id, problem.message)
            self.later(run_id)
