"""A run of tests ends when one of its processes dies, and leaves no process behind however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from tests.leftovers import guard_processes

def pytest_configure(config):
    config.guard = guard_processes()
"""
DYING = """
import os, signal
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
"""
STARTING = """
import os, pathlib, subprocess, sys, time
def test_starts():
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    pathlib.Path("started.part").write_text(f"{os.getpid()} {sleeper.pid}")
    pathlib.Path("started.part").rename("started")
    time.sleep(600)
"""


def pytest_run(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start pytest over the tests of a folder, with the options of this project."""
    (folder / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), *options]
    return subprocess.Popen(
        [*command, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_worker_that_dies_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    """The command does not wait for ever for the tests that the dead worker had."""
    (tmp_path / "test_dying.py").write_text(DYING)
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text("def test_passes(): pass\n")
    with pytest_run(tmp_path, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder") as run:
        said, _ = run.communicate(timeout=100)
    assert run.returncode not in (0, None), said
    assert "crashed while running 'test_dying.py::test_dies'" in said


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=lambda each: each.name)
def test_a_run_that_is_ended_leaves_no_process_behind(tmp_path: Path, ending: signal.Signals) -> None:
    """Neither its workers nor what these have started, in sessions of their own."""
    (tmp_path / "test_starting.py").write_text(STARTING)
    with pytest_run(tmp_path, "-n", "1") as run:
        wait_until((tmp_path / "started").exists, ended=lambda: None if run.poll() is None else "it ended")
        started = [psutil.Process(int(pid)) for pid in (tmp_path / "started").read_text().split()]
        run.send_signal(ending)
        run.wait(100)
    _, left = psutil.wait_procs(started, timeout=100)
    assert not left
