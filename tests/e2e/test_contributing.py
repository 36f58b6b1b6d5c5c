"""CONTRIBUTING.md as a developer follows it: a run that waits for its agent, and what the commands print."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.docs.guides import blocks

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

AGENT = """
import pathlib, time
def answer(request):
    while request.case_id == "c3" and not pathlib.Path("go").exists():
        time.sleep(0.01)
    return request.input.upper()
"""
SPEC = """
name: triage
dataset: qa.jsonl
agent: {adapter: python, target: "agent:answer"}
metrics: [exact_match]
"""
VARYING = [
    (r"triage-\d{8}-\d{6}-[0-9a-f]{6}", "RUN"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"unix:\S*/run/", "unix:FOLDER/run/"),
]


def alike(text: str) -> list[str]:
    """Return the lines of a text without what differs from run to run."""
    for pattern, put in VARYING:
        text = re.sub(pattern, put, text)
    return text.splitlines()


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the guide looks into the database with sqlite3")
def test_a_stuck_run_is_found_as_the_guide_says(cli: Cli) -> None:
    """Each command of the console blocks prints what is below it, for a run of which one question has no answer."""
    cli.write("agent.py", AGENT)
    cli.write("assay.yaml", SPEC)
    lines = [json.dumps({"id": f"c{i}", "question": f"q{i}", "answer": f"Q{i}"}) for i in range(5)]
    cli.write("qa.jsonl", "\n".join(lines))
    (cli.folder / ".assay").symlink_to(cli.home)
    running = cli.start("run", "assay.yaml", "--no-progress")
    try:
        cli.wait_until(cli.services, running)  # the run's own: a list that came first would start another
        cli.wait_until(lambda: " 4/5 " in cli.run("runs", "list", status=None).stdout, running)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = cli.env | {"HOME": str(cli.folder), "PATH": path}
        shown = "".join(block.text for block in blocks("CONTRIBUTING.md", "console"))
        commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)+)", shown, re.MULTILINE)
        assert len(commands) == 4
        for command, expected in commands:
            done = subprocess.run(
                ["bash", "-c", command], cwd=cli.folder, env=env, capture_output=True, text=True, timeout=110
            )
            assert alike(done.stdout) == alike(expected), command
    finally:
        (cli.folder / "go").touch()
        running.communicate(timeout=110)
    assert running.returncode == 0


def test_every_path_that_the_guide_names_is_there() -> None:
    """Files and folders in backticks exist in the checkout."""
    text = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([\w.]+/[\w./]*)`", text)
    assert len(paths) > 40
    assert [path for path in paths if not (Path(__file__).resolve().parents[2] / path).exists()] == []
