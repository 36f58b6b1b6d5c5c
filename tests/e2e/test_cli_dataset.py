"""Files of a user: `assay init`, `assay validate`, `assay datasets inspect`, and the messages on wrong records."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from assay.metrics import METRICS
from assay.specs.presets import PRESETS

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
    said = cli.run("datasets", "inspect", "goldens.jsonl").stdout
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
    said = cli.run("datasets", "inspect", "dice.test.json.gz").stdout
    assert said.startswith("dice.test.json.gz: adk/json.gz, 1 case\n")
    assert "\n    1 with expected tool calls\n    1 with several turns\n    3 turns in all\n" in said
    assert '"case_id": "dice"' in said


def test_the_machine_readable_document(cli: Cli) -> None:
    """--json prints one document with the same, the first case whole."""
    write_lines(cli, "goldens.jsonl", [{**GOLDENS[0], "note": "x" * 5000}, *GOLDENS[1:]])
    document = json.loads(cli.run("datasets", "inspect", "goldens.jsonl", "--json").stdout)
    assert (document["valid"], document["format"]) == (True, "deepeval/jsonl")
    assert document["mapping"]["references"] == "expected_output"
    counts = document["counts"]
    assert (counts["cases"], counts["references"], counts["recorded"], counts["expected_tools"]) == (2, 2, 1, 1)
    assert counts["categories"] == {"dates": 1, "places": 1}
    assert document["first_case"]["metadata"]["note"] == "x" * 5000
    assert document["first_case"]["recordings"][0][0]["tool_calls"][0]["name"] == "calendar"


def test_format_and_fields_can_be_said(cli: Cli) -> None:
    """--format goes before what the records look like, --map before every field; an unknown one names the nearest."""
    write_lines(cli, "goldens.jsonl", GOLDENS)
    said = cli.run("datasets", "inspect", "goldens.jsonl", "--format", "plain", "--map", "category=topic").stdout
    assert said.startswith("goldens.jsonl: plain/jsonl, ")
    assert "category <- topic" in said
    refused = cli.run("datasets", "inspect", "goldens.jsonl", "--format", "deepval", status=2)
    assert "did you mean 'deepeval'?" in refused.stderr
    refused = cli.run("datasets", "inspect", "goldens.jsonl", "--map", "category", status=2)
    assert "must be FIELD=NAME" in refused.stderr


def test_every_problem_of_a_file_that_is_wrong(cli: Cli) -> None:
    """Problems come with file, line and field, all at once, as sentences or as a document; the exit status is 2."""
    records = [*GOLDENS, {"input": ["x"], "expected_output": "A"}, {"expected_output": "A"}]
    write_lines(cli, "goldens.jsonl", records)
    refused = cli.run("datasets", "inspect", "goldens.jsonl", status=2)
    assert "goldens.jsonl:3: record 3, input: " in refused.stderr
    assert "goldens.jsonl:4: record 4, input: " in refused.stderr
    document = json.loads(cli.run("datasets", "inspect", "goldens.jsonl", "--json", status=2).stdout)
    assert not document["valid"]
    assert [(problem["file"], problem["line"]) for problem in document["problems"]] == [
        ("goldens.jsonl", 3),
        ("goldens.jsonl", 4),
    ]
    assert "there is no such file" in cli.run("datasets", "inspect", "nothing.jsonl", status=2).stderr


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


def test_wrong_records_are_left_out_only_when_asked(shared_project: Cli) -> None:
    """Refused with 2; with --on-bad-case skip the rest is run, the records are listed, and the exit status is 3."""
    with (shared_project.folder / "qa.jsonl").open("a", encoding="utf-8") as file:
        file.write('\n{"id": "bad", "question": ["x"]}\nnonsense\n')
    refused = shared_project.run("run", "assay.yaml", status=2)
    assert "qa.jsonl:21: record 21, question: must be a string" in refused.stderr
    done = shared_project.run("run", "assay.yaml", "--on-bad-case", "skip", "--output-dir", "out", status=3)
    assert "left out: " in done.stderr
    assert "qa.jsonl:22: record 22: is not valid JSON" in done.stderr
    assert (
        done.stdout.splitlines()[-1]
        == "verdict  INCOMPLETE  2 bad records of the dataset left out  pass rate 100.0% (20 of 20)  "
        "20 of 22 cases: 2 bad records left out  exit status 3"
    )
    report = json.loads(Path(shared_project.folder, "out", "results.json").read_text(encoding="utf-8"))
    assert len(report["rows"]) == 20
    assert "2 records are wrong and left out" in " ".join(report["run"]["dataset"]["warnings"])
    failing = ("--on-bad-case", "skip", "--set", 'gates=["pass_rate > 1"]')
    shared_project.run("run", "assay.yaml", *failing, status=1)
    checked = shared_project.run("validate", "assay.yaml", "--on-bad-case", "skip", status=3)
    assert "a run would leave out the bad records" in checked.stderr


def test_what_no_metric_reads_is_a_warning(shared_project: Cli) -> None:
    """A case's own threshold for a metric that the run does not compute is named before the run and in its report."""
    with (shared_project.folder / "qa.jsonl").open("a", encoding="utf-8") as file:
        file.write('\n{"id": "own", "question": "q", "answer": "Q", "thresholds": {"exact_macth": 1}}\n')
    said = "record 21, thresholds.exact_macth: holds a threshold that nothing is compared with"
    assert said in shared_project.run("validate", "assay.yaml").stdout
    (warning,) = json.loads(shared_project.run("validate", "assay.yaml", "--json").stdout)["warnings"]
    assert (warning["line"], warning["field"]) == (21, "record 21, thresholds.exact_macth")
    done = shared_project.run("run", "assay.yaml", "--output-dir", "out")
    assert f"warning: qa.jsonl:21: {said}" in done.stderr
    assert "did you mean 'exact_match'?" in done.stderr
    report = json.loads(Path(shared_project.folder, "out", "results.json").read_text(encoding="utf-8"))
    assert said in " ".join(report["run"]["dataset"]["warnings"])


def test_every_preset_has_a_template() -> None:
    """No preset without a folder, no folder without a preset."""
    folder = resources.files("assay_cli") / "templates"
    assert {item.name for item in folder.iterdir() if item.is_dir()} == set(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_written_is_valid_and_runs(shared_cli: Cli, preset: str) -> None:
    """Each preset's files validate, and run offline with gates that hold; here without metrics that embed."""
    done = shared_cli.run("init", preset, "--dir", "new")
    assert "next: assay run new/assay.yaml" in done.stdout
    assert shared_cli.run("validate", "new/assay.yaml").stdout.endswith("valid\n")
    spec = yaml.safe_load((shared_cli.folder / "new" / "assay.yaml").read_text(encoding="utf-8"))
    listed = [next(iter(item)) if isinstance(item, dict) else item for item in spec.get("metrics", ())]
    names = listed or list(PRESETS[preset].metrics)
    light = [name for name in names if name in METRICS and not METRICS[name].info.needs_embedder]
    gates = [gate for gate in spec["gates"] if gate.partition(" ")[0].partition(".")[0] in light]
    done = shared_cli.run(
        "run",
        "new/assay.yaml",
        "--metrics",
        ",".join(light),
        "--set",
        f"gates={json.dumps(gates)}",
        "--json",
        "--report",
        "json",
    )
    rows = json.loads(done.stdout)["rows"]
    assert 5 <= len(rows) / spec.get("repeats", 1) <= 8
    assert not [row for row in rows if row["status"] == "error"]


def test_the_default_runs_whole(shared_cli: Cli) -> None:
    """Without a preset it is prompt-benchmark, in this folder; it runs with the real model and its gates hold."""
    done = shared_cli.run("init")
    assert "sql-agent" in done.stdout
    report = json.loads(shared_cli.run("run", "assay.yaml", "--json").stdout)
    assert report["summary"]["passed_count"] == 5
    assert all(gate["outcome"] == "pass" for gate in report["summary"]["gates"])


def test_nothing_is_overwritten_without_force(cli: Cli) -> None:
    """Every file that exists is named and nothing is written; with --force all are."""
    cli.write("assay.yaml", "mine")
    cli.write("agent.py", "mine")
    done = cli.run("init", "rag", status=2)
    assert "assay.yaml: exists" in done.stderr
    assert "agent.py: exists" in done.stderr
    assert (cli.folder / "assay.yaml").read_text(encoding="utf-8") == "mine"
    assert not (cli.folder / "qa.jsonl").exists()
    cli.run("init", "rag", "--force")
    assert "preset: rag" in (cli.folder / "assay.yaml").read_text(encoding="utf-8")
    assert not list(cli.folder.glob(".*.part"))


def test_wrong_names_are_refused(cli: Cli) -> None:
    """An unknown preset is answered with the nearest, a file is no folder, a list writes nothing."""
    assert "did you mean 'sql-agent'" in cli.run("init", "sql_agnt", status=2).stderr
    cli.write("file", "")
    assert "file: is not a folder" in cli.run("init", "--dir", "file", status=2).stderr
    assert all(preset in cli.run("init", "--list").stdout for preset in PRESETS)
    assert not (cli.folder / "assay.yaml").exists()


def test_validate_as_json_stays_json_whatever_the_agents_code_does(cli: Cli) -> None:
    """What the agent's module prints is no result; what it raises is reported with the spec's name and a traceback."""
    cli.write("assay.yaml", "dataset: qa.jsonl\nagent: {adapter: python, target: 'agent:answer'}\nmetrics: [rouge]\n")
    cli.write("qa.jsonl", '{"question": "q", "answer": "a"}\n')
    cli.write("agent.py", "print('hello')\ndef answer(request):\n    return ''\n")
    done = cli.run("validate", "assay.yaml", "--json")
    assert json.loads(done.stdout) == {
        "schema": "assay/validation/1", "valid": True, "problems": [], "agent_traceback": None, "warnings": [],
    }  # fmt: skip
    assert "hello" in done.stderr
    assert "qa.jsonl: 1 case," in cli.run("validate", "assay.yaml").stdout
    cli.write("agent.py", "raise RuntimeError('no key')\n")
    found = json.loads(cli.run("validate", "assay.yaml", "--json", status=2).stdout)
    assert "RuntimeError: no key" in found["agent_traceback"]
    assert [(problem["file"], problem["field"]) for problem in found["problems"]] == [("assay.yaml", "agent.target")]
    done = cli.run("validate", "assay.yaml", "--set", "agent.target=agent", status=2)
    assert done.stderr.count("agent.target") == 1, "one mistake is reported once"


def test_validate_tells_all_that_is_wrong_in_one_go(cli: Cli) -> None:
    """Problems of the spec, of its dataset and of its agent's code together, with file, line and field."""
    cli.write("agent.py", "def answer(request):\n    return ''\n")
    cli.write("qa.jsonl", '{"question": "a"}\n{"question": ["b"]}\n')
    cli.write(
        "assay.yaml",
        "dataset: qa.jsonl\nagent: {adapter: python, target: 'agent:anwser', timeout: 99h}\nmetrics: [exact_mach]\n",
    )
    problems = json.loads(cli.run("validate", "assay.yaml", "--json", status=2).stdout)["problems"]
    places = {(problem["file"].rpartition("/")[2], problem["line"], problem["field"]) for problem in problems}
    assert places == {
        ("assay.yaml", 3, "metrics[0]"),
        ("assay.yaml", 2, "agent.timeout"),
        ("qa.jsonl", 2, "record 2, question"),
        ("assay.yaml", None, "agent.target"),
    }
