"""Agents that fork or change the current folder: answers arrive, files stay where named, and no process is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
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


AT_IMPORT = """
import os
os.chdir("ELSEWHERE")
def answer(question):
    return question.upper()
"""
IN_A_CALL = """
import os
def answer(question):
    os.chdir("ELSEWHERE")
    return question.upper()
"""
API = """
import os, assay
def answer(question):
    os.chdir("ELSEWHERE")
    return question.upper()
assay.evaluate("evals/assay.yaml", answer, output_dir="api", progress=False)
"""
NAMES = {
    "--output-dir": "out",
    "--junit": "ci/junit.xml",
    "--summary": "ci/summary.md",
    "--comment-file": "ci/comment.md",
    "--record": "answers.jsonl",
}


@pytest.fixture
def elsewhere(shared_project: Cli) -> Path:
    """Return a folder that agents change to; the spec lies in another one."""
    for name in ("evals", "elsewhere"):
        (shared_project.folder / name).mkdir()
    for name in ("assay.yaml", "qa.jsonl", "agent.py"):
        (shared_project.folder / name).rename(shared_project.folder / "evals" / name)
    return shared_project.folder / "elsewhere"


@pytest.mark.parametrize("agent", [AT_IMPORT, IN_A_CALL])
def test_files_of_a_run_lie_where_the_user_named_them(shared_project: Cli, elsewhere: Path, agent: str) -> None:
    """Reports, outputs for CI and recordings, of a spec that is named from the folder of the command."""
    folder = shared_project.folder
    first = shared_project.run("run", "evals/assay.yaml", "--output-dir", "base")
    assert "report: base/results.json" in first.stdout
    shared_project.write("evals/agent.py", agent.replace("ELSEWHERE", str(elsewhere)))
    options = [word for pair in NAMES.items() for word in pair]
    done = shared_project.run("run", "evals/assay.yaml", *options, "--against", "base/results.json")
    assert "report: out/results.json" in done.stdout
    assert "20 cases recorded in answers.jsonl" in done.stderr
    assert all((folder / name).exists() for name in NAMES.values())
    assert list(elsewhere.iterdir()) == []


def test_reports_of_resumed_runs_and_variants_lie_there_too(shared_project: Cli, elsewhere: Path) -> None:
    """`assay runs resume` and `assay compare` host agents as well."""
    failing = "def answer(question):\n    raise OSError('not now')\n"
    shared_project.write("evals/agent.py", failing)
    shared_project.run("run", "evals/assay.yaml", "--set", "agent.retries=0", status=1)
    (report,) = (shared_project.folder / "assay-reports").glob("*/results.json")
    run_id = json.loads(report.read_text("utf-8"))["run"]["run_id"]
    shared_project.write("evals/agent.py", AT_IMPORT.replace("ELSEWHERE", str(elsewhere)))
    resume = ("runs", "resume", run_id, "--retry-errors", "--spec", "evals/assay.yaml", "--output-dir", "again")
    assert "report: again/results.json" in shared_project.run(*resume).stdout
    shared_project.write("evals/other.py", "def answer(request):\n    return 'no'\n")
    variants = ("evals/assay.yaml", "--agents", "agent:answer", "other:answer", "--format", "json")
    compared = shared_project.run("compare", "--spec", *variants, "--output-dir", "both", status=1)
    assert "report: both/comparison_results.json" in compared.stdout
    assert (shared_project.folder / "again" / "results.json").exists()
    assert (shared_project.folder / "both" / "comparison_results.json").exists()
    assert list(elsewhere.iterdir()) == []


def test_reports_of_the_python_api_lie_there_too(shared_project: Cli, elsewhere: Path) -> None:
    """`output_dir` starts from the folder in which `assay.evaluate` is called."""
    program = API.replace("ELSEWHERE", str(elsewhere))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=shared_project.folder, env=shared_project.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (shared_project.folder / "api" / "results.json").exists()
    assert list(elsewhere.iterdir()) == []
