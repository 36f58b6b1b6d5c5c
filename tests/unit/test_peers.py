"""How a process stops to follow others."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

from assay_orchestrator.runs.peers import Peers


class _Stage:
    """All that is followed: nothing. A wait within it loses the first cancellation, as one for a connection may."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()

    async def read(self, _: object) -> list[object]:
        return []

    async def find_lost(self, _: object) -> list[object]:
        self.waits.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return []

    def local_runs(self) -> set[str]:
        return set()

    def watcher_count(self) -> int:
        return 0


async def test_a_stop_ends_though_a_cancellation_is_lost() -> None:
    """The loop that goes on regardless is told again."""
    stage = cast("Any", _Stage())
    peers = Peers(stage, stage, stage, stage, reconcile_s=1e6)
    peers.start()
    await stage.waits.wait()
    await peers.aclose()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(("follow", "look"))]
