"""`assay.evaluate` over the local stack."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.docs.guides import blocks

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

PROGRAM = """
import json
import assay

def agent(request):
    return request.input.upper()

cases = [{"question": "a", "answer": "A"}, {"question": "b", "answer": "nope"}]
seen = []
result = assay.evaluate({"name": "api", "metrics": ["exact_match"]}, agent, dataset=cases, on_event=seen.append)
print(json.dumps({
    "pass_rate": result.summary.pass_rate,
    "answers": [row.response.text for row in result.rows],
    "events": len(seen),
}))
"""


def test_evaluate_runs_a_function_over_cases_in_memory(cli: Cli) -> None:
    """A callable and a list of cases give summary, rows and events; no service is left behind."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=cli.folder, env=cli.env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"pass_rate": 0.5, "answers": ["A", "B"], "events": 5}


def test_the_agent_server_of_the_guide_is_evaluated(shared_cli: Cli) -> None:
    """docs/agent-service.md as printed: function, server and evaluation in one script, and no line of noise."""
    served, evaluated = blocks("docs/agent-service.md", "python")
    program = served.text.partition("assay.agent_server")[0] + evaluated.text
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=shared_cli.folder, env=shared_cli.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr


def test_evaluate_warns_of_what_is_odd_about_cases_in_memory(shared_cli: Cli) -> None:
    """Without a file whose reading is kept with the run, nobody else would ever say it; nor are files silent."""
    program = (
        "import assay\n"
        "cases = [{'question': 'a', 'answer': 'a'}, {'question': 'b', 'answer': 'b', 'skip': True}]\n"
        "found = assay.evaluate({'metrics': ['exact_match']}, lambda request: request.input, dataset=cases)\n"
        "print(found.summary.pass_rate)\n"
    )
    (shared_cli.folder / "mine.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=shared_cli.folder, env=shared_cli.env, capture_output=True, text=True
    )
    assert done.stdout.strip() == "1.0", done.stderr
    assert "mine.py:3: DatasetWarning: 1 record is skipped: `skip` is true" in done.stderr


def test_evaluate_cannot_pass_where_wrong_cases_were_left_out(shared_cli: Cli) -> None:
    """With `on_bad_case: skip` the rest is run, and the verdict is that of the command: INCOMPLETE, 3."""
    program = (
        "import assay, json\n"
        "cases = [{'question': 'a', 'answer': 'a'}, {'id': 'c', 'answer': 'x'}]\n"
        "spec = {'metrics': ['exact_match'], 'on_bad_case': 'skip'}\n"
        "found = assay.evaluate(spec, lambda request: request.input, dataset=cases)\n"
        "print(json.dumps([found.passed, found.exit_status, found.reasons, found.run.spec.dataset.file]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=shared_cli.folder, env=shared_cli.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [False, 3, ["1 bad record of the dataset left out"], "records"]


def test_evaluate_refuses_wrong_input_before_anything_starts(cli: Cli) -> None:
    """A wrong spec raises with every problem, and no state directory is made."""
    program = (
        "import assay\n"
        "spec = {'metrics': ['exact_mach'], 'repeats': 0}\n"
        "try: assay.evaluate(spec, lambda question: question, dataset=[{'question': 'a'}])\n"
        "except assay.AssayError as error: print(len(error.problems), error)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=cli.folder, env=cli.env, capture_output=True, text=True)
    assert done.stdout.startswith("2 "), done.stderr
    assert "did you mean 'exact_match'" in done.stdout
    assert not cli.home.exists()


def python(cli: Cli, program: str, *, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program of a user's in the folder of a test."""
    (cli.folder / "mine.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=cli.folder, env=cli.env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == status, done.stderr
    return done


def test_evaluate_works_where_an_event_loop_runs(shared_cli: Cli) -> None:
    """As in a notebook; with the caller's context, and with warnings at the caller's line."""
    program = """
import asyncio, contextvars, assay
who = contextvars.ContextVar("who")
cases = [{"question": "a", "answer": "a of me"}, {"question": "b", "answer": "b", "skip": True}]
async def agent(question):
    return f"{question} of {who.get()}"
async def cell():
    who.set("me")
    return assay.evaluate({"metrics": ["exact_match"]}, agent, dataset=cases)
print(asyncio.run(cell()).summary.pass_rate)
"""
    done = python(shared_cli, program)
    assert done.stdout == "1.0\n"
    assert "mine.py:9: DatasetWarning: 1 record is skipped" in done.stderr


@pytest.mark.parametrize("call", ["call()", "asyncio.run(cell())"], ids=["script", "notebook"])
def test_ctrl_c_ends_an_evaluation(cli: Cli, call: str) -> None:
    """One interrupt is enough, also in a running loop, whose own handler only cancels what waits; nothing is left."""
    program = f"""
import asyncio, pathlib, assay
async def agent(question):
    pathlib.Path("asked").touch()
    await asyncio.Event().wait()
def call():
    assay.evaluate({{"metrics": ["exact_match"]}}, agent, dataset=[{{"question": "a", "answer": "a"}}])
async def cell():
    call()
{call}
"""
    (cli.folder / "mine.py").write_text(program)
    process = subprocess.Popen(
        [sys.executable, "mine.py"], cwd=cli.folder, env=cli.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    cli.wait_until((cli.folder / "asked").exists, process)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT, err
    assert err.rstrip().endswith("KeyboardInterrupt")


def test_evaluate_shows_progress_unless_events_go_elsewhere(shared_cli: Cli) -> None:
    """On stderr, as the command does, and never on stdout; `progress` decides where it is given."""
    program = """
import sys, assay
for arguments in ({}, {"progress": False}, {"on_event": str}, {"on_event": str, "progress": True}):
    assay.evaluate({"name": "shown", "metrics": ["exact_match"]}, lambda question: question,
                   dataset=[{"question": "a", "answer": "a"}], **arguments)
    print("---", file=sys.stderr, flush=True)
"""
    done = python(shared_cli, program)
    default, off, listened, both = done.stderr.split("---\n")[:4]
    assert default.startswith("run shown-")
    assert "1/1 cases  100.0% passed" in default
    assert (off, listened) == ("", "")
    assert both.count("\n") == default.count("\n")
    assert done.stdout == ""


def test_evaluate_writes_the_report_of_the_command(shared_cli: Cli) -> None:
    """The same document for the same spec, but for ids, times and latencies; the rows are returned as well."""
    shared_cli.write("agent.py", "def answer(question):\n    return question.upper()\n")
    shared_cli.write("qa.jsonl", "".join(f'{{"id": "c{i}", "question": "q{i}", "answer": "Q{i}"}}\n' for i in range(3)))
    shared_cli.write(
        "assay.yaml",
        "name: small\ndataset: qa.jsonl\nagent: {adapter: python, target: 'agent:answer'}\n"
        "metrics: [exact_match]\ngates: ['pass_rate >= 0.9']\n",
    )
    shared_cli.run("run", "assay.yaml", "--output-dir", "command")
    done = python(shared_cli, "import assay\nprint(len(assay.evaluate('assay.yaml', output_dir='api').rows))")
    assert done.stdout == "3\n"
    texts = [(shared_cli.folder / name / "results.json").read_text() for name in ("command", "api")]
    command, api = (json.loads(text, object_hook=without_changing) for text in texts)
    assert api == command
    assert command["rows"][2]["answer"] == "Q2"


def without_changing(found: dict[str, object]) -> dict[str, object]:
    """Leave out what two equal runs do not share: ids, what a clock has told, and the digest of both."""
    changing = {"run_id", "dataset_id", "timestamp", "latency", "latency_ms", "duration_ms"}
    changing |= {"created_at", "started_at", "ended_at", "digest"}
    return {key: value for key, value in found.items() if key not in changing}
