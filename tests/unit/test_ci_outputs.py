"""What a run leaves for CI servers: annotations, a job's summary, comments; only what is asked for, where it can be."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from markdown_it import MarkdownIt
from tests.support.reports.report_documents import HOSTILE, document, failed, gate, metric, row
from tests.unit.test_report_document import ROWS, finished

from assay.comparison.decision import (
    FAILED,
    NO_REGRESSION,
    NOT_COMPARABLE,
    UNDECIDED,
    ComparisonDecision,
    DecisionOutcome,
)
from assay.errors import InvalidInputError, SetupError
from assay.model.run import GateOutcome, GateResult, RowResult
from assay.reports.annotations import MOST_ANNOTATIONS, annotation_lines
from assay.reports.ci_outputs import MAX_SUMMARY_BYTES, CiOutputs
from assay.reports.document.report import Report, report_of_file
from assay.reports.failures import Attempts
from assay.reports.writing import write_reports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

COMMAND = re.compile(r"::error (?P<properties>[^:]*)::(?P<message>.*)")
MISSED: dict[str, Any] = {
    "overall_status": "FAIL",
    "exit_status": 1,
    "gates": [gate("mrr > 0.5", "fail", actual=0.25), gate()],
}


def made(folder: Path, found: Mapping[str, Any], outputs: CiOutputs, decision: ComparisonDecision | None = None) -> str:
    """Write the outputs of a document, compared or not; return what is printed."""
    source = folder / "source.json"
    source.write_text(json.dumps(found), encoding="utf-8")
    printed = io.StringIO()
    outputs.check()
    attempts = Attempts()
    with report_of_file(source) as report:
        outputs.write(report, printed, decision=decision, attempts=attempts)
    assert not attempts.failures
    return printed.getvalue()


def annotated(folder: Path, found: Mapping[str, Any], environ: Mapping[str, str]) -> list[tuple[dict[str, str], str]]:
    """Properties and message of each annotation, as GitHub reads them."""
    source = folder / "source.json"
    source.write_text(json.dumps(found), encoding="utf-8")
    with report_of_file(source) as report:
        lines = annotation_lines(report, environ)
    commands = [COMMAND.fullmatch(line) for line in lines]
    return [
        (_properties(command["properties"]), _read(command["message"])) for command in commands if command is not None
    ]


def _properties(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(","))
    return {name: _read(value.replace("%3A", ":").replace("%2C", ",")) for name, _, value in pairs}


def _read(text: str) -> str:
    return text.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")


def test_annotations_name_gates_first_at_their_line(tmp_path: Path) -> None:
    """A missed gate is at its line of the spec, then come failed cases, worst first; paths are as in the checkout."""
    spec = tmp_path / "evals" / "assay.yaml"
    spec.parent.mkdir()
    spec.write_text("name: x\ngates:\n  - mrr > 0.5\n", encoding="utf-8")
    report = document([failed(f"c{index}", 0.7 - index / 100) for index in range(20)], **MISSED)
    report["run"]["spec_path"] = str(spec)
    lines = annotated(tmp_path, report, {"GITHUB_WORKSPACE": str(tmp_path)})
    assert len(lines) == MOST_ANNOTATIONS
    assert lines[0] == ({"file": "evals/assay.yaml", "line": "3", "title": "gate FAIL: mrr > 0.5"}, "actual 0.25")
    assert lines[1][0] == {"file": "data/cases.json", "title": "case c19"}
    assert lines[1][1] == "similarity 0.51 < 0.75\nquestion: What is it?\nanswer: It is that."


def test_an_annotation_of_long_texts_names_the_command_that_shows_them(tmp_path: Path) -> None:
    """An annotation is one log line: texts are cut, and its end names the command that shows them."""
    long = {"question": "q " * 500, "answer": "a " * 500, "message": "contains: " + "r " * 500}
    report = document([failed("a case", 0.5) | long], **MISSED)
    reason, question, answer, whole = annotated(tmp_path, report, {})[1][1].split("\n")
    assert all(len(text) <= 210 and text.endswith("…") for text in (reason, question, answer))
    assert whole == f"whole: assay runs show {report['run']['run_id']} --case 'a case'"


async def test_commands_of_reports_name_the_server(tmp_path: Path) -> None:
    """A run of a server is not found by a command for the local stack."""
    run, printed = finished(), io.StringIO()
    assert run.summary is not None
    summary = dataclasses.replace(run.summary, gates=(GateResult("mrr > 0.9", GateOutcome.FAIL, 0.1),))

    async def rows() -> AsyncIterator[RowResult]:
        yield dataclasses.replace(ROWS[0], passed=False, message="r " * 500)

    def write(report: Report, attempts: Attempts) -> None:
        CiOutputs(annotations=True).write(report, printed, attempts=attempts)

    run = dataclasses.replace(run, summary=summary)
    await write_reports(run, rows(), (), tmp_path, ci=write, server="evals.example:443")
    assert printed.getvalue().endswith("whole: assay runs show r1 --case c0 --server evals.example:443\n")


def test_a_run_without_a_missed_gate_says_why_it_did_not_pass(tmp_path: Path) -> None:
    """Without a missed gate, the reasons of the verdict are the annotation."""
    report = document([row()], overall_status="INCOMPLETE", exit_status=3, reasons=["8 of 9 agent calls failed"])
    assert annotated(tmp_path, report, {}) == [
        ({"file": "assay.yaml", "title": "manual: INCOMPLETE"}, "8 of 9 agent calls failed")
    ]


def test_a_threshold_without_data_is_an_annotation_after_those_that_failed(tmp_path: Path) -> None:
    """What was asked for and not computed is said, also where another threshold decides."""
    none = gate("tokens <= 9", "incomplete", actual=None, message="computed on no row", source="threshold")
    missed = MISSED | {"gates": [gate("mrr >= 0.5", "fail", actual=0.25, source="threshold"), none]}
    report = document([failed("a")], {"mrr": metric(), "tokens": metric()}, **missed)
    assert [properties["title"] for properties, _ in annotated(tmp_path, report, {})] == [
        "threshold FAIL: mrr >= 0.5", "threshold INCOMPLETE: tokens <= 9", "case a",
    ]  # fmt: skip


def test_a_run_that_passed_has_no_annotation(tmp_path: Path) -> None:
    """Failed cases of a run whose gates hold are no errors of the job."""
    assert annotated(tmp_path, document([failed("a"), row("b")]), {}) == []


@pytest.mark.parametrize("text", [HOSTILE, "a%0Ab", "x::error::y", "a\n::set-output name=b::c", "t,file=/etc/passwd"])
def test_no_text_begins_a_command(tmp_path: Path, text: str) -> None:
    """Whatever a run contains, each annotation is one line with its own properties."""
    found = document([failed(text, question=text, answer=text, message=text)], **MISSED)
    found["summary"]["gates"] = [gate(text, "fail", message=text, note=text)]
    source = tmp_path / "source.json"
    source.write_text(json.dumps(found), encoding="utf-8")
    with report_of_file(source) as report:
        lines = annotation_lines(report, {})
    assert len(lines) == 2
    for line in lines:
        command = COMMAND.fullmatch(line)
        assert command is not None, line
        assert [part.partition("=")[0] for part in command["properties"].split(",")] == ["file", "title"]
        assert not set(line) & set("\n\r\x1b\x00\u202e")


def test_only_what_is_asked_for_is_written(tmp_path: Path) -> None:
    """Without options nothing is written or printed; with all of them each file exists."""
    folder = tmp_path / "out"
    report = document([failed("a")], **MISSED)
    assert not CiOutputs()
    assert made(tmp_path, report, CiOutputs()) == ""
    assert not folder.exists()
    outputs = CiOutputs(folder / "j.xml", folder / "s.md", folder / "c.md", "linux", annotations=True)
    assert made(tmp_path, report, outputs).count("::error ") == 2
    assert sorted(path.name for path in folder.iterdir()) == ["c.md", "j.xml", "s.md"]
    comment = (folder / "c.md").read_text("utf-8")
    assert comment.startswith("<!-- assay:manual:linux -->\n## FAIL: `manual`\n")


@pytest.mark.parametrize(
    ("status", "outcome", "title", "element"),
    [
        (FAILED, DecisionOutcome.REGRESSION, "regression", "failure"),
        (NOT_COMPARABLE, DecisionOutcome.NOT_COMPARABLE, "not to be compared", "error"),
        (UNDECIDED, DecisionOutcome.UNDECIDED, "undecided", "error"),
    ],
)
def test_a_comparison_that_fails_the_job_is_said_first(
    tmp_path: Path, status: int, outcome: DecisionOutcome, title: str, element: str
) -> None:
    """If the comparison fails the job, the first line of CI output does not say PASS."""
    outputs = CiOutputs(tmp_path / "j.xml", tmp_path / "s.md", tmp_path / "c.md", annotations=True)
    decision = ComparisonDecision(outcome, status, ("it is worse",))
    word = title.upper()
    printed = made(tmp_path, document([row()]), outputs, decision)
    assert printed == f"::error title={title}::it is worse\n"
    for file in ("s.md", "c.md"):
        lines = (tmp_path / file).read_text("utf-8").splitlines()
        assert lines[1] == f"## {word}: `manual`"
        assert lines[3] == f"Against the baseline: {word} (it is worse). The run by itself: PASS."
    assert f'<{element} message="it is worse"' in (tmp_path / "j.xml").read_text("utf-8")
    made(tmp_path, document([failed("a")], **MISSED), outputs, decision)
    assert (tmp_path / "c.md").read_text("utf-8").splitlines()[1] == "## FAIL: `manual`"


def test_a_comparison_that_lets_undecided_pass_says_so(tmp_path: Path) -> None:
    """A job that passes because nothing was decided has a notice that says so."""
    outputs = CiOutputs(tmp_path / "j.xml", annotations=True)
    decision = ComparisonDecision(
        DecisionOutcome.UNDECIDED, NO_REGRESSION, ("5 clusters decide nothing",), otherwise="4 with --strict"
    )
    assert made(tmp_path, document([row()]), outputs, decision) == (
        "::notice title=undecided::5 clusters decide nothing\n"
    )
    assert "<system-out>5 clusters decide nothing</system-out>" in (tmp_path / "j.xml").read_text("utf-8")
    passed = ComparisonDecision(DecisionOutcome.NO_REGRESSION, NO_REGRESSION)
    assert made(tmp_path, document([row()]), outputs, passed) == ""


def test_annotations_in_a_file_are_those_that_are_printed(tmp_path: Path) -> None:
    """A job that may not print them at once prints the file later; of a run that passed it is empty."""
    path = tmp_path / "annotations"
    report = document([failed("a")], **MISSED)
    printed = made(tmp_path, report, CiOutputs(annotations=True))
    assert made(tmp_path, report, CiOutputs(annotations_file=path)) == ""
    assert path.read_text("utf-8") == printed
    made(tmp_path, document([row()]), CiOutputs(annotations_file=path))
    assert path.read_text("utf-8") == ""


def test_the_marker_of_a_comment_is_hidden_whatever_its_names_are(tmp_path: Path) -> None:
    """Names of spec and key cannot end the marker, and two pairs of names have two markers."""
    markers = set()
    for name, key in (
        ("-->", "k"),
        ("--!><b>", "k"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a--b", "c"),
        ("a-%2Db", "c"),
        ("م", ""),
    ):
        report = document([row()])
        report["run"]["name"] = name
        made(tmp_path, report, CiOutputs(comment_file=tmp_path / "c.md", comment_key=key))
        first = (tmp_path / "c.md").read_text("utf-8").splitlines()[0]
        assert re.fullmatch(r"<!-- assay:[\w.%~-]*:[\w.%~-]* -->", first, re.ASCII)
        assert "--" not in first[4:-3]
        assert MarkdownIt("commonmark").render(first).strip() == first
        markers.add(first)
    assert len(markers) == 7


def test_a_summary_is_added_to_what_is_there(tmp_path: Path) -> None:
    """The report is appended to the job's summary after a blank line."""
    path = tmp_path / "summary.md"
    path.write_text("before\n", encoding="utf-8")
    made(tmp_path, document([row()]), CiOutputs(summary=path))
    assert path.read_text("utf-8").startswith("before\n\n## PASS: `manual`\n")


@pytest.mark.parametrize(("free", "cases"), [(6_000, 20), (3_500, 15), (100, None)])
def test_a_summary_is_cut_at_rows(tmp_path: Path, free: int, cases: int | None) -> None:
    """If the room is limited, whole failed cases are left out; without room nothing is added."""
    path = tmp_path / "summary.md"
    path.write_bytes(b"x" * (MAX_SUMMARY_BYTES - free - 1) + b"\n")
    made(tmp_path, document([failed(f"c{index}", answer="y" * 200) for index in range(30)]), CiOutputs(summary=path))
    content = path.read_bytes()
    assert len(content) <= MAX_SUMMARY_BYTES
    added = content[MAX_SUMMARY_BYTES - free :].decode()
    if cases is None:
        assert added.strip() == ""
        return
    listed = sum(line.startswith("| `c") for line in added.splitlines())
    assert 0 < listed <= cases
    assert f"and {30 - listed} more" in added
    assert added.endswith("</details>\n\n")


def test_files_are_tried_before_a_run(tmp_path: Path) -> None:
    """All unwritable files are named at once with their options, and nothing is left behind."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    wrong = CiOutputs(tmp_path / "file" / "j.xml", tmp_path / "file" / "s.md", tmp_path)
    with pytest.raises(SetupError) as caught:
        wrong.check()
    assert re.findall("with (--.*)", caught.value.message) == ["--junit", "--summary", "--comment-file"]
    with pytest.raises(InvalidInputError, match="names the file of another option"):
        CiOutputs(tmp_path / "a", tmp_path / "a").check()
    CiOutputs(tmp_path / "new" / "j.xml", tmp_path / "s.md").check()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
