"""Services that wait idle after their last user."""

from __future__ import annotations

import asyncio
import fcntl
from typing import TYPE_CHECKING

import pytest

from assay.errors import SetupError
from assay.local_stack import lease as leases
from assay.local_stack.lease import Lease, is_leased, is_locked, watch_lease
from assay.local_stack.unused_stacks import idle_seconds, keeps_stacks

if TYPE_CHECKING:
    from pathlib import Path


async def test_an_idle_service_is_taken_up_by_the_next_user(tmp_path: Path) -> None:
    """While it waits it holds no lock, so that the next user need not wait; its end comes after that user's."""
    path, released = tmp_path / "lease", asyncio.Event()
    first, second = Lease(path), Lease(path)
    first.take()
    watch_lease(path, asyncio.get_running_loop(), released.set, idle_s=0.2)
    first.close()
    await asyncio.to_thread(second.take)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(released.wait(), 0.5)  # longer than it waits idle
    assert is_leased(path)
    second.close()
    await asyncio.wait_for(released.wait(), 30)
    assert not is_leased(path), "a service that stops has the lock alone"
    assert is_locked(path, fcntl.LOCK_SH)


@pytest.mark.parametrize(("may_idle", "meminfo"), [(False, None), (True, True)], ids=["busy", "short of memory"])
async def test_it_stops_at_once(
    may_idle: bool, meminfo: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an active run, and where others need the memory."""
    released = asyncio.Event()
    if meminfo:
        monkeypatch.setattr(leases, "_is_memory_short", lambda: True)
    watch_lease(tmp_path / "lease", asyncio.get_running_loop(), released.set, idle_s=3_600.0, may_idle=lambda: may_idle)
    await asyncio.wait_for(released.wait(), 30)


def test_memory_is_short_below_a_tenth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unknown amounts count as enough."""
    shown = tmp_path / "meminfo"
    monkeypatch.setattr(leases, "_MEMORY", shown)
    assert not leases._is_memory_short()
    for available, is_short in ((99, True), (101, False)):
        shown.write_text(f"MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n")
        assert leases._is_memory_short() is is_short


@pytest.mark.parametrize(
    ("environment", "terminal", "seconds"),
    [
        ({}, True, 60.0),
        ({}, False, 0.0),
        ({"CI": "true"}, True, 0.0),
        ({"CI": "true", "ASSAY_IDLE_S": "5"}, False, 5.0),
        ({"ASSAY_IDLE_S": "0"}, True, 0.0),
    ],
)
def test_the_idle_time(
    environment: dict[str, str], terminal: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute where a person works; ASSAY_IDLE_S decides everywhere."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert idle_seconds(environment) == seconds
    assert keeps_stacks(environment) is (environment.get("ASSAY_IDLE_S") != "0")


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "86401"])
def test_another_idle_time_is_refused(text: str) -> None:
    """It names the variable."""
    with pytest.raises(SetupError, match=f"ASSAY_IDLE_S must be .* not '{text}'"):
        idle_seconds({"ASSAY_IDLE_S": text})
