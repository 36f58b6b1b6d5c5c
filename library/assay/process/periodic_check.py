"""Work that a process repeats until it stops, whatever a single repetition raises."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Self

from assay.errors import AssayError

_log = logging.getLogger(__name__)


class PeriodicCheck(ABC):
    """Repeats its check; `start` it and `aclose` it, or use it as a context.

    Args:
        what: The check's purpose, for the log, e.g. "check quotas of teams".
        every_s: Time between two checks, in seconds.
        at_once: Whether to check at the start too, not only after that time.
    """

    def __init__(self, what: str, every_s: float, *, at_once: bool = False) -> None:
        self._what = what
        self._every_s = every_s
        self._first_s = 0.0 if at_once else every_s
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.aclose()

    def start(self) -> None:
        """Start checking."""
        self._loop = asyncio.create_task(self._repeat(), name=self._what)

    async def aclose(self) -> None:
        """Stop checking."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    @abstractmethod
    async def check(self) -> None:
        """Check once."""

    async def _repeat(self) -> None:
        await asyncio.sleep(self._first_s)
        while True:
            try:
                await self.check()
            except AssayError as problem:
                _log.warning("cannot %s, retrying: %s", self._what, problem.message)
            except Exception:  # noqa: BLE001 - the boundary of a task: the loop must not end
                _log.exception("defect, retrying: %s", self._what)
            await asyncio.sleep(self._every_s)
