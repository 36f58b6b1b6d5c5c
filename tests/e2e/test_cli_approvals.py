"""Approvals through the command: refused before anything is asked, kept in the report, recorded and replayed."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

AGENT = """
from dataclasses import asdict

from assay.model.answers.approvals import ScriptedApprovals
from assay.model.answers.interrupts import Interrupt, InterruptKind


def answer(request):
    open("asked", "a").write(request.case_id)
    script = ScriptedApprovals(request.approvals)
    said = [script.decide(Interrupt(tool=tool, kind=InterruptKind.APPROVAL)) for tool in request.input.split()]
    text = ", ".join(decision.reason or "done" for decision in said if decision)
    status = "interrupted" if script.is_waiting else "success"
    return {"status": status, "text": text, "interrupts": [asdict(stop) for stop in script.interrupts]}


def by_text(question):
    return question
"""
CASES: list[dict[str, Any]] = [
    {"id": "one", "question": "refund", "answer": "done"},
    {"id": "own", "question": "refund", "answer": "too much", "approvals": [{"tool": "refund", "deny": "too much"}]},
    {
        "id": "talk",
        "turns": [{"input": "refund", "references": ["done"]}, {"input": "mail", "references": ["no mails"]}],
    },
    {"id": "open", "question": "refund sell", "answer": "done, done"},
]
APPROVALS: list[dict[str, Any]] = [
    {"tool": "refund", "approve": True},
    {"tool": "mail", "deny": "no mails"},
    {"tool": "sel", "approve": True},
]
SPEC: dict[str, Any] = {
    "name": "approvals",
    "dataset": "cases.jsonl",
    "agent": {"adapter": "python", "target": "agent:answer"},
    "metrics": ["exact_match"],
    "max_agent_errors": "100%",
    "approvals": APPROVALS,
}
MODEL = {"adapter": "openai", "target": "m", "prompt": "p"}
BY_TEXT = {"adapter": "python", "target": "agent:by_text"}


def written(cli: Cli, **changes: Any) -> None:
    cli.write("cases.jsonl", "\n".join(map(json.dumps, CASES)))
    cli.write("agent.py", AGENT)
    cli.write("assay.yaml", {**SPEC, **changes})


def rows_of(cli: Cli, folder: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what the report has of each row that comes from the agent, and its notes."""
    report = json.loads((cli.folder / folder / "results.json").read_text("utf-8"))
    kept = ("case_id", "status", "answer", "passed", "message")
    rows = [
        {name: row[name] for name in kept}
        | {
            "stops": [
                row["response"].get("interrupts"),
                *[turn["response"].get("interrupts") for turn in row.get("turns", ())],
            ]
        }
        for row in report["rows"]
    ]
    return rows, report["summary"]["notes"]


def test_decisions_are_kept_recorded_and_replayed(shared_cli: Cli) -> None:
    """Every stop is in the report with its decision; a replay has the same rows without the agent."""
    written(shared_cli)
    for folder in ("out", "again"):
        shutil.rmtree(shared_cli.folder / folder, ignore_errors=True)
    done = shared_cli.run("run", "assay.yaml", "--output-dir", "out", "--record", "recorded.jsonl", status=None)
    assert done.returncode == 1, done.stdout
    rows, notes = rows_of(shared_cli, "out")
    report = json.loads((shared_cli.folder / "out/results.json").read_text("utf-8"))
    assert report["config"]["approvals"] == [{**item, "times": "unlimited"} for item in APPROVALS]
    stop = {"kind": "approval", "tool": "refund"}
    approved = {**stop, "decision": "approve"}
    one, own, talk, waiting = rows
    assert (one["answer"], one["stops"]) == ("done", [[approved]])
    assert (own["answer"], own["stops"]) == ("too much", [[{**stop, "decision": "deny"}]])
    assert (talk["answer"], talk["stops"][1]) == ("no mails", [approved])
    assert (waiting["status"], waiting["stops"]) == ("interrupted", [[approved, {"kind": "approval", "tool": "sell"}]])
    assert "sell" in waiting["message"]
    assert [row["passed"] for row in rows] == [True, True, True, False]
    assert any("approvals name sel, at which no row stopped" in note for note in notes)
    assert "approvals name sel, at which no row stopped" in done.stdout

    (shared_cli.folder / "asked").unlink()
    replay = {"adapter": "replay"}
    written(shared_cli, agent=replay, dataset="recorded.jsonl")
    shared_cli.run("run", "assay.yaml", "--output-dir", "again", status=1)
    again, notes_again = rows_of(shared_cli, "again")
    assert (again, notes_again) == (rows, notes)
    assert not (shared_cli.folder / "asked").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"approvals": [{"approve": True, "deny": "x"}, {"edit": 1}]},
            ["assay.yaml:1: approvals[0]: decides approve and deny", "approvals[1].edit: must be a mapping"],
        ),
        (
            {"agent": {"adapter": "openai", "target": "m", "prompt": "p"}},
            ["approvals: the openai adapter asks a model once"],
        ),
        (
            {"agent": {"adapter": "python", "target": "agent:by_text"}},
            ["approvals: the agent receives the question alone"],
        ),
        (
            {"agent": {"adapter": "python", "target": "agent:by_text"}, "approvals": None},
            ["1 of 4 cases have `approvals`, and the agent receives the question alone"],
        ),
    ],
)
def test_wrong_approvals_are_refused_before_anything_is_asked(
    shared_cli: Cli, changes: dict[str, Any], said: list[str]
) -> None:
    """By `assay validate` and by `assay run`, all problems at once."""
    written(shared_cli, **changes)
    for command in ("validate", "run"):
        done = shared_cli.run(command, "assay.yaml", status=2)
        assert [text for text in said if text not in done.stderr] == [], done.stderr
