"""What is not a kill: processes that stand still, orders to stop, databases, networks and disks that fail, clocks."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.chaos.black_holes import Proxy
from tests.chaos.drills import Plan, drilling
from tests.chaos.topologies import OneOrchestrator

from assay.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.chaos.drills import Drill
    from tests.chaos.histories import History, Verdict

pytestmark = pytest.mark.chaos

PLAN = Plan()
SLOW = Plan(case_count=100, repeats=2)


def assert_as_if_nothing_had_happened(verdict: Verdict, undisturbed: dict[str, Any]) -> None:
    """Fail unless every promise was kept."""
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed


@pytest.mark.parametrize("name", ["result.before_commit", "agent.before_call", "watch.page_read"])
async def test_a_process_that_stands_still(
    folder: Path, database_url: str, undisturbed: Callable[[Plan], dict[str, Any]], name: str
) -> None:
    """SIGSTOP in the midst of a commit or a call, SIGCONT six seconds later: the run goes on where it was."""
    async with drilling(PLAN, folder, OneOrchestrator, database_url) as drill:
        drill.topology.slots["orchestrator"].armed.append(f"{name}=stop@3")
        drill.topology.start()

        async def run() -> None:
            await drill.watch_to_the_end(await drill.submit())

        running = asyncio.ensure_future(run())  # it may stand still before it has answered the submission
        await drill.topology.until_stopped("orchestrator")
        await asyncio.sleep(6)  # it is the disturbance, nothing is waited for
        drill.topology.send("orchestrator", signal.SIGCONT)
        await running
        (verdict,) = await drill.conclude()
    assert verdict.repeated == 0
    assert_as_if_nothing_had_happened(verdict, undisturbed(PLAN))


async def test_a_stop_in_good_order_repeats_no_question(
    folder: Path, database_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """SIGTERM three times in a run: questions in flight are answered first, so not one is asked again."""
    async with drilling(SLOW, folder, OneOrchestrator, database_url) as drill:
        drill.agent.delay_s = 0.02
        drill.topology.start()
        watching = asyncio.ensure_future(drill.watch_to_the_end(await drill.submit()))
        for stop in range(1, 4):
            await drill.agent.until_asked(40 * stop)
            drill.topology.send("orchestrator", signal.SIGTERM)
            await drill.topology.until_ended("orchestrator", stop)
        await watching
        assert drill.topology.slots["orchestrator"].statuses == [0, 0, 0]
        (verdict,) = await drill.conclude()
    assert verdict.repeated == 0
    assert_as_if_nothing_had_happened(verdict, undisturbed(SLOW))


async def test_the_database_is_killed_again_and_again(
    folder: Path, killable_postgres: Any, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """PostgreSQL is killed three times and comes back: the run waits for it; then orchestrator and it die together."""
    async with drilling(SLOW, folder, OneOrchestrator, killable_postgres.url) as drill:
        drill.agent.delay_s = 0.01
        drill.topology.start()
        watching = asyncio.ensure_future(drill.watch_to_the_end(await drill.submit()))
        for outage in range(4):
            await drill.agent.until_asked(30 * (outage + 1))
            drill.topology.disturbed("database")
            killable_postgres.kill()
            if outage == 3:
                drill.topology.send("orchestrator", signal.SIGKILL)
            await asyncio.to_thread(killable_postgres.start)
        await watching
        (verdict,) = await drill.conclude()
    assert_as_if_nothing_had_happened(verdict, undisturbed(SLOW))


async def test_the_network_to_the_database_swallows_everything(
    folder: Path, killable_postgres: Any, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """Neither an answer nor an end for three seconds; then the connections are gone: nothing is stored twice."""
    async with Proxy(killable_postgres.port) as proxy:
        url = killable_postgres.url.replace(f":{killable_postgres.port}/", f":{proxy.port}/")
        async with drilling(SLOW, folder, OneOrchestrator, url) as drill:
            drill.topology.database_url = killable_postgres.url  # for our own looks at it: the proxy is in this thread
            drill.agent.delay_s = 0.01
            drill.topology.start()
            watching = asyncio.ensure_future(drill.watch_to_the_end(await drill.submit()))
            for hole in range(2):
                await drill.agent.until_asked(50 * (hole + 1))
                drill.topology.disturbed("network")
                proxy.swallow()
                await asyncio.sleep(3)  # it is the disturbance, nothing is waited for
                if hole:
                    await proxy.drop()
                proxy.pass_on()
            await watching
            (verdict,) = await drill.conclude()
    assert_as_if_nothing_had_happened(verdict, undisturbed(SLOW))


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
        return port


async def test_the_network_to_a_watcher_swallows_everything(
    folder: Path, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """The watcher takes the run up again after the last event that it saw: none comes twice, none is missing."""
    port = free_port()
    async with Proxy(port) as proxy, drilling(SLOW, folder, OneOrchestrator) as drill:
        slot = drill.topology.slots["orchestrator"]
        slot.arguments = [part.replace(drill.topology.address, f"127.0.0.1:{port}") for part in slot.arguments]
        drill.topology.address = f"127.0.0.1:{proxy.port}"
        drill.agent.delay_s = 0.02
        drill.topology.start()
        watching = asyncio.ensure_future(drill.watch_to_the_end(await drill.submit()))
        for hole in range(2):
            await drill.agent.until_asked(50 * (hole + 1))
            proxy.swallow()
            await asyncio.sleep(1)  # it is the disturbance, nothing is waited for
            await proxy.drop()
            proxy.pass_on()
        await watching
        (verdict,) = await drill.conclude()
    assert verdict.repeated == 0
    assert_as_if_nothing_had_happened(verdict, undisturbed(SLOW))


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Mount a small disk at a folder; yield whether that was allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


async def test_the_disk_is_full(folder: Path, undisturbed: Callable[[Plan], dict[str, Any]]) -> None:
    """The run pauses and says that the disk is full; with room again it is resumed and nothing was lost."""
    with small_disk(folder / "data", 16) as mounted:
        async with drilling(SLOW, folder, OneOrchestrator) as drill:
            drill.agent.delay_s = 0.01
            drill.topology.start()
            history = await drill.submit()
            await drill.agent.until_asked(40)
            lift = _fill(folder / "data") if mounted else _limit(drill, folder / "data" / "assay.db-wal")
            drill.topology.disturbed("disk")
            paused = await _until_paused(drill, history)
            assert "full or broken" in paused
            lift()
            drill.topology.disturbed("disk")
            await drill.watch_to_the_end(history)
            (verdict,) = await drill.conclude()
    assert_as_if_nothing_had_happened(verdict, undisturbed(SLOW))


def _fill(folder: Path) -> Callable[[], None]:
    """Take all the room that is left; return what gives it back."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 1024)
        except OSError:
            pass
    return ballast.unlink


def _limit(drill: Drill, file: Path) -> Callable[[], None]:
    """Let no file of the orchestrator grow beyond the size that this one has; return what lets them again."""
    started = drill.topology.slots["orchestrator"].process
    assert started is not None
    process = psutil.Process(started.pid)
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    process.rlimit(psutil.RLIMIT_FSIZE, (file.stat().st_size, resource.RLIM_INFINITY))
    return lambda: process.rlimit(psutil.RLIMIT_FSIZE, unlimited) and None


async def _until_paused(drill: Drill, history: History) -> str:
    """Watch until the run stands still, or until watchers are told that not even that could be stored."""
    async with drill.client() as client:
        try:
            await history.watch(client)
        except UnavailableError as problem:
            return problem.message
        return (await client.get_run(history.run_id, partial=False)).state_message


@pytest.mark.parametrize("jump", ["3600", "-3600"])
async def test_the_clock_jumps(
    folder: Path, database_url: str, undisturbed: Callable[[Plan], dict[str, Any]], jump: str
) -> None:
    """An hour ahead or back in the midst of a run, and a kill after that: times are shown, never decided by."""
    async with drilling(PLAN, folder, OneOrchestrator, database_url) as drill:
        armed = f"store.clock=jump:{jump}@6;result.after_commit=kill@3"
        drill.topology.slots["orchestrator"].armed += [armed, "store.clock=jump:-60"]
        drill.topology.start()
        await drill.watch_to_the_end(history := await drill.submit())
        history.clock_jumps = True
        (verdict,) = await drill.conclude()
        assert {("store.clock", "jump"), ("result.after_commit", "kill")} <= set(drill.topology.passed())
    assert_as_if_nothing_had_happened(verdict, undisturbed(PLAN))
