"""`assay runs`: pausing, resuming, watching and deleting, as subprocesses, in text and with `--json`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


GATED_AGENT = """
import pathlib, time
def answer(request):
    with open("asked.txt", "a") as file:
        file.write(request.case_id + "\\n")
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return request.input.upper()
"""


def gated(project: Cli) -> subprocess.Popen[str]:
    """Start a run of which four questions are in flight until the file `go` is there."""
    project.write("agent.py", GATED_AGENT)
    process = project.start("run", "assay.yaml", "--set", "agent.concurrency=4", "--no-progress")
    asked = project.folder / "asked.txt"
    project.wait_until(lambda: asked.exists() and len(asked.read_text().split()) == 4, process)
    return process


def test_a_paused_run_goes_on_where_its_owner_says(own_stack: Cli) -> None:
    """`pause` lets questions in flight end; `resume` hosts the agent again, asks the rest and writes the reports."""
    running = gated(own_stack)
    (run_id,) = [run["run_id"] for run in json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"]]
    pausing = own_stack.start("runs", "pause", run_id)
    own_stack.wait_until(lambda: '"owner"' in own_stack.run("runs", "show", run_id, "--json").stdout, pausing)
    assert pausing.stderr is not None
    assert pausing.stderr.readline() == "finishing calls in flight; Ctrl-C stops waiting, not the pause\n"
    (own_stack.folder / "go").touch()
    out, err = pausing.communicate(timeout=180)
    assert pausing.returncode == 0, err
    assert "paused (requested by its owner)  4/20 rows" in out
    _, err = running.communicate(timeout=180)
    assert running.returncode == 3
    assert f"Continue with: assay run assay.yaml --set agent.concurrency=4 --no-progress --resume {run_id}" in err
    assert "the run is paused with 4 of 20 rows done  exit status 3" in err
    assert "--spec" in own_stack.run("runs", "resume", run_id, status=2).stderr
    done = own_stack.run("runs", "resume", run_id, "--spec", "assay.yaml", "--output-dir", "out")
    assert "exact_match" in done.stdout
    assert len(json.loads((own_stack.folder / "out" / "results.json").read_text())["rows"]) == 20
    assert sorted((own_stack.folder / "asked.txt").read_text().split()) == sorted(f"c{i}" for i in range(20))


def test_a_paused_run_is_resumed_with_its_spec_or_its_agent(own_stack: Cli) -> None:
    """`run SPEC --resume` and `resume --agent` both go on; the exit status is that of the gates."""
    for command in (("run", "assay.yaml", "--resume"), ("runs", "resume", "--agent", "agent:answer")):
        own_stack.write("agent.py", GATED_AGENT)
        running = gated(own_stack)
        run_id = json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"][0]["run_id"]
        pausing = own_stack.start("runs", "pause", run_id)
        own_stack.wait_until(lambda: '"owner"' in own_stack.run("runs", "show", run_id, "--json").stdout, pausing)  # noqa: B023
        (own_stack.folder / "go").touch()
        pausing.communicate(timeout=180)
        running.communicate(timeout=180)
        done = own_stack.run(*command, run_id)
        assert "exact_match" in done.stdout
        (own_stack.folder / "go").unlink()
        (own_stack.folder / "asked.txt").unlink()
    assert "already completed" in own_stack.run("runs", "pause", run_id, status=2).stderr


def test_runs_are_deleted_once_somebody_has_agreed(own_stack: Cli) -> None:
    """`delete` says what goes, asks unless told not to, and names the run that was probably meant."""
    own_stack.run("run", "assay.yaml", "--no-progress")
    run_id = json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"][0]["run_id"]
    asked = own_stack.run("runs", "delete", run_id, status=2)
    assert "--yes" in asked.stderr
    assert "1 run with 20 rows: about" in asked.stdout
    assert f"did you mean '{run_id}'" in own_stack.run("runs", "delete", f"{run_id[:-2]}zz", "--yes", status=2).stderr
    assert "deleted 1 run with 20 rows" in own_stack.run("runs", "delete", run_id, "--yes").stdout
    assert json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"] == []
    assert "no run" in own_stack.run("runs", "show", run_id, status=2).stderr


def test_old_runs_are_pruned(own_stack: Cli) -> None:
    """`prune` goes by age, number and state; --dry-run says what would go and deletes nothing."""
    for _ in range(3):
        own_stack.run("run", "assay.yaml", "--no-progress")
    runs = [run["run_id"] for run in json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"]]
    assert "--older-than" in own_stack.run("runs", "prune", status=2).stderr
    assert "is not an age" in own_stack.run("runs", "prune", "--older-than", "30", status=2).stderr
    assert "not a state" in own_stack.run("runs", "prune", "--keep", "1", "--state", "running", status=2).stderr
    assert "no run is that old" in own_stack.run("runs", "prune", "--older-than", "30d", "--yes").stdout
    planned = json.loads(own_stack.run("runs", "prune", "--keep", "1", "--dry-run", "--json").stdout)["runs"]
    assert [run["run_id"] for run in planned] == runs[1:]
    assert json.loads(own_stack.run("runs", "prune", "--keep", "0", "--state", "failed", "--json").stdout)["runs"] == []
    everything = own_stack.run("runs", "prune", "--older-than", "0m", "--dry-run").stdout
    assert re.search("to be deleted: 3 runs with 60 rows: about .*, and 1 dataset that no other run uses", everything)
    done = own_stack.run("runs", "prune", "--older-than", "0m", "--keep", "2", "--yes")
    assert "to be deleted: 1 run with 20 rows: about" in done.stdout
    assert "deleted 1 run with 20 rows: about" in done.stdout
    assert [run["run_id"] for run in json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"]] == runs[:2]
    last = own_stack.run("runs", "prune", "--keep", "0", "--yes", "--json")
    assert "qa.jsonl, deleted too" in last.stderr
    assert len(json.loads(last.stdout)["datasets"]) == 1


SLOW_SERVER = """
import http.server, json, pathlib, time
class Agent(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        while question == "q5" and not pathlib.Path("go").exists():
            time.sleep(0.01)
        body = json.dumps({"text": question.upper()}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
pathlib.Path("port.part").write_text(str(server.server_port))
pathlib.Path("port.part").rename("port")
server.serve_forever()
"""


def test_a_run_whose_command_was_killed_is_taken_up_again(project: Cli) -> None:
    """kill -9 of `assay run`: what there is is shown as partial, and `watch` goes on to the end and writes reports."""
    server = subprocess.Popen([sys.executable, "-c", SLOW_SERVER], cwd=project.folder, text=True)
    try:
        project.wait_until((project.folder / "port").exists, server)
        port = (project.folder / "port").read_text()
        agent = f"agent={{adapter: http, target: 'http://127.0.0.1:{port}/', concurrency: 1}}"
        running = project.start("run", "assay.yaml", "--set", agent, "--no-progress")
        project.wait_until((project.home / "assay.db").exists, running)

        def shown() -> Any:
            (run,) = json.loads(project.run("runs", "list", "--json").stdout)["runs"] or [
                {"finished_count": 0, "run_id": ""}
            ]
            return run

        project.wait_until(lambda: shown()["finished_count"] == 5, running)
        run_id = shown()["run_id"]
        document = json.loads(project.run("runs", "show", run_id, "--json").stdout)
        assert (document["partial"], document["summary"]["partial"], document["summary"]["row_count"]) == (
            True,
            True,
            5,
        )
        assert "PARTIAL: 5 of 20 rows" in project.run("runs", "show", run_id).stdout
        services = project.services()
        running.kill()
        running.communicate()
        psutil.wait_procs(services, timeout=60)
        (project.folder / "go").touch()
        done = project.run("runs", "watch", run_id, "--output-dir", "out")
        assert "20 rows" in done.stdout
        assert len(json.loads((project.folder / "out" / "results.json").read_text())["rows"]) == 20
        assert json.loads(project.run("runs", "show", run_id, "--json").stdout)["partial"] is False
    finally:
        server.kill()
        server.wait()


def test_rows_with_errors_are_retried_and_their_history_is_shown(own_stack: Cli) -> None:
    """`resume --retry-errors` tries failed rows of an ended run again; `show --history` tells what was before."""
    fine = (own_stack.folder / "agent.py").read_text()
    own_stack.write("agent.py", "def answer(request):\n    assert request.case_id != 'c3', 'boom'\n    return 'Q0'\n")
    own_stack.run("run", "assay.yaml", "--no-progress", "--set", "agent.retries=0", status=1)
    run_id = json.loads(own_stack.run("runs", "list", "--json").stdout)["runs"][0]["run_id"]
    own_stack.write("agent.py", fine)
    done = own_stack.run("runs", "resume", run_id, "--retry-errors", "--spec", "assay.yaml", status=1)
    assert "pass rate 10.0% (2 of 20)" in done.stdout
    shown = own_stack.run("runs", "show", run_id, "--history", "c3").stdout
    assert [line.split()[2] for line in shown.splitlines()] == ["outcome", "retried", "current"]
    assert "boom" in shown
    history = json.loads(own_stack.run("runs", "show", run_id, "--history", "c3", "--json").stdout)["attempts"]
    assert [attempt["row"]["answer"] for attempt in history] == ["", "Q3"]
    again = own_stack.run("runs", "resume", run_id, "--retry-errors", "--spec", "assay.yaml", status=1)
    assert "no row has an error" in again.stderr
    assert "no case 'c99'" in own_stack.run("runs", "show", run_id, "--history", "c99", status=2).stderr


AGENT = """
import pathlib, time
def answer(request):
    pathlib.Path("asked").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return request.input.upper()
"""


def held_run(project: Cli) -> str:
    """Start a run of which one question is in flight, pause it, and return its id."""
    project.write("agent.py", AGENT)
    running = project.start("run", "assay.yaml", "--set", "agent.concurrency=1", "--no-progress")
    project.wait_until((project.folder / "asked").exists, running)
    run_id = str(json.loads(project.run("runs", "list", "--json").stdout)["runs"][0]["run_id"])
    pausing = project.start("runs", "pause", run_id, "--json")
    project.wait_until(lambda: '"owner"' in project.run("runs", "show", run_id, "--json").stdout, pausing)
    (project.folder / "go").touch()
    out, err = pausing.communicate(timeout=180)
    document = json.loads(out)
    assert (document["run_id"], document["state"], document["pause_cause"]) == (run_id, "paused", "owner"), err
    running.communicate(timeout=180)
    return run_id


def lines_of(output: str) -> list[dict[str, Any]]:
    """Return the documents of which there is one on each line."""
    return [json.loads(line) for line in output.splitlines()]


def test_a_program_pauses_resumes_and_watches(own_stack: Cli) -> None:
    """Each answers with the run as `show` has it; a watch tells each event on a line, in order, and then the end."""
    run_id = held_run(own_stack)
    paused = lines_of(own_stack.run("runs", "watch", run_id, "--json", status=3).stdout)
    assert [line["event"] for line in paused] == ["run", "end"]
    assert paused[-1]["state"] == "paused"
    resumed = own_stack.run("runs", "resume", run_id, "--spec", "assay.yaml", "--json", "--output-dir", "out")
    assert json.loads(resumed.stdout) == json.loads(own_stack.run("runs", "show", run_id, "--json").stdout)
    assert len(json.loads((own_stack.folder / "out" / "results.json").read_text())["rows"]) == 20
    lines = lines_of(own_stack.run("runs", "watch", run_id, "--json").stdout)
    assert (lines[0]["event"], lines[-1]["event"]) == ("run", "end")
    cases = [line for line in lines if line["event"] == "row"]
    assert {case["case_id"] for case in cases} == {f"c{i}" for i in range(20)}
    assert all(case["scores"]["exact_match"]["value"] == 1.0 for case in cases)
    sequences = [line["sequence"] for line in lines[1:-1]]
    assert sequences == sorted(set(sequences))
    assert {"paused", "completed"} <= {line["state"] for line in lines if line["event"] == "state"}
    assert lines[-1]["summary"]["passed_count"] == 20


def test_a_program_cancels(own_stack: Cli) -> None:
    """`cancel` answers with the run too."""
    run_id = held_run(own_stack)
    document = json.loads(own_stack.run("runs", "cancel", run_id, "--json").stdout)
    assert (document["run_id"], document["state"]) == (run_id, "cancelled")


def test_a_program_asks_whether_the_machine_is_fit(cli: Cli) -> None:
    """`doctor --json` says what was looked at, and whether all of it is as it should be."""
    document = json.loads(cli.run("doctor", "--json").stdout)
    assert document["healthy"] is True
    assert [check["check"] for check in document["checks"]] == [
        "python", "assay", "path", "orchestrator", "embedder", "judge", "providers", "postgres", "parquet", "pandas",
        "otel", "prometheus", "adk", "langgraph", "pydantic-ai", "openai-agents", "state", "database", "vectors",
        "stack",
    ]  # fmt: skip
    cli.env["ASSAY_HOME"] = str(cli.write("taken", "not a folder"))
    document = json.loads(cli.run("doctor", "--json", status=3).stdout)
    assert document["healthy"] is False
    assert [check["check"] for check in document["checks"] if check["status"] == "missing"] == ["state"]
