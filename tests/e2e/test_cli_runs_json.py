"""`--json` of the commands that change and follow runs: what programs read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

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
    run_id = str(json.loads(project.run("runs", "list", "--json").stdout)[0]["run_id"])
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
    cases = [line for line in lines if line["event"] == "case"]
    assert {case["case_id"] for case in cases} == {f"c{i}" for i in range(20)}
    assert all(case["scores"]["exact_match"]["value"] == 1.0 for case in cases)
    sequences = [line["sequence"] for line in lines[1:-1]]
    assert sequences == sorted(set(sequences))
    assert {"paused", "succeeded"} <= {line["state"] for line in lines if line["event"] == "state"}
    assert lines[-1]["summary"]["passed"] == 20


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
        "otel", "prometheus", "adk", "langgraph", "pydantic-ai", "openai-agents", "state", "database", "stack",
    ]  # fmt: skip
    cli.env["ASSAY_HOME"] = str(cli.write("taken", "not a folder"))
    document = json.loads(cli.run("doctor", "--json", status=3).stdout)
    assert document["healthy"] is False
    assert [check["check"] for check in document["checks"] if check["status"] == "missing"] == ["state"]
