"""Selecting the cases of a run by id, tag, category and earlier failures, as subprocesses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from assay import CaseSelection, evaluate

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

SPEC = "name: small\ndataset: qa.jsonl\nagent: {adapter: python, target: 'agent:answer'}\nmetrics: [exact_match]\n"


@pytest.fixture
def tagged(shared_cli: Cli) -> Cli:
    """Return the command in a folder with ten tagged cases, of which two fail."""
    shared_cli.write("agent.py", "def answer(text):\n    return '?' if text in ('q3', 'q8') else text.upper()\n")
    lines = [
        {
            "id": f"c{i}",
            "question": f"q{i}",
            "answer": f"Q{i}",
            "tags": ["hard", "slow"] if i % 2 else ["easy"],
            "category": "billing" if i < 5 else "orders",
        }
        for i in range(10)
    ]
    shared_cli.write("qa.jsonl", "\n".join(map(json.dumps, lines)))
    shared_cli.write("assay.yaml", SPEC)
    return shared_cli


def report(cli: Cli, *arguments: str, status: int | None = None) -> dict[str, Any]:
    """Run the spec and return its report."""
    document: dict[str, Any] = json.loads(cli.run("run", "assay.yaml", *arguments, "--json", status=status).stdout)
    return document


def ids(document: dict[str, Any]) -> list[str]:
    """Return the ids of the cases of a report."""
    return [row["case_id"] for row in document["rows"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--case", "c2", "--case", "c[78]"], ["c2", "c7", "c8"]),
        (["--tag", "hard"], ["c1", "c3", "c5", "c7", "c9"]),
        (["--tag", "easy", "--tag", "slow", "--category", "billing"], ["c0", "c1", "c2", "c3", "c4"]),
        (["--tag", "hard", "--category", "orders", "--case", "c*", "--limit", "2"], ["c5", "c7"]),
    ],
)
def test_cases_are_selected_by_any_value_of_all_options(tagged: Cli, arguments: list[str], expected: list[str]) -> None:
    """Within one option any value fits, across options all must; the report says what was selected, of how many."""
    document = report(tagged, *arguments)
    assert ids(document) == expected
    selection = document["run"]["selection"]
    assert selection["total_count"] == 10
    assert (selection["cases"], selection["tags"], selection["categories"]) == tuple(
        [value for option, value in zip(arguments[::2], arguments[1::2], strict=True) if option == name]
        for name in ("--case", "--tag", "--category")
    )


def test_validate_selects_cases_as_run_does(tagged: Cli) -> None:
    """It says how many a run would be over, refuses what no case has."""
    assert "qa.jsonl: 2 of 10 cases, " in tagged.run("validate", "--tag", "hard", "--case", "c[13]").stdout
    refused = tagged.run("validate", "assay.yaml", "--tag", "hrad", status=2)
    assert "has no case with the tag 'hrad'; did you mean 'hard'?" in refused.stderr
    assert "qa.jsonl: 3 of 10 cases, " in tagged.run("validate", "--limit", "3").stdout


def test_a_run_over_part_of_a_dataset_says_so_wherever_it_is_shown(tagged: Cli) -> None:
    """Progress, summary, `runs show` and `runs list` tell the cases; a run over all of them has no such line."""
    done = tagged.run("run", "assay.yaml", "--tag", "hard", "--category", "orders", "--limit", "2")
    assert "2 of 10 cases over qa.jsonl: tag hard, category orders, only the first 2" in done.stderr
    said = "2 of 10 cases: tag hard, category orders, only the first 2"
    assert said in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1].startswith("verdict  ")
    assert done.stdout.splitlines()[-1].endswith(f"{said}  exit status 0")
    assert said in tagged.run("runs", "show", "latest").stdout.splitlines()
    assert "2 of 10 cases" in tagged.run("runs", "list", "--limit", "1").stdout
    (listed,) = json.loads(tagged.run("runs", "list", "--limit", "1", "--json").stdout)["runs"]
    assert listed["selection"]["matched_count"] == 3
    one = tagged.run("run", "assay.yaml", "--limit", "1")
    assert ": 1 of 10 cases over qa.jsonl: only the first 1\n" in one.stderr
    assert "1 rows" not in one.stdout
    for arguments in ((), ("--limit", "10")):
        whole = tagged.run("run", "assay.yaml", *arguments, status=1)
        assert "10 cases over qa.jsonl\n" in whole.stderr
        assert " of 10 cases" not in whole.stdout
        assert json.loads(tagged.run("runs", "show", "latest", "--json").stdout)["selection"] is None


def test_a_run_is_announced_under_the_name_of_its_own_file(tagged: Cli) -> None:
    """Equal cases in a file of another name do not lend that name to the run."""
    (tagged.folder / "copy.jsonl").write_text((tagged.folder / "qa.jsonl").read_text())
    for name in ("qa.jsonl", "copy.jsonl"):
        done = tagged.run("run", "assay.yaml", "--dataset", name, "--limit", "1")
        assert f"1 of 10 cases over {name}:" in done.stderr
        assert json.loads(tagged.run("runs", "show", "latest", "--json").stdout)["dataset"]["name"] == name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tag", "hrad"], "qa.jsonl: has no case with the tag 'hrad'; did you mean 'hard'?"),
        (["--case", "c11", "--case", "c1"], "has no case with the id 'c11'; did you mean 'c1'?"),
        (["--category", "x"], "has no case with the category 'x'; it has: billing, orders"),
        (["--tag", "easy", "--case", "c1"], "has no case that meets all conditions at once, of 10 cases"),
    ],
)
def test_conditions_that_no_case_meets_are_refused(tagged: Cli, arguments: list[str], said: str) -> None:
    """A value that no case has, or no case that has them all, is exit 2 and names what is near."""
    assert said in tagged.run("run", "assay.yaml", *arguments, status=2).stderr


def test_the_failures_of_an_earlier_run_are_run_again(tagged: Cli) -> None:
    """--failed-of takes an id, a beginning or `latest`; the id is stored, and a repaired agent leaves nothing."""
    first = report(tagged, "--name", "first")["run"]["run_id"]
    again = report(tagged, "--failed-of", "latest", "--name", "again")
    assert ids(again) == ["c3", "c8"]
    assert again["run"]["selection"]["failed_of"] == first
    assert ids(report(tagged, "--failed-of", first, "--tag", "hard")) == ["c3"]
    tagged.write("agent.py", "def answer(text):\n    return text.upper()\n")
    assert report(tagged, "--failed-of", first[:-3], status=0)["summary"]["pass_rate"] == 1.0
    refused = tagged.run("run", "assay.yaml", "--failed-of", "latest", status=2)
    assert "failed or has an error: nothing to run again" in refused.stderr
    lines = (tagged.folder / "qa.jsonl").read_text().splitlines()
    tagged.write("qa.jsonl", "\n".join(line for line in lines if '"c8"' not in line))
    done = tagged.run("run", "assay.yaml", "--failed-of", first)
    assert f"1 of the 2 cases that failed in run {first} is not in this dataset" in done.stderr
    tagged.write("qa.jsonl", lines[0])
    gone = tagged.run("run", "assay.yaml", "--failed-of", first, status=2)
    assert f"has none of the 2 cases that failed in run {first}" in gone.stderr


def test_python_selects_cases_as_the_command_does(tagged: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """`assay.evaluate` takes the same conditions, for objects, too; a failed run is named by `latest`."""
    monkeypatch.setenv("ASSAY_HOME", str(tagged.home))
    cases = [{"id": f"c{i}", "question": f"q{i}", "answer": "Q1", "tags": ["odd"] if i % 2 else []} for i in range(4)]
    spec = {"name": "py", "metrics": ["exact_match"]}
    first = evaluate(spec, agent=lambda text: text.upper(), dataset=cases, select=CaseSelection(tags=["odd"]))
    assert [row.case_id for row in first.rows] == ["c1", "c3"]
    again = evaluate(
        spec, agent=lambda text: text.upper(), dataset=cases, select=CaseSelection(failed_of="latest", limit=5)
    )
    assert [row.case_id for row in again.rows] == ["c3"]
    assert again.run.spec.selection == CaseSelection(
        failed_of=first.run.run_id, limit=5, matched_count=1, total_count=4
    )
