"""A check that a process repeats until it stops, whatever a single check raises."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)


class PeriodicCheck:
    """Repeats a check.

    Args:
        what: The name of the check in the log.
        check: Runs the check once.
        every_s: Time before each check, in seconds.
    """

    def __init__(self, what: str, check: Callable[[], Awaitable[None]], every_s: float) -> None:
        self._what = what
        self._check = check
        self._every_s = every_s
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start checking."""
        self._loop = asyncio.create_task(self._repeat(), name=f"check {self._what}")

    async def aclose(self) -> None:
        """Stop checking."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self._check()
            except AssayError as problem:
                _log.warning("cannot check %s, retrying: %s", self._what, problem.message)
            except Exception:  # noqa: BLE001 - the boundary of a task: the loop must not end
                _log.exception("check of %s failed", self._what)
