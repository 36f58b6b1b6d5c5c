"""`assay report` and `--report`: formats by name, of a run or of its file, and what is refused before anything runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Cli


@pytest.fixture
def done(shared_project: Cli) -> tuple[Cli, Path]:
    """A run that was reported as JSON into `out`."""
    shared_project.run("run", "--no-progress", "--output-dir", "out", "--report", "json", status=None)
    return shared_project, shared_project.folder / "out" / "results.json"


def test_reports_of_a_run_and_of_its_file_are_the_same(done: tuple[Cli, Path]) -> None:
    """Formats made later, from the stored run or from the file, are those that the run would have written."""
    cli, path = done
    cli.run("report", "latest", "--format", "json,jsonl", "--output-dir", "later")
    cli.run("report", path, "--format", "jsonl", "--output-dir", "of-file")
    later = json.loads((cli.folder / "later" / "results.json").read_text("utf-8"))
    assert later["rows"] == json.loads(path.read_text("utf-8"))["rows"]
    rows = (cli.folder / "later" / "results.jsonl").read_text("utf-8")
    assert (cli.folder / "of-file" / "results.jsonl").read_text("utf-8") == rows
    assert [json.loads(line)["case_id"] for line in rows.splitlines()] == [f"c{index}" for index in range(20)]


def test_a_spec_lists_its_reports(shared_project: Cli) -> None:
    """The spec's list is written; --report replaces it; the summary names each file."""
    spec = (shared_project.folder / "assay.yaml").read_text("utf-8") + "reports: [jsonl]\n"
    shared_project.write("assay.yaml", spec)
    said = shared_project.run("run", "--no-progress", "--output-dir", "out").stdout
    assert "report: out/results.jsonl" in said
    assert not (shared_project.folder / "out" / "results.json").exists()
    shared_project.run("run", "--no-progress", "--output-dir", "other", "--report", "json")
    assert sorted(path.name for path in (shared_project.folder / "other").iterdir()) == [".assay-run", "results.json"]


def test_a_second_run_into_one_folder_replaces_nothing(done: tuple[Cli, Path]) -> None:
    """Its files carry its id, and the summary says why."""
    cli, path = done
    before = path.read_bytes()
    said = cli.run("run", "--no-progress", "--output-dir", "out", "--report", "json").stdout
    assert path.read_bytes() == before
    (other,) = (cli.folder / "out").glob("results-*.json")
    assert f"report: out/{other.name}" in said
    assert "note: out has the report of small-" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--report", "jsno"), "--report jsno: unknown report 'jsno'; did you mean 'json'?"),
        (("run", "--report", "json:indent=4"), "--report json: this format has no options"),
        (("run", "--report", "json", "--report", "json"), "--report: lists json more than once"),
        (("report", "latest", "--format", "word"), "--format word: unknown report 'word'"),
        (("report", "latest", "--format", "charts:svg"), "--format: must be FORMAT or FORMAT:OPTION=VALUE"),
        (("report", "nothing.json"), "nothing.json cannot be read"),
        (("report", "small-20200101-000000-000000"), "there is no run"),
    ],
)
def test_what_cannot_be_reported_is_refused(shared_project: Cli, arguments: tuple[str, ...], said: str) -> None:
    """With a sentence, before anything is run."""
    refused = shared_project.run(*arguments, status=2)
    assert said in refused.stderr
    assert not (shared_project.folder / "assay-reports").exists()


def test_a_run_that_has_not_finished_has_a_partial_report(project: Cli) -> None:
    """The rows so far are reported, and the document says that rows are missing."""
    project.write(
        "agent.py", "import os\ndef answer(request):\n    os._exit(3) if request.input == 'q7' else 0\n    return 'x'\n"
    )
    project.run("run", "--no-progress", "--set", "agent.concurrency=1", status=None)
    project.run("report", "latest", "--format", "json", "--output-dir", "out")
    document = json.loads((project.folder / "out" / "results.json").read_text("utf-8"))
    assert document["summary"]["partial"] is True
    assert 0 < len(document["rows"]) < 20


def test_a_report_that_cannot_be_written_costs_neither_the_verdict_nor_the_others(shared_project: Cli) -> None:
    """The exit status is that of the verdict; 3 where no report at all could be written."""
    for folder in ("out", "alone"):
        (shared_project.folder / folder / "report.html").mkdir(parents=True)
    arguments = ("run", "assay.yaml", "--no-progress", "--output-dir")
    done = shared_project.run(*arguments, "out")
    assert "verdict  PASS" in done.stdout
    assert "report: out/results.json" in done.stdout
    assert "error: the report html was not written: " in done.stderr
    alone = shared_project.run(*arguments, "alone", "--report", "html", status=3)
    assert "no report could be written\nthe report html was not written: " in alone.stderr


def test_quiet_prints_the_verdict_alone(shared_project: Cli) -> None:
    """One line on stdout, nothing on stderr; the reports are written; with --json it is refused."""
    done = shared_project.run("run", "--quiet", "--output-dir", "quiet-out", "--report", "json")
    (line,) = done.stdout.splitlines()
    assert line.startswith("verdict  PASS  the gate holds")
    assert done.stderr == ""
    assert (shared_project.folder / "quiet-out" / "results.json").exists()
    refused = shared_project.run("run", "--quiet", "--json", status=2)
    assert "--json and --quiet ask for different output" in refused.stderr
