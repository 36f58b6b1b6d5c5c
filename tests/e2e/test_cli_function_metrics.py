"""Metrics in Python code through the command: validated, computed, reported, and not computed again after a kill."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psutil
import yaml

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

METRICS = """
import assay
def right(answer, reference):
    return assay.MetricResult(float(answer == reference), f"due is {reference}")
async def short(text):
    return len(text) < 3
def flawed(case):
    if case.case_id == "c3":
        raise LookupError("no such thing")
    return 1
"""
SPEC: dict[str, Any] = {
    "name": "small",
    "dataset": "qa.jsonl",
    "agent": {"adapter": "python", "target": "agent:answer"},
    "metrics": ["exact_match", {"right": {"function": "metrics:right", "threshold": 0.9}}, "metrics.py:short"],
    "gates": ["right >= 0.9"],
}
WAITING = """
import pathlib, time
def right(answer, reference, case):
    with open("called.txt", "a") as file:
        file.write(case.case_id + "\\n")
    while case.case_id == "c10" and not pathlib.Path("go").exists():
        time.sleep(0.01)
    return float(answer == reference)
"""
COUNTING_AGENT = """
def answer(request):
    with open("asked.txt", "a") as file:
        file.write(request.case_id + "\\n")
    return request.input.upper()
"""


def report_of(project: Cli) -> dict[str, Any]:
    """Return the report in the folder `out`."""
    document: dict[str, Any] = json.loads((project.folder / "out" / "results.json").read_text(encoding="utf-8"))
    return document


def test_a_spec_names_functions(shared_project: Cli) -> None:
    """Values, reasons and verdicts are in the report, and a gate on them decides; entries may be the function alone."""
    shared_project.write("metrics.py", METRICS)
    shared_project.write("assay.yaml", SPEC)
    assert "metric   right: metrics:right found" in shared_project.run("validate").stdout
    done = shared_project.run("run", "--output-dir", "out")
    assert "right >= 0.9  actual 1" in done.stdout
    report = report_of(shared_project)
    row = next(row for row in report["rows"] if row["case_id"] == "c12")
    assert row["scores"]["right"]["detail"]["reasoning"] == "due is Q12"
    assert (row["scores"]["short"]["value"], row["passed"]) == (0.0, False)
    only = shared_project.run("run", "--metrics", "short", "--set", "gates=[]", "--json", status=None)
    assert set(json.loads(only.stdout)["rows"][0]["scores"]) == {"short"}


def test_a_corrected_function_scores_stored_answers(shared_project: Cli) -> None:
    """The summary names no retry, which would raise again; its command works as printed, and asks no agent."""
    shared_project.write("agent.py", COUNTING_AGENT)
    shared_project.write("metrics.py", METRICS.replace("return assay.Met", "raise LookupError('no') or assay.Met"))
    shared_project.write("my spec.yaml", SPEC)
    failed = shared_project.run("run", "my spec.yaml", "--no-progress", status=3).stdout
    assert "--retry-errors" not in failed
    printed = next(part for part in failed.split("`") if part.startswith("assay rescore "))
    shared_project.write("metrics.py", METRICS)
    asked = (shared_project.folder / "asked.txt").read_text("utf-8")
    again = shared_project.run(*shlex.split(printed)[1:], "--output-dir", "out")
    assert "right >= 0.9  actual 1" in again.stdout
    assert "completed" not in again.stdout, "the summary is the result"
    assert report_of(shared_project)["run"]["source_run_id"] in printed
    assert (shared_project.folder / "asked.txt").read_text("utf-8") == asked
    others = ("--metrics", "rouge", "--set", "gates=['rouge >= 0.9']", "--quiet")
    assert "PASS" in shared_project.run("rescore", "latest", *others).stdout
    # A rescored run is compared with a baseline as any run is.
    compared = shared_project.run(*shlex.split(printed)[1:], "--against", report_of(shared_project)["run"]["run_id"])
    assert "against the baseline is inconclusive" in compared.stdout
    refused = shared_project.run("rescore", "latest", "--primary", "x", status=2)
    assert "--primary says how a run is compared" in refused.stderr


def test_an_error_of_a_function_is_shown_with_its_reason(shared_project: Cli) -> None:
    """The summary says what the function raised, and `--verbose` its traceback; the run is incomplete."""
    shared_project.write("metrics.py", METRICS)
    shared_project.write("assay.yaml", {**SPEC, "metrics": [{"flawed": {"function": "metrics:flawed", "threshold": 1}}],
                                        "gates": ["flawed >= 1"], "max_metric_errors": 0})  # fmt: skip
    done = shared_project.run("run", "--output-dir", "out", status=3)
    assert "errors  flawed on 1 of 20 rows: LookupError: no such thing" in done.stdout
    assert 'raise LookupError("no such thing")' in done.stdout
    assert "Traceback" in report_of(shared_project)["rows"][3]["scores"]["flawed"]["detail"]["traceback"]


def test_every_problem_of_functions_is_named_before_the_run(shared_project: Cli) -> None:
    """Missing functions, wrong parameters and wrong places, at once and before anything is asked."""
    shared_project.write("metrics.py", "def wrong(zzz): return 1\nclass Kind: pass\n")
    entries: list[Any] = ["metrics:rong", "metrics:wrong", {"kind": {"function": "metrics:Kind"}}, "nowhere:f"]
    shared_project.write("assay.yaml", {**SPEC, "metrics": entries, "gates": []})
    for command in ("validate", "run"):
        said = shared_project.run(command, status=2).stderr
        assert "metrics has no 'rong'; did you mean 'wrong'?" in said
        assert "has the parameter 'zzz', and a metric receives answer, text" in said
        assert "'metrics:Kind' is a class" in said
        assert "there is no module 'nowhere'" in said
    shared_project.write("assay.yaml", {**SPEC, "metrics": ["a b:c d", "metrics:rong", "exact_mach"], "gates": []})
    said = shared_project.run("validate", status=2).stderr
    assert "metrics has no 'rong'" in said
    assert "did you mean 'exact_match'?" in said
    listed = json.loads(shared_project.run("validate", "--json", status=2).stdout)
    assert len(listed["problems"]) >= 3


def test_init_writes_metrics_that_run_as_they_are(shared_project: Cli) -> None:
    """The entries that it prints, added to a spec, make a run; nothing that exists is overwritten."""
    done = shared_project.run("init", "--metric")
    assert "wrote metrics.py" in done.stdout
    entries = yaml.safe_load(done.stdout.partition("metrics:\n")[2].join(["metrics:\n", ""]))["metrics"]
    shared_project.write("assay.yaml", {**SPEC, "metrics": entries, "gates": ["helpfulness >= 0.5"]})
    shared_project.run("validate")
    shared_project.run("run", "--output-dir", "out")
    scores = report_of(shared_project)["rows"][0]["scores"]
    assert (scores["helpfulness"]["value"], scores["is_brief"]["passed"]) == (1.0, True)
    assert scores["helpfulness"]["detail"]["reasoning"] == "lacks nothing"
    assert "--force" in shared_project.run("init", "--metric", status=2).stderr
    assert "leave out PRESET" in shared_project.run("init", "rag", "--metric", status=2).stderr
    assert "assay init --metric" in shared_project.run("metrics", "list").stdout


def waiting(project: Cli) -> tuple[subprocess.Popen[str], set[str]]:
    """Start a run whose function hangs on the row c10; return it with the rows that were stored by then."""
    project.write("agent.py", COUNTING_AGENT)
    project.write("metrics.py", WAITING)
    project.write("assay.yaml", {**SPEC, "metrics": [{"right": {"function": "metrics:right", "threshold": 0.9}}]})
    process = project.start("run", "assay.yaml", "--set", "agent.concurrency=2", "--output-dir", "out")
    listed = project.folder / "called.txt"

    def stored() -> bool:
        if not listed.exists() or len(listed.read_text().split()) < 20:
            return False
        with closing(sqlite3.connect(f"file:{project.home}/assay.db?mode=ro", uri=True)) as database:
            count: int = database.execute("SELECT count(*) FROM results").fetchone()[0]
        return count == 19

    project.wait_until(stored, process)
    return process, set(listed.read_text().split()) - {"c10"}


def test_a_killed_command_is_resumed_without_calling_functions_again(project: Cli) -> None:
    """kill -9 of the command in the middle: the answers and values that are stored stay, the open row is computed."""
    process, stored = waiting(project)
    process.kill()
    process.communicate()
    (run_id,) = [run["run_id"] for run in json.loads(project.run("runs", "list", "--json").stdout)["runs"]]
    assert "metrics.py" not in project.run("runs", "resume", run_id, status=2).stderr
    project.write("other.yaml", {**SPEC, "metrics": [{"right": {"function": "other:right", "threshold": 0.9}}]})
    refused = project.run("runs", "resume", run_id, "--spec", "other.yaml", status=2).stderr
    assert f"right: is 'metrics:right' in run {run_id}, and 'other:right' in this spec" in refused
    (project.folder / "called.txt").unlink()
    (project.folder / "go").touch()
    project.run("runs", "resume", run_id, "--spec", "assay.yaml", "--output-dir", "out")
    assert len(stored) == 19
    assert (project.folder / "called.txt").read_text().split() == ["c10"]
    assert len((project.folder / "asked.txt").read_text().split()) == 20
    assert report_of(project)["summary"]["overall_status"] == "PASS"


def test_a_killed_orchestrator_calls_no_function_for_a_stored_row(project: Cli) -> None:
    """kill -9 of the orchestrator in the middle: the command attaches again, and only the open row is computed."""
    process, _ = waiting(project)
    (orchestrator,) = project.services()
    orchestrator.kill()
    psutil.wait_procs([orchestrator], timeout=60)
    (project.folder / "go").touch()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, f"{out}\n{err}"
    called = (project.folder / "called.txt").read_text().split()
    assert sorted(called, key=lambda case: int(case[1:])).count("c10") in (1, 2)  # it was in flight
    assert len([case for case in called if case != "c10"]) == 19
    assert len((project.folder / "asked.txt").read_text().split()) == 20


EVALUATION = """
import json
import assay

def right(answer, reference):
    return answer == reference

own = {"right": {"function": right, "higher_is_better": True}}
listed = {"right": {"threshold": 0.5}}
cases = [{"question": "a", "answer": "A"}, {"question": "b", "answer": "nope"}]
spec = {"metrics": ["latency", listed]}
found = assay.evaluate(spec, lambda question: question.upper(), metrics=own, dataset=cases)
of_file = assay.evaluate("assay.yaml", metrics={"right": lambda answer: 0.25}, progress=False)
print(json.dumps([found.metrics["right"].value, found.metrics["right"].passed_count, of_file.metrics["right"].value]))
"""


def test_evaluate_takes_functions(shared_project: Cli) -> None:
    """In place of those that a file names, and with the parameters that a mapping lists."""
    shared_project.write("metrics.py", METRICS)
    shared_project.write("assay.yaml", SPEC)
    done = subprocess.run(
        [sys.executable, "-c", EVALUATION],
        cwd=shared_project.folder,
        env=shared_project.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0.5, 1, 0.25]


def test_functions_score_recorded_answers(shared_project: Cli) -> None:
    """With an agent that no client hosts, the command stays attached for the metrics alone."""
    lines = [json.dumps({"id": f"c{i}", "question": "q", "answer": "A", "recorded": {"text": "A"}}) for i in range(5)]
    shared_project.write("qa.jsonl", "\n".join(lines))
    shared_project.write("metrics.py", METRICS)
    shared_project.write("assay.yaml", {**SPEC, "agent": {"adapter": "replay"}})
    done = shared_project.run("run", "--output-dir", "out")
    assert "right >= 0.9  actual 1" in done.stdout
