"""The services that commands start, share or call: models, databases, servers, and stacks that several commands use."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.e2e.conftest import WAITING_AGENT, report_of, stack_up
from tests.support.processes.waiting import wait_until

from assay.errors import SetupError
from assay.local_stack.home import Home
from assay.local_stack.stack import LocalStack, running_services
from assay.metrics.core.info import DEFAULT_MODEL
from assay_embedder.models.precision import choose_precision

if TYPE_CHECKING:
    import subprocess

    from tests.e2e.conftest import Cli


def test_an_orchestrator_started_for_a_wrong_dataset_is_ended(project: Cli) -> None:
    """In a state directory that is there it starts while the dataset is read: used by no other command, it ends."""
    project.run("run", "assay.yaml", "--output-dir", "out")
    project.write("qa.jsonl", '{"question": \n')
    log = project.home / "logs" / "orchestrator.log"
    log.unlink()
    project.run("run", "assay.yaml", status=2)
    assert log.exists()
    assert running_services(Home.find(project.home)) == {}
    assert len(json.loads(project.run("runs", "list", "--json").stdout)["runs"]) == 1


def _says_stopped(stack: LocalStack) -> bool:
    """Return whether a stack says that its orchestrator was stopped: a process gives its locks back before it ends."""
    try:
        stack.check()
    except SetupError as stopped:
        return "was stopped" in stopped.message
    return False


def test_an_orchestrator_that_another_command_uses_is_not_ended(tmp_path: Path) -> None:
    """A command that refuses its input ends the orchestrator that it started only where no other command uses it."""
    home = Home.open(tmp_path / "home")
    refused, other = LocalStack(home), LocalStack(home)
    refused.start()
    other.start()
    refused.abandon()
    assert list(running_services(home)) == ["orchestrator"]
    asyncio.run(other.wait_until_stopped())
    wait_until(lambda: not running_services(home) and _says_stopped(refused))


def test_a_command_that_is_interrupted_while_its_run_is_created_names_the_run(project: Cli) -> None:
    """Ctrl-C between the storing of a run and the news of it: the command waits for the run's id, and names it."""
    log = project.folder / "failpoints.txt"
    project.env |= {"ASSAY_FAILPOINTS": "run.after_commit=stop", "ASSAY_FAILPOINTS_LOG": str(log)}
    process = project.start("run", "assay.yaml", "--output-dir", "out")
    project.wait_until(lambda: log.exists() and "run.after_commit" in log.read_text(), process)
    process.send_signal(signal.SIGINT)
    for service in project.services():
        service.resume()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    del project.env["ASSAY_FAILPOINTS"], project.env["ASSAY_FAILPOINTS_LOG"]
    (stored,) = json.loads(project.run("runs", "list", "--json").stdout)["runs"]
    command = f"assay run assay.yaml --output-dir out --resume {stored['run_id']}"
    assert err.splitlines()[-1] == f"interrupted: finished rows are stored. Continue with: {command}"
    project.run(*shlex.split(command)[1:])
    assert len(report_of(project.folder / "out")["rows"]) == 20


def test_a_rescoring_that_is_interrupted_while_its_run_is_created_names_the_run(project: Cli) -> None:
    """Ctrl-C in the same moment of `assay rescore` names the new run with the command that continues it."""
    project.run("run", "assay.yaml", "--quick")
    log = project.folder / "failpoints.txt"
    project.env |= {"ASSAY_FAILPOINTS": "run.after_commit=stop", "ASSAY_FAILPOINTS_LOG": str(log)}
    process = project.start("rescore", "latest")
    project.wait_until(lambda: log.exists() and "run.after_commit" in log.read_text(), process)
    process.send_signal(signal.SIGINT)
    for service in project.services():
        service.resume()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    del project.env["ASSAY_FAILPOINTS"], project.env["ASSAY_FAILPOINTS_LOG"]
    command = err.splitlines()[-1].removeprefix("interrupted: finished rows are stored. Continue with: ")
    assert command.startswith("assay runs resume ")
    # Its answers are stored: the orchestrator may have scored them all before it hears that the command has ended.
    continued = project.run(*shlex.split(command)[1:], status=None)
    assert not continued.returncode or "has already completed" in continued.stderr, continued.stderr
    runs = json.loads(project.run("runs", "list", "--json").stdout)["runs"]
    assert sorted(each["state"] for each in runs) == ["completed", "completed"]


def test_up_keeps_the_stack_and_down_stops_it(project: Cli) -> None:
    """Runs share a stack that `up` started; `down` ends it."""
    project.run("up", "--no-embedder")
    try:
        (service,) = project.services()
        project.run("run", "assay.yaml")
        assert [process.pid for process in project.services()] == [service.pid]
    finally:
        project.run("down")
    psutil.wait_procs([service], timeout=60)
    assert not project.services()
    assert "not running" in project.run("down").stdout


def test_doctor_validate_version_and_help(project: Cli) -> None:
    """The small commands work, and every command has a help."""
    assert "orchestrator installed" in project.run("doctor").stdout
    assert "valid" in project.run("validate", "assay.yaml").stdout
    assert project.run("--version").stdout.startswith("assay ")
    for command in ("run", "validate", "runs", "up", "down", "serve", "doctor"):
        assert "Usage" in project.run(command, "--help").stdout
    for service in ("orchestrator", "embedder", "judge"):
        assert f"usage: assay serve {service}" in project.run("serve", service, "--help").stdout
    assert "did you mean 'runs'" in project.run("rums", status=2).stderr


def test_a_second_orchestrator_on_one_database_is_refused(project: Cli) -> None:
    """Two processes on one database: the second ends with a sentence and status 3."""
    project.run("up", "--no-embedder")
    try:
        done = project.run("serve", "orchestrator", "--listen", "127.0.0.1:0", status=3)
        assert "in use by another orchestrator" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        project.run("down")


def test_a_database_of_a_newer_version_is_refused(project: Cli) -> None:
    """A newer schema is a sentence that says what to do."""
    project.run("run", "assay.yaml")
    with sqlite3.connect(project.home / "assay.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    done = project.run("run", "assay.yaml", status=3)
    assert "newer version of Assay" in done.stderr


def similar(model: str | Path) -> list[str]:
    """Return the arguments of a run whose metric needs an embedding model."""
    return ["--set", f"metrics=[{{semantic_similarity: {{model: '{model}', threshold: 0.5}}}}]", "--set", "gates=[]"]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("/no/such/model", "the embedding model '/no/such/model' is not a folder"),
        ("none such", "the embedding model 'none such' is neither a folder nor an id"),
        ("org/none-such", "org/none-such"),
    ],
)
def test_a_model_that_is_not_there_costs_no_question(project: Cli, model: str, said: str) -> None:
    """A folder, a name, and an id of the hub that cannot be had: the agent is not asked, and no run is created."""
    project.write("agent.py", "def answer(request):\n    open('asked.txt', 'w')\n")
    project.env |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(project.folder / "hub")}
    done = project.run("run", "assay.yaml", *similar(model), status=3)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project.folder / "asked.txt").exists()
    assert "--resume" not in done.stderr
    if not model.startswith("org/"):  # which a machine with a network may have
        wrong = project.run("validate", "assay.yaml", *similar(model), status=2)
        assert f"assay.yaml: metrics: {said}" in wrong.stderr


def test_a_model_that_cannot_be_loaded_is_said_at_once(project: Cli) -> None:
    """A run whose embedder cannot load its model names what it waits for, then why that failed; it can be resumed."""
    folder = project.folder / "broken"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")  # a complete file, without weights
    # Started as a shell does: a forked embedder ends before the command says that it waits.
    process = project.start("run", "assay.yaml", *similar(folder))
    _, err = process.communicate(timeout=180)
    assert process.returncode == 3, err
    assert "loading the embedding model …" in err
    assert str(folder) in err
    assert "--resume" in err
    assert "Traceback" not in err


def test_the_precision_of_the_embedder_is_recorded_and_kept_apart(project: Cli) -> None:
    """ASSAY_EMBEDDER_PRECISION reaches the embedder, also one that runs; reports name it; no verdict across two."""
    if choose_precision("auto", "cpu") != "fast":
        pytest.skip("precision fast needs a processor with bfloat16 instructions")
    precisions, reports = ("exact", "fast"), []
    with stack_up(project):
        for precision in precisions:
            project.env["ASSAY_EMBEDDER_PRECISION"] = precision
            project.run("run", "assay.yaml", *similar(DEFAULT_MODEL), "--output-dir", precision, status=None)
            reports.append(json.loads((project.folder / precision / "results.json").read_text()))
        compared = project.run("compare", *(report["run"]["run_id"] for report in reports), status=3)
    for precision, report in zip(precisions, reports, strict=True):
        details = [row["scores"]["semantic_similarity"]["detail"] for row in report["rows"]]
        assert {detail["precision"] for detail in details} == {precision}
        assert [one["precision"] for one in report["results"]["semantic_similarity"]["models"]] == [precision]
    said = " ".join((compared.stdout + compared.stderr).split())
    assert "embeddings of another precision: exact and fast" in said


def test_a_server_that_does_not_answer_is_named(project: Cli) -> None:
    """An unreachable orchestrator is a sentence with its address."""
    done = project.run("run", "assay.yaml", "--server", "127.0.0.1:1", status=3)
    assert "no orchestrator answers at 127.0.0.1:1" in done.stderr


def test_ctrl_c_pauses_a_run_of_a_stack_that_stays(shared_project: Cli) -> None:
    """Else it would stay running without its agent, or at its cost. A command that only watches pauses nothing."""
    shared_project.write("agent.py", WAITING_AGENT)
    asked = shared_project.folder / "asked.txt"
    process = shared_project.start("run", "assay.yaml", "--set", "agent.concurrency=1", "--output-dir", "out")
    shared_project.wait_until(lambda: asked.exists() and "c15" in asked.read_text(), process)
    watching = shared_project.start("runs", "watch", "latest", "--json")
    assert watching.stdout is not None
    assert watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=60)
    assert watching.returncode == 130

    def state() -> str:
        return str(json.loads(shared_project.run("runs", "show", "latest", "--json").stdout)["state"])

    assert state() == "running"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, state()) == (130, "paused")
    (shared_project.folder / "go").touch()
    (hint,) = [line for line in err.splitlines() if "Continue with: " in line]
    shared_project.run(*shlex.split(hint.partition("Continue with: ")[2])[1:])
    assert len(report_of(shared_project.folder / "out")["rows"]) == 20


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
