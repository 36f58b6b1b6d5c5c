"""Agents that change the current folder: what the command reads and writes lies where the user named it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

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
