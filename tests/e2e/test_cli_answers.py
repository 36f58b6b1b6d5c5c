"""What Python agents receive and return, seen through `assay run`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


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
    assert all("its fields are 'reply', 'sources'" in row["reason"] for row in rows)


@pytest.mark.parametrize(("error", "calls"), [("KeyError('missing')", 1), ("OSError('the line is busy')", 3)])
def test_errors_of_the_code_are_not_retried(shared_project: Cli, error: str, calls: int) -> None:
    """With the default of two retries a KeyError costs one call for each case, what may pass three."""
    lines = ["def answer(request):", "    with open('asked.txt', 'a') as file:", "        file.write('x')"]
    rows = rows_of(shared_project, "\n".join([*lines, f"    raise {error}", ""]), status=None)
    assert {row["status"] for row in rows} == {"error"}
    assert len((shared_project.folder / "asked.txt").read_text()) == 3 * calls
