"""Recorded answers of several repeats, and questions without an answer, as `assay run` prints them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


def write(cli: Cli, records: list[dict[str, Any]], **spec: Any) -> None:
    """Write a dataset and a spec."""
    cli.write("qa.jsonl", "\n".join(map(json.dumps, records)))
    cli.write("assay.yaml", {"name": "r", "dataset": "qa.jsonl", "agent": {"adapter": "replay"}, **spec})


def report(cli: Cli) -> dict[str, Any]:
    """Return the report of the run."""
    found: dict[str, Any] = json.loads((cli.folder / "out" / "results.json").read_text())
    return found


def test_each_repeat_has_the_answer_that_was_recorded_for_it(shared_cli: Cli) -> None:
    """`recorded` as a list: one row each, in order; `assay score` scores all of them."""
    record = {"id": "a", "question": "q", "reference": "yes", "recorded": ["yes", {"text": "no"}, "yes"]}
    write(shared_cli, [record], metrics=["exact_match"], repeats=3, gates=["exact_match >= 0.6"])
    shared_cli.run("run", "assay.yaml", "--output-dir", "out")
    assert [row["answer"] for row in report(shared_cli)["rows"]] == ["yes", "no", "yes"]
    scored = shared_cli.run("score", "exact_match", "--file", "qa.jsonl", "--json")
    assert json.loads(scored.stdout)["summary"]["n_scored"] == 3


def test_recorded_answers_that_do_not_fit_the_repeats_are_told(cli: Cli) -> None:
    """Too few are refused by their case; one for all repeats is a warning where they are compared."""
    write(cli, [{"id": "a", "question": "q", "recorded": ["x", "y"]}], metrics=["latency"], repeats=3)
    refused = cli.run("validate", "assay.yaml", status=2).stderr
    assert "case a: holds 2 recorded answers, and the run has 3 repeats" in refused
    write(cli, [{"id": "a", "question": "q", "recorded": "x"}], metrics=["consistency"], repeats=3)
    said = cli.run("validate", "assay.yaml").stdout
    assert "1 of 1 cases have a single recorded answer, which all repeats share" in said
    write(cli, [{"id": "a", "question": "q", "recorded": ["x", "y", "z"]}], metrics=["consistency"], repeats=3)
    assert "warning" not in cli.run("validate", "assay.yaml").stdout


def test_questions_without_an_answer_are_counted_apart(shared_cli: Cli) -> None:
    """The console has their count and how many were declined; a gate may be on it; invented events raise nothing."""
    found = {"text": "Here", "events": [{"title": "E"}]}
    records = [
        {"id": "a", "question": "q", "recorded": found},
        {"id": "b", "question": "q", "recorded": {"text": "Here", "events": []}},
        {"id": "c", "question": "q", "category": "out_of_scope", "recorded": {"text": "I do not know."}},
        {"id": "d", "question": "q", "category": "out_of_scope", "recorded": found},
    ]
    gates = ["coverage >= 0.5", "coverage.declined_rate >= 0.5"]
    write(shared_cli, records, metrics=["coverage"], gates=gates)
    done = shared_cli.run("run", "assay.yaml", "--output-dir", "out")
    assert "coverage  2 rows unanswerable (50.0%), not in the rate: 1 declined" in done.stdout
    assert "gate  PASS  coverage.declined_rate >= 0.5  actual 0.5" in done.stdout
    result = report(shared_cli)["results"]["coverage"]
    assert (result["value"], result["n_scored"], result["unanswerable"], result["declined"]) == (0.5, 2, 2, 1)
    scores = [row["scores"]["coverage"] for row in report(shared_cli)["rows"]]
    assert [score["reason"] for score in scores] == [None, "nothing_retrieved", "unanswerable", "unanswerable"]
