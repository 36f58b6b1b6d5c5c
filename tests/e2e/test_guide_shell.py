"""The shell blocks of README and guides run as printed, except those that `tests/support/docs/guides.py` excuses."""

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
from tests.e2e.conftest import Cli, stack_up
from tests.support.docs.guides import Block, blocks, reason_not_to_run

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = """
name: guide
dataset: qa.jsonl
agent: {adapter: python, target: "agent:answer"}
metrics: [exact_match, latency]
gates: ["latency.p95 < 60"]
"""
AGENT = "def answer(question):\n    return question.upper()\n"
CASES = [
    {"id": name, "question": "q", "answer": "Q" if name != "inv-18" else "other", "tags": tags, "category": category}
    for name, tags, category in (
        ("inv-17", [], "billing"),
        ("inv-18", ["hard"], "billing"),
        ("refund-1", [], "refunds"),
        ("refund-2", ["hard"], "refunds"),
        ("refund-3", ["easy"], "refunds"),
    )
]


def runnable(block: Block) -> list[str]:
    """Return the commands of a block that can be run."""
    found = [line for line in block.commands() if reason_not_to_run(block.page, line) is None]
    return found if shutil.which("sqlite3") else [line for line in found if not line.startswith("sqlite3 ")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Return the command in a folder like a reader's, with a run in the local stack that `assay up` started."""
    (answers,) = blocks("docs/scoring.md", "json")
    cli = Cli(tmp_path_factory.mktemp("guide"))
    cli.write("answers.jsonl", answers.text)
    cli.write("assay.yaml", SPEC)
    cli.write("agent.py", AGENT)
    cli.write("qa.jsonl", "\n".join(map(json.dumps, CASES)))
    (cli.folder / ".assay").symlink_to(cli.home)
    with stack_up(cli, "--no-embedder"):
        done = cli.run("run", "assay.yaml", "--no-progress", "--json")
        cli.env["GUIDE_RUN"] = json.loads(done.stdout)["run"]["run_id"]
        yield cli


@pytest.mark.parametrize("block", [block for block in blocks(language="bash") if runnable(block)], ids=str)
def test_a_block_runs(block: Block, served: Cli) -> None:
    """Every command ends with the exit status 0; RUN and CASE stand for a run and a case that are there."""
    script = "\n".join(runnable(block)).replace("127.0.0.1:7070", f"unix:{served.home}/run/orchestrator.sock")
    # Not the latest one: other blocks make runs over other cases.
    script = re.sub(r"\bRUN\b", served.env["GUIDE_RUN"], re.sub(r"\bCASE\b", "inv-17", script))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=served.folder,
        env=served.env | {"HOME": str(served.folder), "PATH": path},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=200,
    )
    if "assay down" in script:
        served.run("up", "--no-embedder")  # for the blocks that come after this one, in whatever order
    assert done.returncode == 0, done.stdout + done.stderr


def test_many_commands_run() -> None:
    """The search finds blocks, and the excuses do not swallow them."""
    assert sum(len(runnable(block)) for block in blocks(language="bash")) > 25
