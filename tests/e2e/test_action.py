"""The GitHub action: its step that runs an evaluation, with the environment of a job, and its outputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.docs.guides import blocks
from tests.unit.test_printed_commands import problem_of

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


def run_step(project: Cli, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run the step in a project; return what it printed, and the outputs that it set."""
    runner = project.folder / "runner"
    (runner / "assay" / "bin").mkdir(parents=True, exist_ok=True)
    for name, command in (("python", '"$@"'), ("assay", '-m assay_cli "$@"')):
        script = runner / "assay" / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command}\n')
        script.chmod(0o755)
    outputs = project.folder / "outputs"
    outputs.unlink(missing_ok=True)
    environ = {
        **project.env,
        "RUNNER_TEMP": str(runner),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(project.folder / "summary.md"),
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_WORKSPACE": str(project.folder),
        "SPEC": ".",
        "ARGUMENTS": "",
        "KEY": "default",
        **inputs,
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS["Run the evaluation"]["run"]],
        cwd=project.folder, env=environ, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    return done, dict(line.split("=", 1) for line in outputs.read_text("utf-8").splitlines())


def test_a_run_sets_outputs_and_leaves_reports(shared_project: Cli) -> None:
    """Run id, verdict, pass rate and status are outputs; a failed gate fails no step before the reports are kept."""
    shared_project.write("agent.py", "def answer(request):\n    return 'no'\n")
    done, outputs = run_step(shared_project, ARGUMENTS="--set gates=[pass_rate>=0.99] --quick")
    assert done.returncode == 0, done.stderr
    assert outputs["verdict"] == "FAIL"
    assert outputs["pass-rate"] == "0.0000"
    assert outputs["status"] == "1"
    assert re.fullmatch(r"small-\d{8}-\d{6}-\w+", outputs["run-id"])
    reports = {path.name for path in (shared_project.folder / "runner" / "assay-report").iterdir()}
    assert {"results.json", "report.md", "junit.xml", "comment.md"} <= reports
    assert (shared_project.folder / "summary.md").read_text("utf-8").startswith("\n## FAIL: `small`")


def test_what_a_run_prints_is_no_command(shared_project: Cli) -> None:
    """Output of agent and run stands between a stop and its random end; annotations come after it."""
    shared_project.write("agent.py", "def answer(request):\n    print('::error::forged')\n    return 'no'\n")
    done, _ = run_step(shared_project, ARGUMENTS="--verbose")
    lines = done.stdout.splitlines()
    token = lines[0].removeprefix("::stop-commands::")
    assert re.fullmatch(r"[0-9a-f]{32}", token)
    end = lines.index(f"::{token}::")
    assert any(line.startswith("verdict  FAIL") for line in lines[:end])
    assert lines[end + 1].startswith("::error file=assay.yaml,line=5,title=gate FAIL")
    assert not any(line.startswith("::") for line in lines[1:end])


def test_arguments_stand_on_several_lines(shared_project: Cli) -> None:
    """Each word of each line is one argument, whatever it holds: none is code, none is a pattern of files."""
    (shared_project.folder / "a-file").touch()
    done, outputs = run_step(shared_project, ARGUMENTS="--quick\n  --label a=*\n--label\tb=$(touch${IFS}made)`id`\n")
    assert outputs["status"] == "0", done.stderr
    run = json.loads((shared_project.folder / "runner" / "assay-report" / "results.json").read_text("utf-8"))["run"]
    assert run["labels"] == {"a": "*", "b": "$(touch${IFS}made)`id`"}
    assert run["selection"]["limit"] == 10
    assert not (shared_project.folder / "made").exists()


def test_a_regression_is_an_annotation(shared_project: Cli) -> None:
    """A run that passes by itself, and is worse than its baseline, has the annotation that says so."""
    cases = [{"id": f"c{number}", "question": str(number), "answer": str(number)} for number in range(40)]
    shared_project.write("cases.json", json.dumps(cases))
    shared_project.write("agent.py", "def answer(request):\n    return request.input\n")
    common = '--dataset cases.json --set gates=["pass_rate>=0"]'
    run_step(shared_project, ARGUMENTS=common)
    (shared_project.folder / "runner" / "assay-report" / "results.json").rename(shared_project.folder / "main.json")
    shared_project.write("agent.py", "def answer(request):\n    return 'no'\n")
    done, outputs = run_step(shared_project, ARGUMENTS=f"{common}\n--against main.json")
    assert (outputs["verdict"], outputs["status"]) == ("PASS", "1"), done.stdout
    assert "\n::error title=regression::" in done.stdout
    assert "## REGRESSION: `small`" in (shared_project.folder / "summary.md").read_text("utf-8")


def test_a_wrong_spec_is_the_status_of_the_job(project: Cli) -> None:
    """The status of the command is an output; nothing else is set where no run ended."""
    done, outputs = run_step(project, SPEC="missing.yaml")
    assert outputs == {"status": "2"}
    assert done.returncode == 0
    assert STEPS["Decide"]["run"] == 'exit "$STATUS"'


def test_the_action_puts_no_input_into_a_script() -> None:
    """Inputs reach scripts as variables: a value with quotes and dollars is no code."""
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")
    assert set(ACTION["outputs"]) == {"run-id", "verdict", "pass-rate", "status"}
    assert os.access(ROOT / "tools" / "action_comment.py", os.R_OK)


def test_the_guide_names_inputs_and_outputs_that_there_are() -> None:
    """Workflow and tables of docs/ci.md fit the action."""
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    workflow, job = (yaml.safe_load(block.text) for block in blocks("docs/ci.md", "yaml"))
    (step,) = [step for step in workflow["jobs"]["evaluate"]["steps"] if step.get("id") == "evaluation"]
    assert set(step["with"]) <= set(ACTION["inputs"])
    assert set(re.findall(r"steps\.evaluation\.outputs\.([\w-]+)", page)) <= set(ACTION["outputs"])
    assert set(re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE)) == set(ACTION["inputs"])
    assert job["evaluate"]["artifacts"]["reports"]["junit"] in job["evaluate"]["script"][0]


def test_commands_of_the_guide_are_taken() -> None:
    """The commands of GitLab's job and of Jenkins' pipeline have options that there are."""
    (pipeline,) = blocks("docs/ci.md", "groovy")
    _, job = (yaml.safe_load(block.text) for block in blocks("docs/ci.md", "yaml"))
    (command,) = re.findall(r"sh '(.+)'", pipeline.text)
    for line in (command, *job["evaluate"]["script"]):
        assert problem_of(line.split()[1:]) == "", line


@pytest.mark.parametrize("name", ["action_comment", "action_outputs"])
def test_scripts_of_the_action_need_python_alone(name: str) -> None:
    """They run before anything is installed: without site packages they import."""
    code = f"import runpy; runpy.run_path({str(ROOT / 'tools' / (name + '.py'))!r}, run_name='imported')"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
