"""The probe that containers are watched with."""

from __future__ import annotations

import asyncio
import sys
from typing import Any


async def probed(*arguments: str) -> tuple[int | None, str]:
    """Return exit status and words of the probe, called as a container calls it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "assay.rpc.probe", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, words = await process.communicate()
    return process.returncode, words.decode()


async def test_the_probe_says_whether_a_process_takes_work(wire: Any) -> None:
    """0 for a process that serves, 1 with a sentence for a service that it has not, 2 for a wrong command line."""
    address = await wire.serve({})
    assert await probed(address) == (0, "")
    assert await probed(address, "assay.test.Service") == (0, "")
    status, words = await probed(address, "assay.v1.Other")
    assert (status, "does not serve assay.v1.Other" in words) == (1, True)
    status, words = await probed()
    assert (status, words.startswith("usage")) == (2, True)


async def test_the_probe_gives_up_on_whoever_does_not_answer() -> None:
    """It ends before the time that a health check has."""
    status, words = await probed("127.0.0.1:1")
    assert (status, "was not ready after 4 s" in words) == (1, True)
