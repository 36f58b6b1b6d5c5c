"""What many calls and many commands in a row leave behind: nothing, though their services stay between them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.conftest import Cli, with_project
from tests.support.processes.child_process import child_process
from tests.support.processes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALLS = """
import json, os, sys, threading
from pathlib import Path
import psutil
from assay import evaluate
from assay.local_stack.home import Home
from assay.local_stack.stack import running_services

def state():
    process, home = psutil.Process(), Home.find()
    (service,) = process.children(recursive=True)
    assert running_services(home) == {"orchestrator": service.pid}
    own = lambda each: each.memory_info().rss - each.memory_info().shared
    files = sorted(str(file) for folder in (home.path, Path(os.environ["TMPDIR"])) for file in folder.rglob("*"))
    return {
        "service": service.pid, "files": files, "descriptors": process.num_fds() + service.num_fds(),
        "threads": threading.active_count() + service.num_threads(), "bytes": [own(process), own(service)],
    }

count, states = int(sys.argv[1]), []
for number in range(1, count + 1):
    case = {"id": "a", "question": "q", "reference": "Q"}
    evaluate({"metrics": ["exact_match"]}, agent=lambda request: request.input.upper(), dataset=[case], progress=False)
    if number in (count // 2, count):
        states.append(state())
print(json.dumps(states))
"""
MOST_GROWTH_BYTES = 4 * 2**20
"""Above what the cache of the growing database takes."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Cli]:
    """Return the command in a folder with a spec; its services wait idle, and temporary files have their own folder."""
    caller = with_project(Cli(tmp_path))
    (tmp_path / "temporary").mkdir()
    caller.env |= {"ASSAY_IDLE_S": "600", "TMPDIR": str(tmp_path / "temporary")}
    yield caller
    caller.run("down")
    wait_until(lambda: not caller.services())


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.nightly)])
def test_calls_of_one_process_leave_nothing(project: Cli, count: int) -> None:
    """Neither while the process runs nor after it: no process, descriptor, thread or file, and no memory."""
    del project.env["ASSAY_IDLE_S"]
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(count)], cwd=project.folder, env=project.env, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stderr == ""
    middle, end = json.loads(done.stdout)
    growth = [after - before for before, after in zip(middle.pop("bytes"), end.pop("bytes"), strict=True)]
    check_counts(middle, end, count)
    assert end == middle
    assert max(growth) < MOST_GROWTH_BYTES, growth
    assert not project.services()
    assert not list((project.home / "run").glob("*.sock"))


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=[pytest.mark.nightly, pytest.mark.timeout(1_800)])])
def test_commands_in_a_row_leave_nothing(project: Cli, count: int) -> None:
    """One service serves them all; it keeps no descriptor, thread or file of a command."""
    states = []
    for number in range(1, count + 1):
        project.run("run", "assay.yaml", "--output-dir", "out")
        shutil.rmtree(project.folder / "out")
        if number in (count // 2, count):
            states.append(_state(project))
    middle, end = states
    growth = end.pop("bytes") - middle.pop("bytes")
    check_counts(middle, end, count)
    assert end == middle
    assert growth < MOST_GROWTH_BYTES, growth


def check_counts(middle: dict[str, Any], end: dict[str, Any], count: int) -> None:
    """Fail if half of the calls since the middle left a thread or a descriptor; a pool may still start its last one."""
    for name in ("threads", "descriptors"):
        assert end.pop(name) - middle.pop(name) < count // 4


def _state(project: Cli) -> dict[str, Any]:
    (service,) = project.services()
    memory = service.memory_info()
    files = sorted(str(file) for file in project.folder.rglob("*") if file.suffix != ".pyc")
    return {
        "service": service.pid, "files": files, "descriptors": service.num_fds(), "threads": service.num_threads(),
        "bytes": memory.rss - memory.shared,
    }  # fmt: skip


THREADS = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    calls = [pool.submit(call) for _ in range(8)]
print(sum(done.result().summary.pass_rate for done in calls), len(running_services(Home.find())))
"""
CALL = """
from assay import evaluate
from assay.local_stack.home import Home
from assay.local_stack.stack import running_services
def call():
    case = {"id": "a", "question": "q", "reference": "Q"}
    agent = lambda request: request.input.upper()
    return evaluate({"metrics": ["exact_match"]}, agent=agent, dataset=[case], progress=False)
def rate():
    return call().summary.pass_rate
"""
OTHER_USER = """
import os
import assay.errors
from assay.local_stack.home import Home
os.setuid(65534)
Home.open()
"""
NEWER = """
import runpy, sys
import assay.version
assay.version.__version__, sys.argv = "9.9.9", ["assay", "runs", "list"]
runpy.run_module("assay_cli", run_name="__main__")
"""
KERNEL = "print(call().summary.pass_rate, flush=True)\nimport signal\nsignal.pause()\n"


def run_calls(project: Cli, program: str) -> list[str]:
    """Run a program that evaluates; return the words that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", CALL + program], cwd=project.folder, env=project.env, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return done.stdout.split()


def test_the_threads_of_a_process_share_a_stack(project: Cli) -> None:
    """Also if all of them are the first to need it; it ends with the process."""
    del project.env["ASSAY_IDLE_S"]
    assert run_calls(project, THREADS) == ["8.0", "1"]
    assert not project.services()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_restarted_kernel_gets_a_stack(project: Cli, number: signal.Signals) -> None:
    """The next process may start while the services of the last one stop."""
    del project.env["ASSAY_IDLE_S"]
    command = [sys.executable, "-c", CALL + KERNEL]
    with child_process(
        command, cwd=project.folder, env=project.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as kernel:
        assert kernel.stdout is not None
        assert kernel.stdout.readline() == "1.0\n"
        kernel.send_signal(number)
        assert run_calls(project, "print(rate())") == ["1.0"]
    wait_until(lambda: not project.services())


def test_a_stack_belongs_to_a_directory_and_a_version(project: Cli) -> None:
    """A command with another directory leaves the idle service; one of another version replaces it."""
    project.run("runs", "list")
    (first,) = project.services()
    other = Cli(project.folder, project.folder / "elsewhere")
    other.env |= {"ASSAY_IDLE_S": "600"}
    other.run("runs", "list")
    assert first.is_running()
    (elsewhere,) = other.services()
    assert elsewhere.pid != first.pid
    other.run("down")
    subprocess.run([sys.executable, "-c", NEWER], cwd=project.folder, env=project.env, check=True, capture_output=True)
    assert [service.pid for service in project.services()] != [first.pid]
    wait_until(lambda: not other.services())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_gets_no_stack_of_this_one(project: Cli) -> None:
    """The state directory of a user refuses another user with a sentence."""
    project.run("runs", "list")
    (service,) = project.services()
    done = subprocess.run(
        [sys.executable, "-c", OTHER_USER], env=project.env, capture_output=True, text=True, check=False
    )
    assert "SetupError" in done.stderr
    assert "set ASSAY_HOME to a folder that can be written" in done.stderr
    assert service.is_running()
