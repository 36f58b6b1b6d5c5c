"""`assay runs show --where` and `assay runs list --where`, as people and programs read what they print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

CASES = [
    {"id": "c1", "question": "one?", "reference": "yes", "recorded": "yes", "category": "a", "tags": ["t"]},
    {"id": "c2", "question": "two?", "reference": "yes", "recorded": "no", "category": "a"},
    {"id": "c3", "question": "three?", "reference": "yes", "recorded": "no \x1b[31m", "category": "b\x1b[2J"},
    {"id": "c4", "question": "four?", "recorded": "so"},
]
SPEC = {
    "agent": {"adapter": "replay"},
    "dataset": "qa.jsonl",
    "metrics": ["exact_match"],
    "gates": ["pass_rate >= 0"],
}


def test_rows_and_runs_are_found_by_filters(shared_cli: Cli) -> None:
    """Tables end with how many rows meet the filter; what is wrong with a text is said with its place in it."""
    cli = shared_cli
    cli.write("qa.jsonl", "\n".join(map(json.dumps, CASES)))
    cli.write("assay.yaml", SPEC)
    cli.run("run", "assay.yaml", "--name", "found")

    shown = cli.run("runs", "show", "latest", "--where", "failed", "--sort", "-case").stdout.splitlines()
    assert shown[0].split() == ["case", "outcome", "latency", "exact_match", "reason"]
    assert [line.split()[:2] for line in shown[1:-1]] == [["c3", "failed"], ["c2", "failed"]]
    assert shown[-1] == "2 of 4 rows match the filter"

    limited = cli.run("runs", "show", "latest", "--sort", "case", "--limit", "1").stdout
    assert limited.splitlines()[-1] == "4 rows stored; these are the first 1 by case: --limit 4 lists all"
    assert cli.run("runs", "show", "latest", "--where", "tag:none").stdout == "0 of 4 rows match the filter\n"

    document = json.loads(cli.run("runs", "show", "latest", "--where", "exact_match<1", "--json").stdout)
    assert (document["matching"], document["finished"]) == (2, 4)
    assert [row["answer"] for row in document["rows"]] == ["no", "no \x1b[31m"]

    full = cli.run("runs", "show", "latest", "--failed", "--where", "answer~31m").stdout
    assert "c3" in full
    assert "c2" not in full
    assert "\x1b" not in full

    case = cli.run("runs", "show", "latest", "--case", "c3", "--where", "category:a", "--sort", "-dataset").stdout
    assert case.splitlines()[-1] == "next: c2"
    around = json.loads(cli.run("runs", "show", "latest", "--case", "c2", "--json").stdout)
    assert [(row["previous_case"], row["next_case"]) for row in around] == [("c1", "c3")]

    wrong = cli.run("runs", "show", "latest", "--where", "faild answer:x", "--sort", "a b", status=2).stderr
    for problem in (
        "--where: character 1: unknown word 'faild'",
        "--where: character 7: write answer~TEXT",
        "--sort: ",
    ):
        assert problem in wrong
    unknown = cli.run("runs", "show", "latest", "--where", "exact_mach<1", status=2).stderr
    assert (
        "--where: unknown metric 'exact_mach'; did you mean 'exact_match'? (metrics of this run: exact_match)"
        in unknown
    )

    listed = cli.run("runs", "list", "--where", "name:found dataset:qa.jsonl since:2020-01-01", "--sort", "-pass_rate")
    assert "found-" in listed.stdout
    assert cli.run("runs", "list", "--where", "until:2020-01-01").stdout == "no run matches these conditions\n"
    twice = cli.run("runs", "list", "--name", "a", "--where", "name:b", status=2).stderr
    assert "name is given twice, with different values" in twice


def test_a_wrong_filter_is_refused_before_anything_is_dialled(shared_cli: Cli) -> None:
    """No server is asked, so that a mistake is shown at once wherever it is."""
    nowhere = ("--server", "127.0.0.1:1")
    for arguments in (("show", "r", "--where", "faild"), ("show", "r", "--sort", "a b"), ("list", "--where", "faild")):
        refused = shared_cli.run("runs", *arguments, *nowhere, status=2).stderr
        assert "127.0.0.1:1" not in refused
