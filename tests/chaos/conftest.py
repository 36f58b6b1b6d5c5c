"""Folders, databases and the summary of a run that nothing disturbs."""

from __future__ import annotations

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.chaos.drills import Plan, drilling
from tests.chaos.topologies import OneOrchestrator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return an empty folder with a short name: paths of sockets have at most 107 bytes."""
    made = Path(mkdtemp(prefix="assay-chaos-"))
    yield made
    # A test that runs into its time limit does not come to end what it has started.
    left = [
        process for process in psutil.process_iter(["cmdline"]) if f"{made}/" in " ".join(process.info["cmdline"] or [])
    ]
    for process in left:
        process.kill()
    psutil.wait_procs(left)
    shutil.rmtree(made)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database, empty for a file."""
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""


@pytest.fixture(scope="session")
def undisturbed() -> Callable[[Plan], dict[str, Any]]:
    """Return a function that gives the summary of a run in which nothing happens, without times."""
    known: dict[Plan, dict[str, Any]] = {}

    async def run(plan: Plan) -> dict[str, Any]:
        made = Path(mkdtemp(prefix="assay-chaos-"))
        try:
            async with drilling(plan, made, OneOrchestrator) as drill:
                drill.topology.start()
                await drill.watch_to_the_end(await drill.submit())
                (verdict,) = await drill.conclude()
        finally:
            shutil.rmtree(made)
        assert not verdict.problems, verdict.problems
        assert verdict.repeated == 0
        return verdict.summary

    def summary(plan: Plan) -> dict[str, Any]:
        if plan not in known:
            # In a thread of its own: this one has a loop that runs.
            with ThreadPoolExecutor(1) as thread:
                known[plan] = thread.submit(lambda: asyncio.run(run(plan))).result()
        return known[plan]

    return summary
