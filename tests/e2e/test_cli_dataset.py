"""`assay dataset inspect`: what a file of cases is recognised as, and every problem of one that is wrong."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

GOLDENS: list[dict[str, Any]] = [
    {
        "input": "When does the season open?",
        "expected_output": "On 11 October.",
        "actual_output": "In October.",
        "tools_called": [{"name": "calendar", "input_parameters": {"month": 10}}],
        "expected_tools": [{"name": "calendar"}],
        "category": "dates",
        "topic": "seasons",
        "tags": ["smoke", "\x1b[2Jwipe"],
    },
    {"input": "أين يقام المهرجان؟", "expected_output": "في الرياض", "category": "places"},
]


def write_lines(cli: Cli, name: str, records: list[dict[str, Any]]) -> None:
    """Write a JSON Lines file."""
    cli.write(name, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def test_what_a_file_is_recognised_as(cli: Cli) -> None:
    """Format, fields, counts, categories, tags and the first case are shown, without control characters."""
    write_lines(cli, "goldens.jsonl", GOLDENS)
    said = cli.run("dataset", "inspect", "goldens.jsonl").stdout
    assert said.startswith("goldens.jsonl: deepeval/jsonl, 2 cases\n")
    for line in (
        "input <- input",
        "references <- expected_output",
        "recorded <- actual_output",
        "2 with a reference",
        "1 with a recorded answer",
        "1 with expected tool calls",
        "1 dates",
        "1 places",
        "1 smoke",
    ):
        assert f"\n    {line}\n" in said, line
    assert '"input": "When does the season open?"' in said
    assert "\x1b" not in said


def test_a_conversation_is_one_case(cli: Cli) -> None:
    """A test file of ADK is shown as the one case of several turns that it is, also compressed."""
    turns = [{"query": f"q{n}", "expected_tool_use": [{"tool_name": "t"}], "reference": "r"} for n in range(3)]
    (cli.folder / "dice.test.json.gz").write_bytes(gzip.compress(json.dumps(turns).encode()))
    said = cli.run("dataset", "inspect", "dice.test.json.gz").stdout
    assert said.startswith("dice.test.json.gz: adk/json.gz, 1 case\n")
    assert "\n    1 with expected tool calls\n    1 with several turns\n    3 turns in all\n" in said
    assert '"case_id": "dice"' in said


def test_the_machine_readable_document(cli: Cli) -> None:
    """--json prints one document with the same, the first case whole."""
    write_lines(cli, "goldens.jsonl", [{**GOLDENS[0], "note": "x" * 5000}, *GOLDENS[1:]])
    document = json.loads(cli.run("dataset", "inspect", "goldens.jsonl", "--json").stdout)
    assert (document["valid"], document["format"]) == (True, "deepeval/jsonl")
    assert document["mapping"]["references"] == "expected_output"
    counts = document["counts"]
    assert (counts["cases"], counts["references"], counts["recorded"], counts["expected_tools"]) == (2, 2, 1, 1)
    assert counts["categories"] == {"dates": 1, "places": 1}
    assert document["first_case"]["metadata"]["note"] == "x" * 5000
    assert document["first_case"]["recorded"]["tool_calls"][0]["name"] == "calendar"


def test_format_and_fields_can_be_said(cli: Cli) -> None:
    """--format goes before what the records look like, --map before every field; an unknown one names the nearest."""
    write_lines(cli, "goldens.jsonl", GOLDENS)
    said = cli.run("dataset", "inspect", "goldens.jsonl", "--format", "plain", "--map", "category=topic").stdout
    assert said.startswith("goldens.jsonl: plain/jsonl, ")
    assert "category <- topic" in said
    refused = cli.run("dataset", "inspect", "goldens.jsonl", "--format", "deepval", status=2)
    assert "did you mean 'deepeval'?" in refused.stderr
    refused = cli.run("dataset", "inspect", "goldens.jsonl", "--map", "category", status=2)
    assert "must be FIELD=NAME" in refused.stderr


def test_every_problem_of_a_file_that_is_wrong(cli: Cli) -> None:
    """Problems come with file, line and field, all at once, as sentences or as a document; the exit status is 2."""
    records = [*GOLDENS, {"input": ["x"], "expected_output": "A"}, {"expected_output": "A"}]
    write_lines(cli, "goldens.jsonl", records)
    refused = cli.run("dataset", "inspect", "goldens.jsonl", status=2)
    assert "goldens.jsonl:3: record 3, input: " in refused.stderr
    assert "goldens.jsonl:4: record 4, input: " in refused.stderr
    document = json.loads(cli.run("dataset", "inspect", "goldens.jsonl", "--json", status=2).stdout)
    assert not document["valid"]
    assert [(problem["file"], problem["line"]) for problem in document["problems"]] == [
        ("goldens.jsonl", 3),
        ("goldens.jsonl", 4),
    ]
    assert "there is no such file" in cli.run("dataset", "inspect", "nothing.jsonl", status=2).stderr


def test_a_spec_names_the_format(project: Cli) -> None:
    """`format` in a spec and --format decide how the dataset is read; an unknown one is a problem of the spec."""
    write_lines(project, "qa.jsonl", [{"input": "q", "actual_output": "Q", "expected_output": "Q"}])
    spec = (project.folder / "assay.yaml").read_text(encoding="utf-8")
    project.write("assay.yaml", f"{spec}format: deepeval\n")
    assert "deepeval/jsonl" in project.run("validate", "assay.yaml").stdout
    assert "plain/jsonl" in project.run("validate", "assay.yaml", "--format", "plain").stdout
    project.write("assay.yaml", f"{spec}format: deepval\n")
    refused = project.run("validate", "assay.yaml", status=2)
    assert "assay.yaml:6: format: unknown format 'deepval'; did you mean 'deepeval'?" in refused.stderr


def test_a_spec_maps_fields_and_the_command_goes_before_it(project: Cli) -> None:
    """`map` in a spec and --map decide what holds a field; an empty name derives ids; mistakes name their place."""
    write_lines(project, "qa.jsonl", [{"id": "c", "frage": "q", "other": "r", "answer": "Q"}])
    spec = (project.folder / "assay.yaml").read_text(encoding="utf-8")
    project.write("assay.yaml", f"{spec}map: {{input: frage}}\n")
    assert "input <- frage" in project.run("validate", "assay.yaml").stdout
    said = project.run("validate", "assay.yaml", "--map", "input=other", "--map", "id=").stdout
    assert "input <- other" in said
    assert "id <-" not in said
    refused = project.run("validate", "assay.yaml", "--map", "inptu=other", status=2)
    assert "unknown field in map 'inptu'; did you mean 'input'?" in refused.stderr
    assert "must be FIELD=NAME" in project.run("validate", "assay.yaml", "--map", "a.b=other", status=2).stderr


def test_a_run_stores_what_its_dataset_was_recognised_as(shared_project: Cli) -> None:
    """A run keeps format and mapping, as recognised or as the user said, of its own file, and tells them later."""
    write_lines(shared_project, "qa.jsonl", [{"input": "q", "expected_output": "Q"}])
    report = json.loads(shared_project.run("run", "assay.yaml", "--json").stdout)
    dataset = report["run"]["dataset"]
    shown = json.loads(shared_project.run("runs", "show", report["run"]["run_id"], "--json").stdout)
    assert shown["dataset"] == dataset
    assert dataset["sha256"] == sha256((shared_project.folder / "qa.jsonl").read_bytes()).hexdigest()
    assert "dataset" not in report["config"]
    assert (dataset["name"], dataset["format"], dataset["case_count"]) == ("qa.jsonl", "deepeval/jsonl", 1)
    assert dataset["mapping"] == {"input": "input", "references": "expected_output"}
    arguments = ["--format", "plain", "--map", "references=expected_output", "--json"]
    dataset = json.loads(shared_project.run("run", "assay.yaml", *arguments).stdout)["run"]["dataset"]
    # The cases are the same, so it is the same dataset of the store, read in another way.
    assert dataset["format"] == "plain/jsonl"
    assert dataset["mapping"] == {"input": "input", "references": "expected_output"}
