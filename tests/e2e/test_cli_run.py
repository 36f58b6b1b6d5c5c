"""`assay run` and its companions, as subprocesses."""

from __future__ import annotations

import json
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.e2e.conftest import WAITING_AGENT, report_of

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]


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
    run_id = json.loads(shared_project.run("runs", "list", "--json").stdout)["runs"][0]["run_id"]
    again = ("run", ".", "--no-progress", "--resume", run_id)
    assert "note:" not in shared_project.run(*again, *options).stderr
    assert "differ from this spec in agent.timeout, selection\n" in shared_project.run(*again).stderr
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
    assert "interrupted: finished rows are stored" in err
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
    assert json.loads(project.run("runs", "list", "--json").stdout)["runs"][0]["state"] == "paused"


def test_runs_are_listed_shown_and_cancelled(own_stack: Cli) -> None:
    """Stored runs can be listed, shown and looked up; a finished one cannot be cancelled."""
    own_stack.run("run", "assay.yaml")
    (listed,) = json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"]
    assert (listed["state"], listed["finished_count"]) == ("completed", 20)
    assert "exact_match" in own_stack.run("runs", "show", listed["run_id"]).stdout
    assert json.loads(own_stack.run("runs", "show", listed["run_id"], "--json").stdout)["summary"]["passed_count"] == 20
    assert "completed" in own_stack.run("runs", "watch", listed["run_id"]).stdout
    assert "already completed" in own_stack.run("runs", "cancel", listed["run_id"], status=2).stderr
    assert "no run" in own_stack.run("runs", "show", "nope", status=2).stderr


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
