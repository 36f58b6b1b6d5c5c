"""`assay run` and `assay report` in CI: their options write what a server reads, and say early what they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

OPTIONS = ("--junit", "ci/junit.xml", "--summary", "ci/summary.md", "--comment-file", "ci/comment.md", "--annotations")


def test_a_failing_run_says_so_to_ci(shared_project: Cli) -> None:
    """Files for every reader, annotations before the verdict in the last line, and the report makes the same of it."""
    shared_project.write("agent.py", "def answer(request):\n    return 'no'\n")
    done = shared_project.run("run", *OPTIONS, "--report", "json", "--output-dir", "out", "--no-progress", status=1)
    lines = done.stdout.splitlines()
    errors = [line for line in lines if line.startswith("::error ")]
    assert errors[0].startswith("::error file=assay.yaml,line=5,title=gate FAIL%3A pass_rate >= 0.9::actual 0")
    assert len(errors) == 10
    assert lines[-1].startswith("verdict  FAIL")
    junit = (shared_project.folder / "ci/junit.xml").read_bytes()
    assert ElementTree.fromstring(junit).get("failures") == "21"
    summary = (shared_project.folder / "ci/summary.md").read_text("utf-8")
    assert summary.startswith("\n## FAIL: `small`\n")
    assert (shared_project.folder / "ci/comment.md").read_text(
        "utf-8"
    ) == f"<!-- assay:small:default -->{summary.removesuffix(chr(10))}"
    again = shared_project.run("report", "out/results.json", *OPTIONS)
    assert again.stdout.splitlines() == errors
    assert (shared_project.folder / "ci/junit.xml").read_bytes() == junit
    assert (shared_project.folder / "ci/summary.md").read_text("utf-8") == summary * 2
    assert sorted(path.name for path in (shared_project.folder / "out").iterdir()) == [".assay-run", "results.json"]


def test_a_file_that_cannot_be_written_costs_no_answer(project: Cli) -> None:
    """The agent is not asked: the command ends before a run is started."""
    project.write("agent.py", "def answer(request):\n    raise SystemExit('asked')\n")
    done = project.run("run", "--junit", "qa.jsonl/junit.xml", status=3)
    assert "qa.jsonl is not a folder): choose another place with --junit" in done.stderr
    assert project.run("runs", "list", "--json").stdout.strip() in ("[]", '{"runs": []}')


def test_annotations_stay_out_of_a_document(project: Cli) -> None:
    """--json prints one document, and nothing beside it."""
    done = project.run("run", "--json", "--annotations", status=2)
    assert "leave out --annotations or --json" in done.stderr
