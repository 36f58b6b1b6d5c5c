"""Agents that fork, through `assay run`: they answer, and nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.support.processes.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

POOL = """
import multiprocessing
def upper(text):
    return text.upper()
def answer(question):
    with multiprocessing.Pool(2) as pool:
        return pool.map(upper, [question])[0]
"""
BARE_FORK = """
import os
{kind} answer(question):
    os.fork()
    return question.upper()
"""
KEPT_POOL = """
import multiprocessing, pathlib, time
def hold(file):
    pathlib.Path(file).touch()
    time.sleep(600)
def answer(question):
    # Workers with a task: idle ones end by themselves when their pool's process is gone.
    multiprocessing.Pool(1).map(hold, ["forked.txt"])
"""


def processes_of(cli: Cli) -> list[psutil.Process]:
    """Return the processes that run in the command's folder: forked ones have its command line."""
    return [
        process
        for process in psutil.process_iter(["cwd", "status"])
        if process.info["cwd"] == str(cli.folder) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


@pytest.mark.parametrize("concurrency", [1, 16])
def test_an_agent_with_a_pool_of_processes_answers(shared_project: Cli, concurrency: int) -> None:
    """Workers that a pool terminates end, and do not interrupt the command."""
    shared_project.write("agent.py", POOL)
    done = shared_project.run("run", "assay.yaml", "--set", f"agent.concurrency={concurrency}")
    assert "interrupted" not in done.stderr
    assert processes_of(shared_project) == []


def test_a_pool_works_in_evaluate(shared_project: Cli) -> None:
    """The same agent answers when it is called from Python."""
    shared_project.write("agent.py", POOL)
    lines = ["import assay", "from agent import answer", "done = assay.evaluate('assay.yaml', answer)"]
    shared_project.write("script.py", "\n".join([*lines, "print(done.summary.pass_rate)", ""]))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=shared_project.folder,
        env=shared_project.env,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.stdout == "1.0\n", done.stderr
    assert processes_of(shared_project) == []


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_forked_process_that_returns_ends(shared_project: Cli, kind: str) -> None:
    """Only the parent's answer counts; the child neither answers nor lives on."""
    shared_project.write("agent.py", BARE_FORK.format(kind=kind))
    shared_project.run("run", "assay.yaml")
    wait_until(lambda: not processes_of(shared_project))


def test_forked_processes_do_not_keep_the_stack(project: Cli) -> None:
    """Workers that outlive a killed command hold no share in the local stack: its services end."""
    project.write("agent.py", KEPT_POOL)
    process = project.start("run", "assay.yaml", "--set", "agent.concurrency=2")
    project.wait_until((project.folder / "forked.txt").exists, process)
    services = project.services()
    assert services
    process.kill()
    process.wait()
    try:
        _, alive = psutil.wait_procs(services, timeout=60)
        assert not alive
        left = processes_of(project)
        assert left, "the workers are what would have kept the services"
        assert "not running" in project.run("down").stdout
        for worker in left:
            worker.send_signal(signal.SIGTERM)
        wait_until(lambda: not processes_of(project))
    finally:
        for worker in processes_of(project):
            worker.kill()
        process.communicate()
