"""The parts of a report that must not depend on the adapter of the agent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
import json, sys
from types import SimpleNamespace
from agent import answer
for line in sys.stdin:
    question = json.loads(line)
    try:
        found = answer(SimpleNamespace(**question))
    except RuntimeError as problem:
        found = {"error": str(problem)}
    print(json.dumps({**found, "request_id": question["request_id"]}), flush=True)
"""
"""A program that calls `answer` of the agent.py beside it."""


def results_without_times(folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return the rows and aggregates of a report without the figures that differ between runs."""
    report = json.loads((folder / "results.json").read_text())
    names = ("case_id", "repeat", "status", "passed", "answer", "scores")
    rows = [{name: row[name] for name in names} for row in report["rows"]]
    return sorted(rows, key=lambda row: (row["case_id"], row["repeat"])), report["results"]
