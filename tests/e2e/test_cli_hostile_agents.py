"""Python agents through `assay run`: what they receive and return, and rows of questions on which they misbehave."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


AGENT = """
import os, subprocess, sys, threading

def misbehave(question):
    match question:
        case "raise": raise KeyError("no such key")
        case "hang": threading.Event().wait()
        case "exit": sys.exit("bye")
        case "print": print("leaked " * 1000, flush=True); sys.stderr.write("also here\\n")
        case "child": subprocess.run([sys.executable, "-c", "print('leaked by a child')"], check=True)
        case "fork": os.fork()
        case "huge": return "x" * 200_000_000
        case "huge pieces": return ("x" * 1_000_000 for _ in range(200))
        case "close": sys.stdout.close()
        case "stdin": sys.stdin.read()
        case "nothing": return None
        case "endless": return iter_endless()
    return question

def iter_endless():
    while True:
        yield ""

class Agent:
    def answer(self, question):
        return misbehave(question)

    def close(self):
        raise RuntimeError("cannot close")

async def answer(question):
    return misbehave(question) if question != "hang" else await never()

async def never():
    import asyncio
    await asyncio.Event().wait()
"""
REASONS = {
    "raise": "KeyError: 'no such key'",
    "hang": "no answer within 3 s",
    "exit": "SystemExit: bye",
    "huge": "larger than 2 MiB",
    "huge pieces": "larger than 2 MiB",
    "nothing": "nothing (None or null)",
    "endless": "no answer within 3 s",
}
ANSWERED = ["first", "print", "child", "fork", "close", "stdin", "last"]


@pytest.mark.parametrize("target", ["misbehave", "Agent", "answer"])
def test_each_question_that_goes_wrong_is_a_row_of_its_own(cli: Cli, target: str) -> None:
    """Functions, classes and coroutines: one error row with a reason each; stdout holds the report and nothing else."""
    questions = [ANSWERED[0], *REASONS, *ANSWERED[1:]]
    cli.write("cases.json", json.dumps([{"id": text, "input": text, "references": [text]} for text in questions]))
    cli.write("agent.py", AGENT)
    agent = {"adapter": "python", "target": f"agent:{target}", "timeout": "3s", "retries": 0, "concurrency": 4}
    spec = {"dataset": "cases.json", "agent": agent, "metrics": ["exact_match"], "max_agent_errors": "100%"}
    cli.write("assay.yaml", {**spec, "name": "hostile", "gates": ["pass_rate >= 0"], "reports": ["json"]})
    done = cli.run("run", "assay.yaml", "--json", status=0)
    rows = {row["case_id"]: row for row in json.loads(done.stdout)["rows"]}
    assert len(rows) == len(questions)
    for text, reason in REASONS.items():
        assert rows[text]["status"] == "error", text
        assert reason in rows[text]["message"]
    assert {text: (rows[text]["status"], rows[text]["answer"]) for text in ANSWERED} == {
        text: ("success", text) for text in ANSWERED
    }


def rows_of(project: Cli, agent: str, *, status: int | None) -> list[dict[str, Any]]:
    """Return the rows of a run of three cases with an agent."""
    project.write("agent.py", agent)
    project.run("run", "assay.yaml", "--limit", "3", "--output-dir", "out", status=status)
    rows: list[dict[str, Any]] = json.loads((project.folder / "out" / "results.json").read_text())["rows"]
    return rows


@pytest.mark.parametrize(
    "agent",
    [
        "def answer(request):\n    return {'output': request.input.upper()}\n",
        "TABLE = {'q0': 'Q0', 'q1': 'Q1', 'q2': 'Q2'}\ndef answer(question):\n    return {'answer': TABLE[question]}\n",
        "def answer(words: str):\n    return words.upper()\n",
        "def answer(request):\n    return f'{request}'.upper()\n",
    ],
    ids=["output", "question", "typed", "str"],
)
def test_the_usual_ways_to_write_an_agent_work(shared_project: Cli, agent: str) -> None:
    """Texts under other names are scored, and a parameter that is named as a question receives the text."""
    rows = rows_of(shared_project, agent, status=0)
    assert [row["passed"] for row in rows] == [True] * 3


def test_an_answer_without_a_text_is_an_agent_error(shared_project: Cli) -> None:
    """It names the fields that were there; nothing is scored as an empty answer."""
    agent = "def answer(request):\n    return {'reply': request.input.upper(), 'sources': ['a']}\n"
    rows = rows_of(shared_project, agent, status=None)
    assert {row["status"] for row in rows} == {"error"}
    assert all("its fields are 'reply', 'sources'" in row["message"] for row in rows)


@pytest.mark.parametrize(("error", "calls"), [("KeyError('missing')", 1), ("OSError('the line is busy')", 3)])
def test_errors_of_the_code_are_not_retried(shared_project: Cli, error: str, calls: int) -> None:
    """With the default of two retries a KeyError costs one call for each case, what may pass three."""
    lines = ["def answer(request):", "    with open('asked.txt', 'a') as file:", "        file.write('x')"]
    rows = rows_of(shared_project, "\n".join([*lines, f"    raise {error}", ""]), status=None)
    assert {row["status"] for row in rows} == {"error"}
    assert len((shared_project.folder / "asked.txt").read_text()) == 3 * calls
