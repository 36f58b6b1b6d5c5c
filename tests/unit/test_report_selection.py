"""A run over a part of its dataset: every output says so beside the verdict."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.reports.comparison_reports import compared, two
from tests.support.reports.report_documents import HOSTILE, document, row, written
from tests.unit.test_api_result import evaluation

from assay.client.api.evaluation import Evaluation
from assay.model.run import CaseSelection, DatasetRef, Run
from assay.model.run_spec import DatasetReading
from assay.reports.ci_outputs import CiOutputs
from assay.reports.comparison.formats.json_document import comparison_document
from assay.reports.comparison.formats.markdown import comparison_markdown
from assay.reports.comparison.formats.short_text import short_lines
from assay.reports.comparison.formats.text import comparison_lines
from assay.reports.document.document import head_document
from assay.reports.document.report import report_of_file
from assay.reports.failures import Attempts
from assay.reports.formats.notebook import run_html, run_markdown
from assay.reports.words.selected_cases import selected_cases, selected_document
from assay_cli.output.console import ConsoleSummary
from assay_cli.output.run_documents import full
from assay_orchestrator.summary.row_notes import row_notes

if TYPE_CHECKING:
    from pathlib import Path

SENTENCE = "10 of 40 cases: only the first 10"
SELECTION = {"selected_count": 10, "total_count": 40, "sentence": SENTENCE}


def run_over(count: int, selection: CaseSelection | None, left_out: int = 0) -> Run:
    """A finished run over so many cases."""
    run = evaluation().run
    reading = DatasetReading("cases.jsonl", "plain/jsonl", "", left_out_count=left_out)
    settings = dataclasses.replace(run.spec, selection=selection, dataset=reading)
    return dataclasses.replace(run, spec=settings, dataset=DatasetRef("d", "cases.jsonl", count))


FIRST_TEN = CaseSelection(limit=10, matched_count=40, total_count=40)


@pytest.mark.parametrize(
    ("count", "selection", "left_out", "sentence"),
    [
        (10, FIRST_TEN, 0, SENTENCE),
        (10, CaseSelection(limit=10), 0, "10 cases of a file that is not readable to its end: only the first 10"),
        (3, CaseSelection(tags=["a", "b"], matched_count=3, total_count=40), 0, "3 of 40 cases: tag a or b"),
        (
            1,
            CaseSelection(cases=["\x1b[2Jx"], failed_of="r-1", limit=1, matched_count=2, total_count=2),
            1,
            "1 of 3 cases: case �[2Jx, failed in r-1, only the first 1, 1 bad record left out",
        ),
        (38, None, 2, "38 of 40 cases: 2 bad records left out"),
        (40, None, 0, ""),
        (40, CaseSelection(cases=["*"], matched_count=40, total_count=40), 0, ""),
    ],
)
def test_the_sentence_names_counts_and_conditions(
    count: int, selection: CaseSelection | None, left_out: int, sentence: str
) -> None:
    """Conditions, a limit and bad cases left out, in one sentence; none for a run over the whole dataset."""
    found = selected_cases(run_over(count, selection, left_out))
    assert (found.sentence if found is not None else "") == sentence


def test_python_and_console_say_it_beside_the_verdict() -> None:
    """The repr and the verdict line, and the summary for programs."""
    run = run_over(10, FIRST_TEN)
    result = Evaluation(run, ())
    assert result.selection is not None
    assert (result.selection.selected, result.selection.total, result.selection.sentence) == (10, 40, SENTENCE)
    assert repr(result).splitlines()[0].endswith(SENTENCE)
    assert ConsoleSummary(run, io.StringIO()).verdict_line().endswith(SENTENCE)
    assert full(run)["summary"]["selection"] == SELECTION == selected_document(run)
    bundle = result._repr_mimebundle_()
    assert SENTENCE in bundle["text/html"]
    assert SENTENCE in bundle["text/markdown"]


@pytest.fixture
def partly() -> dict[str, Any]:
    """The document of a run over ten of forty cases."""
    return document([row()], selection=SELECTION)


@pytest.mark.parametrize("name", ["json", "html", "markdown", "junit", "csv"])
def test_every_format_says_it(tmp_path: Path, partly: dict[str, Any], name: str) -> None:
    """Also a report that is written again from its results.json."""
    assert any(SENTENCE in path.read_text("utf-8") for path in written(tmp_path, partly, name))


@pytest.mark.parametrize(("status", "command"), [("PASS", "notice"), ("FAIL", "error")])
def test_ci_outputs_say_it(tmp_path: Path, partly: dict[str, Any], status: str, command: str) -> None:
    """Summary, comment, JUnit and annotations, of a run that passes and of one that fails."""
    partly["summary"] |= {"overall_status": status, "exit_status": int(status == "FAIL")}
    (tmp_path / "r.json").write_text(json.dumps(partly), encoding="utf-8")
    printed = io.StringIO()
    outputs = CiOutputs(tmp_path / "j.xml", tmp_path / "s.md", tmp_path / "c.md", annotations=True)
    with report_of_file(tmp_path / "r.json") as report:
        outputs.write(report, printed, attempts=Attempts())
    for name in ("j.xml", "s.md", "c.md"):
        assert SENTENCE in (tmp_path / name).read_text("utf-8")
    assert printed.getvalue().startswith(f"::{command} ")
    assert SENTENCE in printed.getvalue()


def test_comparisons_say_it_of_each_run(tmp_path: Path) -> None:
    """Once where both runs are over the same part; text, Markdown and JSON; the short text names the runs."""
    documents = two()
    for each in documents:
        each["summary"]["selection"] = SELECTION
    with compared(tmp_path, documents) as report:
        sentence = f"PART OF THE DATASET: A and B: {SENTENCE}"
        assert sentence in comparison_lines(report)
        assert sentence in comparison_markdown(report)
        assert sentence in comparison_document(report)["verdict"]["banners"]
        assert f"PART OF THE DATASET: baseline and candidate: {SENTENCE}" in short_lines(report)


def test_hostile_conditions_stay_text(partly: dict[str, Any]) -> None:
    """A pattern of a case may hold anything; the notebook escapes it."""
    partly["summary"]["selection"] = {**SELECTION, "sentence": f"1 of 2 cases: case {HOSTILE}<script>"}
    assert "<script>" not in run_html(partly)
    assert run_markdown(partly)


def test_repeated_rows_and_copies_are_said_beside_the_verdict() -> None:
    """The orchestrator adds a sentence each to the notes, which console, documents of runs and reports show."""
    run = run_over(200, None)
    reading = DatasetReading("c.jsonl", "plain/jsonl", "", copy_count=199, first_copy="record 2 repeats record 1")
    assert run.summary is not None
    settings = dataclasses.replace(run.spec, dataset=reading, repeats=3)
    summary = dataclasses.replace(run.summary, asked_again_count=3, scored_again_count=1)
    run = dataclasses.replace(run, spec=settings)
    notes = [
        "3 rows asked again after errors",
        "1 row scored again after errors",
        "each of 200 cases was run 3 times: intervals count cases, not rows",
        "record 2 repeats record 1; 199 of 200 cases repeat an earlier one: intervals count copies of a case once",
    ]
    assert row_notes(run, summary) == notes
    run = dataclasses.replace(run, summary=dataclasses.replace(summary, notes=tuple(notes)))
    assert ConsoleSummary(run, io.StringIO()).note_lines() == notes
    assert full(run)["summary"]["notes"] == notes
    head = head_document(run, None)
    assert head["summary"]["notes"] == notes
    assert (head["summary"]["asked_again_count"], head["summary"]["scored_again_count"]) == (3, 1)
    assert head["run"]["dataset"]["copy_count"] == 199
    assert row_notes(run_over(40, None), evaluation().summary) == []
