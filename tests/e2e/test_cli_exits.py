"""How the command ends when something goes wrong around it: its exit status and what it says."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.conftest import Cli

# Python imports this module by itself at its start, before the command.
INTERRUPTED_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""
CRASH = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "assay.datasets":
            raise RuntimeError("no such luck")
sys.meta_path.insert(0, Finder())
"""
DEAD_AGENT = """
import os
def answer(request):
    if request.case_id == "c7":
        os._exit(0)
    return request.input.upper()
"""

EXITING_AGENT = """
import asyncio, sys
async def answer(question):
    asyncio.get_running_loop().call_soon(HOW)
    await asyncio.Event().wait()
"""
DEAF_AGENT = """
import asyncio
async def answer(question):
    while True:
        try:
            await asyncio.sleep(60)
        except BaseException:
            pass
"""


def run_into(cli: Cli, arguments: Sequence[str], stdout: int, stderr: int) -> int:
    """Run the command with output streams of the test's; return its exit status."""
    assert cli.server is not None
    with Path(os.devnull).open("rb") as nothing:
        process = cli.server.start(
            arguments, folder=cli.folder, environment=cli.env, streams=(nothing.fileno(), stdout, stderr)
        )
    return process.wait(110)


def at_start(cli: Cli, code: str) -> None:
    """Run code in every process of the command before anything else."""
    (cli.folder / "start").mkdir()
    cli.write("start/sitecustomize.py", code)
    cli.env["PYTHONPATH"] = str(cli.folder / "start")


@pytest.mark.parametrize("module", ["click", "assay_cli.failures", "assay_cli.commands.run", "assay.datasets"])
def test_ctrl_c_while_the_command_is_imported(project: Cli, module: str) -> None:
    """An interruption before anything is started is one word and the status 130."""
    at_start(project, INTERRUPTED_IMPORT.replace("MODULE", repr(module)))
    done = project.run("run", "assay.yaml", status=130)
    assert done.stderr.strip() == "interrupted"


def test_a_crash_is_no_failed_gate(project: Cli) -> None:
    """A defect shows its traceback and exits with 3."""
    at_start(project, CRASH)
    done = project.run("run", "assay.yaml", status=3)
    assert "RuntimeError: no such luck" in done.stderr
    assert "please report" in done.stderr


def test_debug_keeps_the_exit_status(project: Cli) -> None:
    """With --debug an error has its traceback and the status that it has without."""
    project.write("bad.yaml", "name: x\n")
    done = project.run("run", "bad.yaml", "--debug", status=2)
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    "environ",
    [
        {"PYTHONIOENCODING": "ascii:strict"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "C"],
)
def test_what_a_terminal_cannot_encode_is_escaped(shared_project: Cli, environ: dict[str, str]) -> None:
    """Arabic questions of failing rows end neither the run nor the command."""
    shared_project.write("qa.jsonl", json.dumps({"question": "سؤال", "answer": "جواب"}, ensure_ascii=False))
    shared_project.env.update(environ)
    done = subprocess.run(
        shared_project.command("run", "assay.yaml"),
        cwd=shared_project.folder,
        env=shared_project.env,
        capture_output=True,
        timeout=110,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == 1, done.stderr
    assert b"\\u0633" in done.stdout or "سؤال".encode() in done.stdout


@pytest.mark.parametrize(
    "arguments", [["run", "assay.yaml"], ["run", "assay.yaml", "--json"], ["metrics", "list"], ["--help"]]
)
def test_a_full_disk_under_stdout_is_a_sentence(shared_project: Cli, arguments: list[str]) -> None:
    """Output that cannot be written ends with 3 and says so."""
    errors = shared_project.folder / "stderr"
    with Path("/dev/full").open("wb") as full, errors.open("wb") as file:
        status = run_into(shared_project, arguments, full.fileno(), file.fileno())
    text = errors.read_text("utf-8")
    assert status == 3, text
    assert text.strip().splitlines()[-1] == "error: cannot write the output: No space left on device"
    assert "Traceback" not in text


def test_a_full_disk_under_stderr_is_3(project: Cli) -> None:
    """Where nothing can be said, the exit status still tells."""
    with Path("/dev/full").open("wb") as full:
        assert run_into(project, ["run", "nowhere.yaml"], full.fileno(), full.fileno()) == 3


@pytest.mark.parametrize(("closed", "status"), [(">&-", 1), ("2>&-", 1), (">&- 2>&-", 0)])
def test_a_closed_stream_is_as_one_that_nobody_reads(shared_project: Cli, closed: str, status: int) -> None:
    """A cron job may close stdout and stderr; the exit status is that of the verdict."""
    command = shared_project.command("run", "assay.yaml", *(["--set", 'gates=["pass_rate > 1"]'] if status else []))
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *command], cwd=shared_project.folder, env=shared_project.env,
        capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["run", "assay.yaml", "--verbose"], ["run", "assay.yaml"]])
def test_a_reader_that_leaves_is_no_failed_gate(shared_project: Cli, arguments: list[str]) -> None:
    """`assay run | head` ends before the verdict is written: neither passed nor failed."""
    reader, writer = os.pipe()
    os.close(reader)
    errors = shared_project.folder / "stderr"
    try:
        with errors.open("wb") as file:
            status = run_into(shared_project, arguments, writer, file.fileno())
    finally:
        os.close(writer)
    text = errors.read_text("utf-8")
    assert status == 3, text
    assert "Traceback" not in text


def test_an_agent_that_ends_the_process_is_no_success(shared_project: Cli) -> None:
    """`os._exit(0)` in an agent exits with 3 and says how the run is continued; so does a resumed run."""
    shared_project.write("agent.py", DEAD_AGENT)
    done = shared_project.run("run", "assay.yaml", status=3)
    assert "os._exit(0)" in done.stderr
    assert "--resume RUN" in done.stderr
    run = json.loads(shared_project.run("runs", "list", "--json").stdout)["runs"][0]
    shared_project.run("runs", "resume", run["run_id"], "--spec", "assay.yaml", status=3)
    shared_project.write("agent.py", "def answer(request):\n    return request.input.upper()\n")
    shared_project.run("run", "assay.yaml", "--resume", run["run_id"])


@pytest.mark.parametrize("how", ["sys.exit", "asyncio.get_running_loop().stop"])
def test_an_exit_in_a_callback_of_an_agent_is_no_success(shared_project: Cli, how: str) -> None:
    """The command ends with 3, says what the agent did, and how the run is continued, which it can be."""
    shared_project.write("agent.py", EXITING_AGENT.replace("HOW", how))
    done = shared_project.run("run", "assay.yaml", status=3)
    assert "asked this process to exit" in done.stderr
    assert "Traceback" not in done.stderr
    command = done.stderr.strip().rpartition("Continue with: assay ")[2].split()
    shared_project.write("agent.py", "def answer(request):\n    return request.input.upper()\n")
    shared_project.run(*command)


def test_an_agent_that_ignores_cancellation_keeps_no_command(shared_project: Cli) -> None:
    """The verdict is printed, and the command ends with its status."""
    shared_project.write("agent.py", DEAF_AGENT)
    done = shared_project.run("run", "assay.yaml", "--set", "agent.timeout=10ms", "--set", "agent.retries=0", status=1)
    assert "FAIL" in done.stdout
    assert "ignore their cancellation: count=" in done.stderr
