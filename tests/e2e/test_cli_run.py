"""`assay run` and its companions, as subprocesses."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.e2e.conftest import stack_up
from tests.waiting import wait_until

from assay.errors import SetupError
from assay.local_stack.home import Home
from assay.local_stack.stack import LocalStack, running_services
from assay.metrics.core.info import DEFAULT_MODEL
from assay_embedder.models.precision import choose_precision

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]

WAITING_AGENT = """
import pathlib, time
def answer(request):
    with open("asked.txt", "a") as file:
        file.write(request.case_id + "\\n")
    while request.case_id == "c15" and not pathlib.Path("go").exists():
        time.sleep(0.01)
    return request.input.upper()
"""


def report_of(folder: Path) -> dict[str, Any]:
    """Return the JSON report of a folder."""
    document: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return document


def stored_rows(project: Cli) -> int:
    """Return how many results the database of a state directory holds."""
    with closing(sqlite3.connect(f"file:{project.home}/assay.db?mode=ro", uri=True)) as database:
        count: int = database.execute("SELECT count(*) FROM results").fetchone()[0]
    return count


def test_a_run_without_embedding_metrics_starts_no_embedder(project: Cli) -> None:
    """Exact match alone needs no model: the embedder's log is never made."""
    project.run("run", "assay.yaml")
    assert (project.home / "logs" / "orchestrator.log").exists()
    assert not (project.home / "logs" / "embedder.log").exists()


def test_json_on_stdout_is_the_report_and_nothing_else(shared_project: Cli) -> None:
    """--json prints exactly the report's document, whatever the agent prints."""
    shared_project.write("agent.py", "print('hello')\ndef answer(request):\n    print('noise')\n    return 'Q1'\n")
    done = shared_project.run("run", "assay.yaml", "--json", "--output-dir", "out", status=1)
    assert json.loads(done.stdout) == report_of(shared_project.folder / "out")


def test_the_exit_status_follows_the_gates(shared_project: Cli) -> None:
    """0 when gates hold, 1 when one fails."""
    shared_project.run("run", "assay.yaml")
    done = shared_project.run("run", "assay.yaml", "--set", 'gates=["pass_rate > 1"]', status=1)
    assert "FAIL" in done.stdout


def test_quick_limit_metrics_and_repeats(shared_project: Cli) -> None:
    """Options narrow the run down or repeat it."""
    shared_project.run(
        "run", "assay.yaml", "--quick", "--metrics", "exact_match", "--repeats", "2", "--output-dir", "out"
    )
    report = report_of(shared_project.folder / "out")
    assert [row["case_id"] for row in report["rows"][:4]] == ["c0", "c0", "c1", "c1"]
    assert len(report["rows"]) == 20
    assert list(report["results"]) == ["exact_match"]


def test_every_problem_is_said_at_once_before_anything_starts(project: Cli) -> None:
    """A wrong spec exits with 2, names file, line and the nearest name, and starts nothing."""
    project.write(
        "bad.yaml",
        "name: x\ndatset: qa.jsonl\nagent: {adapter: pyhton, target: 'agent:answer'}\nmetrics: [exact_mach]\n",
    )
    for command in ("run", "validate"):
        done = project.run(command, "bad.yaml", status=2)
        for expected in ("bad.yaml:2", "'dataset'", "'python'", "'exact_match'", "bad.yaml:4"):
            assert expected in done.stderr
    assert not project.home.exists()


def test_an_orchestrator_started_for_a_wrong_dataset_is_ended(project: Cli) -> None:
    """In a state directory that is there it starts while the dataset is read: used by no other command, it ends."""
    project.run("run", "assay.yaml", "--output-dir", "out")
    project.write("qa.jsonl", '{"question": \n')
    log = project.home / "logs" / "orchestrator.log"
    log.unlink()
    project.run("run", "assay.yaml", status=2)
    assert log.exists()
    assert running_services(Home.find(project.home)) == {}
    assert len(json.loads(project.run("runs", "list", "--json").stdout)) == 1


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


def test_a_module_that_does_not_import_shows_its_own_traceback(project: Cli) -> None:
    """The user's traceback is shown, without frames of Assay, and the exit status is 2."""
    project.write("agent.py", "import nothing_like_this\n")
    for command in ("run", "validate"):
        done = project.run(command, "assay.yaml", status=2)
        assert "No module named 'nothing_like_this'" in done.stderr
        assert "agent.py" in done.stderr
        assert "assay_cli" not in done.stderr
    done = project.run("run", "assay.yaml", "--set", "agent.target=agent:anser", status=2)
    assert "nothing_like_this" in done.stderr or "anser" in done.stderr


def test_a_missing_file_is_a_sentence(project: Cli) -> None:
    """Missing spec and dataset exit with 2 and name the file."""
    assert "nope.yaml" in project.run("run", "nope.yaml", status=2).stderr
    done = project.run("run", "assay.yaml", "--dataset", "nope.jsonl", status=2)
    assert "nope.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


def test_hostile_text_reaches_neither_terminal_nor_report_as_control(shared_project: Cli) -> None:
    """Escape sequences in an agent's error are taken out of the console output."""
    shared_project.write("agent.py", "def answer(request):\n    raise ValueError('\\x1b]0;owned\\x07 \\u202e evil')\n")
    done = shared_project.run("run", "assay.yaml", "--set", "agent.retries=0", status=1)
    assert "\x1b" not in done.stdout + done.stderr
    assert "\u202e" not in done.stdout + done.stderr
    assert "evil" in done.stdout


def test_a_run_that_is_resumed_keeps_what_it_was_started_with(shared_project: Cli) -> None:
    """Options that differ are refused by name, those that agree are taken, and a spec that differs is said to."""
    shared_project.write("agent.py", "def answer(request):\n    return request.input.upper()\n")
    options = ("--limit", "5", "--set", "agent.timeout=5s")
    shared_project.run("run", ".", "--no-progress", *options)
    run_id = json.loads(shared_project.run("runs", "list", "--json").stdout)[0]["run_id"]
    again = ("run", ".", "--no-progress", "--resume", run_id)
    assert "note:" not in shared_project.run(*again, *options).stderr
    assert "differs from this spec in agent.timeout, selection\n" in shared_project.run(*again).stderr
    refused = shared_project.run(*again, *options, "--repeats", "2", "--set", 'gates=["pass_rate > 0.2"]', status=2)
    assert "--set and --repeats have no effect on run" in refused.stderr
    assert "other values of gates, repeats: leave out what differs" in refused.stderr
    cases = shared_project.folder / "others.json"
    cases.write_text('[{"question": "q", "answer": "Q"}]')
    assert "--dataset has no effect" in shared_project.run(*again, *options, "--dataset", cases, status=2).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_run_is_resumed_without_asking_again(project: Cli, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM exit with 130 and say how to go on; what was answered is not asked again."""
    project.write("agent.py", WAITING_AGENT)
    asked = project.folder / "asked.txt"
    (project.folder / "assay.yaml").rename(project.folder / "my spec.yaml")
    process = project.start("run", "my spec.yaml", "--set", "agent.concurrency=1", "--output-dir", "out")
    # The question that hangs is asked as soon as the answer before it has come, which may not be stored yet.
    project.wait_until(lambda: asked.exists() and "c15" in asked.read_text() and stored_rows(project) >= 15, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert "interrupted: what is done is stored" in err
    hint = next(line for line in err.splitlines() if "--resume" in line)
    (project.folder / "go").touch()
    asked.unlink()
    # The command that is told repeats the options, and can be pasted into a shell.
    command = shlex.split(hint.partition("Continue with: ")[2])
    assert command[:3] == ["assay", "run", "my spec.yaml"]
    assert command[-2] == "--resume"
    project.run(*command[1:])
    assert len(report_of(project.folder / "out")["rows"]) == 20
    assert sorted(asked.read_text().split()) == sorted(f"c{i}" for i in range(15, 20))


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
    (stored,) = json.loads(project.run("runs", "list", "--json").stdout)
    command = f"assay run assay.yaml --output-dir out --resume {stored['run_id']}"
    assert err.splitlines()[-1] == f"interrupted: what is done is stored. Continue with: {command}"
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
    command = err.splitlines()[-1].removeprefix("interrupted: what is done is stored. Continue with: ")
    assert command.startswith("assay runs resume ")
    # Its answers are stored: the orchestrator may have scored them all before it hears that the command has ended.
    continued = project.run(*shlex.split(command)[1:], status=None)
    assert not continued.returncode or "has already succeeded" in continued.stderr, continued.stderr
    runs = json.loads(project.run("runs", "list", "--json").stdout)
    assert sorted(each["state"] for each in runs) == ["succeeded", "succeeded"]


def test_a_killed_orchestrator_is_started_again_and_nothing_is_asked_twice(project: Cli) -> None:
    """kill -9 of the orchestrator in the middle of a run: the run finishes, stored answers are not repeated."""
    project.write("agent.py", WAITING_AGENT)
    asked = project.folder / "asked.txt"
    process = project.start("run", "assay.yaml", "--set", "agent.concurrency=1", "--output-dir", "out")
    # The question that hangs is asked as soon as the answer before it has come, which may not be stored yet.
    project.wait_until(lambda: asked.exists() and "c15" in asked.read_text() and stored_rows(project) >= 15, process)
    (orchestrator,) = project.services()
    orchestrator.kill()
    psutil.wait_procs([orchestrator], timeout=60)
    (project.folder / "go").touch()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, f"{out}\n{err}"
    assert len(report_of(project.folder / "out")["rows"]) == 20
    counts = {case: asked.read_text().split().count(case) for case in (f"c{i}" for i in range(20))}
    assert all(counts[f"c{i}"] == 1 for i in range(20) if i != 15), counts
    assert counts["c15"] in (1, 2)  # it was in flight


def test_services_end_with_a_killed_command(project: Cli) -> None:
    """kill -9 of the command leaves no service behind, and the database can be used again."""
    project.write("agent.py", WAITING_AGENT)
    asked = project.folder / "asked.txt"
    process = project.start("run", "assay.yaml")
    # The question that hangs is asked as soon as the answer before it has come, which may not be stored yet.
    project.wait_until(lambda: asked.exists() and "c15" in asked.read_text() and stored_rows(project) >= 15, process)
    services = project.services()
    assert services
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(services, timeout=60)
    assert not alive
    assert json.loads(project.run("runs", "list", "--json").stdout)[0]["state"] == "paused"


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


def test_runs_are_listed_shown_and_cancelled(own_stack: Cli) -> None:
    """Stored runs can be listed, shown and looked up; a finished one cannot be cancelled."""
    own_stack.run("run", "assay.yaml")
    (listed,) = json.loads(own_stack.run("runs", "list", "--json").stdout)
    assert (listed["state"], listed["finished"]) == ("succeeded", 20)
    assert "exact_match" in own_stack.run("runs", "show", listed["run_id"]).stdout
    assert json.loads(own_stack.run("runs", "show", listed["run_id"], "--json").stdout)["summary"]["passed"] == 20
    assert "succeeded" in own_stack.run("runs", "watch", listed["run_id"]).stdout
    assert "already succeeded" in own_stack.run("runs", "cancel", listed["run_id"], status=2).stderr
    assert "no run" in own_stack.run("runs", "show", "nope", status=2).stderr


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


def test_help_is_light() -> None:
    """`assay --help` imports neither grpc nor anything heavy."""
    code = (
        "import sys; from assay_cli.commands import assay\n"
        "try: assay.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pandas', 'matplotlib', 'numpy', 'sqlalchemy', 'grpc', 'httpx2'} & set(sys.modules)\n"
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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


def test_a_folder_that_cannot_be_written_is_found_before_the_run(project: Cli) -> None:
    """Nothing is asked or started where the report could not be written, and no folder is left behind."""
    project.write("file", "in the way")
    project.write("agent.py", "def answer(request):\n    open('asked.txt', 'w')\n")
    for folder in ("file/out", "file"):
        done = project.run("run", "assay.yaml", "--output-dir", folder, status=3)
        assert f"{folder} cannot be written" in done.stderr
        assert "--output-dir" in done.stderr
    assert not project.home.exists()
    assert not (project.folder / "asked.txt").exists()


@pytest.mark.parametrize("action", ["error", "nospace"])
def test_whatever_keeps_a_report_from_being_written_the_command_for_later_is_said(project: Cli, action: str) -> None:
    """Also an orchestrator that is away for good: `error` raises what its store raises."""
    project.env["ASSAY_FAILPOINTS"] = f"report.before_rename={action}"
    for command in (("run", "assay.yaml"), ("runs", "watch", "RUN", "--output-dir", "out")):
        said = project.run(*(run_of(project) if word == "RUN" else word for word in command), status=3).stderr
        assert f"`assay runs watch {run_of(project)} --output-dir FOLDER` writes its report" in said
        assert "Traceback" not in said
    del project.env["ASSAY_FAILPOINTS"]
    told = shlex.split(said.partition("`")[2].partition("`")[0].replace("FOLDER", "elsewhere"))
    project.run(*told[1:])
    assert len(report_of(project.folder / "elsewhere")["rows"]) == 20


def run_of(project: Cli) -> str:
    """Return the only run of a state directory."""
    with closing(sqlite3.connect(f"file:{project.home}/assay.db?mode=ro", uri=True)) as database:
        (name,) = database.execute("SELECT run_id FROM runs").fetchone()
    return str(name)


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
