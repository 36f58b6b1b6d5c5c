"""What many calls and many commands in a row leave behind: nothing, though their services stay between them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import Cli, with_project
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
    assert end == middle
    assert max(growth) < MOST_GROWTH_BYTES, growth
    assert not project.services()
    assert not list((project.home / "run").glob("*.sock"))


@pytest.mark.parametrize("count", [5, pytest.param(300, marks=[pytest.mark.nightly, pytest.mark.timeout(1_800)])])
def test_commands_in_a_row_leave_nothing(project: Cli, count: int) -> None:
    """One service serves them all, with as many descriptors, threads and files after the last as after the second."""
    states = []
    for number in range(1, count + 1):
        project.run("run", "assay.yaml", "--output-dir", "out")
        shutil.rmtree(project.folder / "out")
        if number in (2, count):
            states.append(_state(project))
    middle, end = states
    growth = end.pop("bytes") - middle.pop("bytes")
    assert end == middle
    assert growth < MOST_GROWTH_BYTES, growth


def _state(project: Cli) -> dict[str, object]:
    (service,) = project.services()
    memory = service.memory_info()
    files = sorted(str(file) for file in project.folder.rglob("*") if file.suffix != ".pyc")
    return {
        "service": service.pid, "files": files, "descriptors": service.num_fds(), "threads": service.num_threads(),
        "bytes": memory.rss - memory.shared,
    }  # fmt: skip
