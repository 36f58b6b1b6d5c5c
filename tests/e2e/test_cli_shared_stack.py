"""Several commands on one local stack, as subprocesses: they start it once, and its end is everybody's matter."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

from assay.local_stack.home import Home

if TYPE_CHECKING:
    import subprocess

    from tests.e2e.conftest import Cli

AGENT = """
import pathlib, time
def answer(request):
    pathlib.Path("asked").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return request.input.upper()
"""


def start_and_wait(project: Cli) -> subprocess.Popen[str]:
    """Start a run whose agent holds its answers back until there is a file `go`."""
    project.write("agent.py", AGENT)
    process = project.start("run", "assay.yaml")
    project.wait_until((project.folder / "asked").exists, process)
    return process


def test_commands_that_begin_together_start_one_stack(project: Cli) -> None:
    """Four runs at once in a fresh state directory: one orchestrator is started, and all four runs succeed."""
    processes = [project.start("run", "assay.yaml") for _ in range(4)]
    ended = [(process.communicate(timeout=100), process.returncode) for process in processes]
    assert [status for _, status in ended] == [0, 0, 0, 0], ended


def test_a_stack_that_is_stopped_stays_stopped(project: Cli) -> None:
    """`assay down` in the middle of a run: the run's command ends with a sentence and does not start services anew."""
    process = start_and_wait(project)
    assert "orchestrator" in project.run("down").stdout
    _, err = process.communicate(timeout=180)
    assert process.returncode == 3
    assert "was stopped, as `assay down` does" in err
    assert "--resume" in err
    assert not project.services()


def test_a_warm_orchestrator_that_is_killed_is_started_again(project: Cli) -> None:
    """kill -9 of an orchestrator that `assay up` started: a run that uses it starts another and finishes."""
    project.run("up", "--no-embedder")
    process = start_and_wait(project)
    (orchestrator,) = project.services()
    orchestrator.kill()
    psutil.wait_procs([orchestrator], timeout=60)
    (project.folder / "go").touch()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, f"{out}\n{err}"


def test_a_stack_that_would_end_with_a_run_is_not_taken_for_one_that_stays(project: Cli) -> None:
    """`assay up` while a run has started services of its own: it says so, and works once the run is done."""
    process = start_and_wait(project)
    assert "is in use by an active run" in project.run("up", "--no-embedder", status=3).stderr
    (project.folder / "go").touch()
    process.communicate(timeout=180)
    assert process.returncode == 0
    project.run("up", "--no-embedder")
    project.run("up", "--no-embedder")
    project.run("down")


def test_no_file_of_the_stack_is_open_to_others(project: Cli) -> None:
    """Sockets, logs, process ids, locks and the database are for their owner alone, under a umask of 0 too."""
    before = os.umask(0)
    try:
        project.run("run", "assay.yaml", "--no-progress")
        project.run("up", "--no-embedder")
    finally:
        os.umask(before)
    try:
        home = Home.find(project.home)
        files = [path for folder in (home.path, home.sockets) for path in folder.rglob("*")]
        assert {"orchestrator.sock", "orchestrator.pid", "orchestrator.log", "assay.db"} <= {
            path.name for path in files
        }
        assert not [str(path) for path in files if path.stat().st_mode & 0o077]
    finally:
        project.run("down")
