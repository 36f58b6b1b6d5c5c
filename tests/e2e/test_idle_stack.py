"""A local stack that waits idle for the next command, and one that a Python process keeps between its calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import Cli
from tests.support.processes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CASES = "".join(f'{{"id": "c{n}", "question": "q{n}", "reference": "Q{n}"}}\n' for n in range(3))
SPEC = {"agent": {"adapter": "python", "target": "agent:answer"}, "dataset": "cases.jsonl", "metrics": ["exact_match"]}
PROGRAM = """
import os, sys
from assay import evaluate
def answer(request):
    return request.input.upper()
def call():
    metrics = {"metrics": ["exact_match"]}
    return evaluate(metrics, agent=answer, dataset=[{"id": "a", "question": "q", "reference": "Q"}], progress=False)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Cli]:
    """Return the command beside a spec; its services wait idle for longer than a test takes, and are ended by it."""
    caller = Cli(tmp_path)
    caller.env["ASSAY_IDLE_S"] = "600"
    caller.write("cases.jsonl", CASES)
    caller.write("agent.py", "def answer(request):\n    return request.input.upper()\n")
    caller.write("assay.yaml", SPEC)
    yield caller
    caller.run("down")
    wait_until(lambda: not caller.services())


def pids(caller: Cli) -> list[int]:
    """Return the process ids of the running services."""
    return [service.pid for service in caller.services()]


def run_program(caller: Cli, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program that evaluates, with the state directory of a command."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + program], cwd=caller.folder, env=caller.env | environment,
        capture_output=True, text=True, timeout=110, check=True,
    )  # fmt: skip


def test_a_second_command_finds_the_services_of_the_first(project: Cli) -> None:
    """Also after a command that only lists; `assay down` ends them."""
    project.run("run", "assay.yaml", "--output-dir", "out")
    (first,) = pids(project)
    project.run("run", "assay.yaml", "--output-dir", "again")
    assert len(json.loads(project.run("runs", "list", "--json").stdout)["runs"]) == 2
    assert pids(project) == [first]
    assert "orchestrator" in project.run("down").stdout
    wait_until(lambda: not project.services())


def test_another_environment_gets_services_of_its_own(project: Cli) -> None:
    """A key that an agent may read, or another folder, must not be that of an earlier command."""
    project.run("runs", "list")
    (first,) = pids(project)
    project.env |= {"GRPC_VERBOSITY": "ERROR", "TMUX_PANE": "%1", "SHLVL": "7"}  # another terminal
    project.run("runs", "list")
    assert pids(project) == [first]
    project.env["API_KEY"] = "another"
    project.run("runs", "list")
    (second,) = pids(project)
    (project.folder / "elsewhere").mkdir()
    elsewhere = Cli(project.folder / "elsewhere", project.home)
    elsewhere.env |= project.env
    elsewhere.run("runs", "list")
    (third,) = pids(project)
    assert len({first, second, third}) == 3


def test_a_killed_idle_service_costs_only_its_start(project: Cli) -> None:
    """The next command starts another one, and nothing stored is lost."""
    project.run("run", "assay.yaml", "--output-dir", "out")
    (service,) = project.services()
    service.kill()
    service.wait(30)
    assert len(json.loads(project.run("runs", "list", "--json").stdout)["runs"]) == 1
    assert service.pid not in pids(project)


def test_the_first_command_of_a_directory_starts_services_before_its_checks(cli: Cli) -> None:
    """The orchestrator of a refused input ends again, and the command keeps files that are not Assay's."""
    cli.home.mkdir()
    (cli.home / "note").touch()
    cli.write("assay.yaml", SPEC | {"metrics": ["exact_mach"]})
    cli.run("run", "assay.yaml", status=2)
    assert (cli.home / "logs" / "orchestrator.log").exists()
    assert (cli.home / "note").exists()


def test_idle_services_end_after_their_time(project: Cli) -> None:
    """Without any command that ends them."""
    project.env["ASSAY_IDLE_S"] = "0.1"
    project.run("run", "assay.yaml", "--output-dir", "out")
    wait_until(lambda: not project.services())


def test_a_run_whose_command_is_killed_does_not_continue(project: Cli) -> None:
    """An active run could cost money: the services end with their command, as without idle time."""
    project.write(
        "agent.py", "import time\ndef answer(request):\n    print('asked', flush=True)\n    time.sleep(600)\n"
    )
    process = project.start("run", "assay.yaml", "--output-dir", "out")
    project.wait_until(lambda: len(project.services()) == 1, process)
    log = project.home / "logs" / "orchestrator.log"
    project.wait_until(lambda: "client hosts the agent" in log.read_text(), process)
    process.kill()
    process.communicate()
    wait_until(lambda: not project.services())
    (run,) = json.loads(project.run("runs", "list", "--json").stdout)["runs"]
    assert (run["state"], run["pause_cause"]) == ("paused", "interrupted")


def test_up_takes_the_place_of_idle_services(project: Cli) -> None:
    """They would end with their time; those of `assay up` stay."""
    project.run("runs", "list")
    (idle,) = pids(project)
    project.run("up")
    assert idle not in pids(project)


def test_an_idle_time_that_is_none_is_refused(project: Cli) -> None:
    """Before anything is started."""
    project.env["ASSAY_IDLE_S"] = "soon"
    refused = project.run("runs", "list", status=None)
    assert refused.returncode != 0
    assert "ASSAY_IDLE_S must be a number of seconds from 0 to 86,400, not 'soon'" in refused.stderr
    assert not project.services()
    project.env["ASSAY_IDLE_S"] = "600"


def test_a_python_process_keeps_its_stack_to_its_end(project: Cli) -> None:
    """Its calls share one orchestrator, which ends with the process even if no command waits idle."""
    program = """
from assay.local_stack.home import Home
from assay.local_stack.stack import running_services
shown = []
for _ in range(3):
    assert call().summary.pass_rate == 1.0
    shown.append(running_services(Home.find())["orchestrator"])
print(len(set(shown)))
"""
    del project.env["ASSAY_IDLE_S"]  # without a terminal, commands do not wait
    done = run_program(project, program)
    assert done.stdout.split() == ["1"], done.stderr
    assert done.stderr == ""
    assert not project.services()


def test_a_python_process_keeps_nothing_where_it_is_told_so(project: Cli) -> None:
    """With ASSAY_IDLE_S=0 the services end with each call."""
    program = """
from assay.local_stack.home import Home
from assay.local_stack.stack import running_services
call()
print(len(running_services(Home.find())))
"""
    assert run_program(project, program, ASSAY_IDLE_S="0").stdout.split() == ["0"]


def test_a_killed_python_process_leaves_nothing(project: Cli) -> None:
    """Nor does its forked child, which is no user of the stack."""
    del project.env["ASSAY_IDLE_S"]
    program = """
import signal
call()
child = os.fork()
if not child:
    signal.pause()
print(child, flush=True)
signal.pause()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + program],
        cwd=project.folder,
        env=project.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        assert len(project.services()) == 1
        process.kill()
        process.wait()
        wait_until(lambda: not project.services())
    finally:
        os.kill(child, signal.SIGKILL)
        process.kill()
        process.communicate()
