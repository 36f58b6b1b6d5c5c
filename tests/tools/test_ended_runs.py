"""A run of tests ends when one of its processes dies, and leaves no process behind however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.support.processes.child_process import child_process
from tests.support.processes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.tools
ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from tests.e2e.conftest import command_server, shared_cli, shared_home
from tests.support.processes.leftovers import guard_processes

def pytest_configure(config):
    config.guard = guard_processes()
"""
# A shell without job control starts what runs in its background with SIGINT ignored.
PYTEST = """
import signal, sys
import pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main())
"""
DYING = """
import os, signal
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
"""
STARTING = """
import os, pathlib, time
import psutil
def test_starts(shared_cli):
    processes = [psutil.Process(), *psutil.Process().children(recursive=True), *shared_cli.services()]
    file = pathlib.Path(f"started-{os.environ['PYTEST_XDIST_WORKER']}.part")
    file.write_text(" ".join(str(process.pid) for process in processes))
    file.rename(file.with_suffix(""))
    time.sleep(600)
"""


@contextmanager
def pytest_run(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run pytest over the tests of a folder, with the options of this project; kill it at the end of the block."""
    (folder / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-c", PYTEST, "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), *options]
    with child_process(
        [*command, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        yield run


def test_a_worker_that_dies_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    """The command does not wait for ever for the tests that the dead worker had."""
    (tmp_path / "test_dying.py").write_text(DYING)
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text("def test_passes(): pass\n")
    with pytest_run(tmp_path, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder") as run:
        said, _ = run.communicate(timeout=100)
    assert run.returncode not in (0, None), said
    assert "crashed while running 'test_dying.py::test_dies'" in said


def ctrl_c(run: subprocess.Popen[str]) -> None:
    """Interrupt the run and its workers, as a terminal does."""
    os.killpg(run.pid, signal.SIGINT)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(ctrl_c, id="Ctrl-C"),
        pytest.param(lambda run: run.send_signal(signal.SIGINT), id="SIGINT"),
        pytest.param(lambda run: run.send_signal(signal.SIGTERM), id="SIGTERM"),
        pytest.param(lambda run: run.send_signal(signal.SIGKILL), id="SIGKILL"),
    ],
)
def test_a_run_that_is_ended_leaves_no_process_behind(
    tmp_path: Path, end: Callable[[subprocess.Popen[str]], None]
) -> None:
    """Neither workers nor the stacks that their tests share, whose services have sessions of their own."""
    for number in range(2):
        (tmp_path / f"test_{number}.py").write_text(STARTING)
    files = [tmp_path / f"started-gw{number}" for number in range(2)]
    with pytest_run(tmp_path, "-n", "2", "--dist", "loadfile") as run:
        wait_until(
            lambda: all(file.exists() for file in files),
            ended=lambda: None if run.poll() is None else f"it ended: {run.communicate()[0]}",
        )
        pids = {int(pid) for file in files for pid in file.read_text().split()}
        started = [process for process in psutil.process_iter() if process.pid in pids]  # commands may have ended
        assert len(started) >= 2 * (1 + 2), "each worker with its guard and services"
        end(run)
        run.wait(100)
    _, left = psutil.wait_procs(started, timeout=100)
    assert not left
