"""Every format on odd runs: it is written, says what is missing, and gives what the run's own report would."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree

import pytest
from tests.support.reports.golden_reports import expected, reports
from tests.support.reports.report_documents import HOSTILE, agent_error, document, failed, metric, row, score, written

from assay.errors import InvalidInputError, SetupError
from assay.model.report_settings import REPORTS, ReportSettings, by_default
from assay.parsing.names import folder_name
from assay.reports.annotations import annotation_lines
from assay.reports.atomic import check_folder
from assay.reports.document.report import report_of_file
from assay.reports.folder import ReportFolder
from assay.reports.formats.html import html_report
from assay.reports.writing import FORMATS, Format, check_formats, write_formats
from assay.specs.presets import PRESETS, preset_reports

if TYPE_CHECKING:
    from assay.reports.document.report import Report


NOTHING = metric(None, scored_count=0, passed_count=0, meets_threshold=None, interval=None)
RUNS: dict[str, dict[str, Any]] = {
    "no rows": document([], {"similarity": NOTHING}, overall_status="NO_DATA", exit_status=3, gates=[]),
    "one row": document([row()]),
    "all errors": document([agent_error(f"c{index}") for index in range(3)], {"similarity": NOTHING}),
    "all equal": document([row(f"c{index}") for index in range(5)]),
    "no verdicts": document([row(passed=None, scores={"similarity": score(None)})], {"similarity": NOTHING}),
    "no metrics": document([row(scores={}, passed=None)], {}),
    "partial": document([row()], partial=True, total_count=9, finished_count=1),
    "repeats": document([row("c1"), failed("c1", repeat=2), row("c2"), row("c2", repeat=2)]),
    "hostile": document([failed(HOSTILE, question=HOSTILE, answer=HOSTILE, references=[HOSTILE], message=HOSTILE)]),
    "arabic": document([failed("حالة", question="ما هي عاصمة السودان؟", answer="الخرطوم.", references=["الخرطوم"])]),
    "long": document([failed("c1", question="q" * 100_000, answer="a " * 100_000)]),
}
# A PNG takes three times as long: test_charts_files.py looks at those.
_QUICK = {"charts": {"plot_format": "svg"}}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("run", RUNS)
def test_a_format_is_written_for_any_run(tmp_path: Path, run: str, name: str) -> None:
    """No run is too odd for a report, and every file has something in it."""
    paths = written(tmp_path, RUNS[run], name, **_QUICK.get(name, {}))
    assert paths
    assert all(path.stat().st_size for path in paths) or (name, run) == ("jsonl", "no rows")
    assert not list(tmp_path.rglob("*.part"))


def test_every_preset_writes_what_the_guide_says() -> None:
    """docs/report.md names the formats of the presets that differ; all others write json and html."""
    assert {name: tuple(preset_report.format for preset_report in preset_reports(name)) for name in ("", *PRESETS)} == {
        **dict.fromkeys(("", "prompt-benchmark", "rag", "research-agent"), ("json", "html")),
        "sql-agent": ("json", "csv", "charts", "html"),
        "prompt-quality": ("json", "markdown", "charts", "html"),
    }


def test_a_format_whose_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, it is refused before anything runs; by default it is left out, with a note on how to install it."""
    monkeypatch.setitem(
        cast("dict[str, Format]", FORMATS), "charts", Format("charts_report", "", "no_such_one", "reports")
    )
    check_formats(by_default("json", "charts"))
    with pytest.raises(SetupError, match=r"the report charts needs no_such_one, not installed here: .*\[reports\]"):
        check_formats([ReportSettings("charts")])
    source = tmp_path / "source.json"
    source.write_text(json.dumps(RUNS["one row"]), encoding="utf-8")
    with report_of_file(source) as report:
        folder = ReportFolder(tmp_path / "out", report.run_id)
        write_formats(report, by_default("charts", "json"), folder)
    assert [path.name for path in folder.written] == ["results.json"]
    assert len(folder.notes) == 1
    assert folder.notes[0].startswith("charts is left out: it needs no_such_one")


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            IndexError("list index out of range"),
            "the report html was not written (IndexError: list index out of range)",
        ),
        (SetupError("report.html cannot be written"), "the report html was not written: report.html cannot be written"),
    ],
)
def test_a_format_that_fails_is_named_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, message: str
) -> None:
    """Its error is no error of the report, unless nothing else was wanted."""

    def failing(report: Report, folder: ReportFolder, options: object) -> None:
        raise problem

    monkeypatch.setattr(html_report, "write", failing)
    source = tmp_path / "source.json"
    source.write_text(json.dumps(RUNS["one row"]), encoding="utf-8")
    with report_of_file(source) as report:
        folder = ReportFolder(tmp_path / "out", report.run_id)
        write_formats(report, by_default("html", "jsonl"), folder)
        folder.attempts.raise_if_all_failed()
        alone = ReportFolder(tmp_path / "alone", report.run_id)
        write_formats(report, by_default("html"), alone)
    assert [path.name for path in folder.written] == ["results.jsonl"]
    assert [failure.split(": please report")[0] for failure in folder.attempts.failures] == [message]
    with pytest.warns(UserWarning, match="the report html was not written"):
        folder.attempts.warn()
    with pytest.raises(SetupError, match=r"(?s)no report could be written.*the report html"):
        alone.attempts.raise_if_all_failed()


@pytest.mark.parametrize("name", ["junit", "markdown", "annotations"])
def test_a_conversation_is_shown_by_the_turn_that_failed(tmp_path: Path, name: str) -> None:
    """Not by its last one, which may be right; by the last one where none failed by itself."""
    turns = [
        {"turn_index": 0, "question": "first?", "answer": "wrong one", "references": ["right one"], "status": "success",
         "scores": {"similarity": score(0.1, passed=False)}},
        {"turn_index": 1, "question": "last?", "answer": "fine", "references": ["fine"], "status": "success",
         "scores": {"similarity": score(0.9)}},
    ]  # fmt: skip
    last: dict[str, Any] = {"question": "last?", "answer": "fine", "references": ["fine"]}
    found = document([failed("c1", turns=turns, **last), failed("c2", turns=turns[1:], **last)], exit_status=1)
    if name == "annotations":
        source = tmp_path / "source.json"
        source.write_text(json.dumps(found), encoding="utf-8")
        with report_of_file(source) as report:
            text = "\n".join(annotation_lines(report, {}))
    else:
        (path,) = written(tmp_path, found, name)
        text = path.read_text(encoding="utf-8")
    assert "wrong one" in text
    assert text.count("last?") == 1


@pytest.mark.parametrize("name", ["html", "junit", "markdown"])
def test_a_report_that_a_job_prints_holds_no_command(tmp_path: Path, name: str) -> None:
    """A CI server reads all output: no line of the file is a command, and the text reads as it was written."""
    forged = "no\n::error::forged\n  ::warning::forged\n##[error]forged ##vso[task.complete]"
    report = document([failed("c1", question=forged, answer=forged, references=[forged], message=forged)])
    (path,) = written(tmp_path, report, name)
    text = path.read_text(encoding="utf-8")
    assert "forged" in text
    assert not re.search(r"(?m)^\s*::|##\w*\[", text)
    if name == "junit":
        (failure,) = ElementTree.fromstring(text).iter("failure")
        assert forged in (failure.text or "")


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_the_same_each_time(tmp_path: Path, name: str) -> None:
    """Writing it again later gives the same bytes: nothing in it is of the moment of writing."""
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        paths = written(folder, RUNS["repeats"], name, **_QUICK.get(name, {}))
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]


def test_reports_are_those_that_were_reviewed(tmp_path: Path) -> None:
    """Columns, words and order of text reports and of the console change where someone reviews them."""
    files = dict(reports(tmp_path))
    wanted = expected()
    assert sorted(files) == sorted(wanted)
    for name, content in files.items():
        assert content.decode() == wanted[name].decode(), name


def test_a_folder_that_can_be_made_is_taken_and_left_alone(tmp_path: Path) -> None:
    """Neither the folder nor a trial file stays behind."""
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    """The sentence names what is in the way, and the option."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"file is not a folder\): choose another place with --output-dir"):
        check_folder(tmp_path / "file" / "out")


def test_an_id_that_is_a_path_makes_no_folder(tmp_path: Path) -> None:
    """Names of files carry the id of their run: one that leads elsewhere is refused before anything is written."""
    for run_id in ("x/../../PWNED", "/x", "..", ""):
        with pytest.raises(InvalidInputError, match="a run's id has 1 to 128 letters"):
            ReportFolder(tmp_path / "out", run_id)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("answers of v1", "answers of v1"),
        ("../x", "-.-x"),
        ("a/b\\c", "a-b-c"),
        ("/etc", "-etc"),
        (".", "-"),
        ("..", "-."),
    ],
)
def test_a_name_is_one_folder(name: str, folder: str) -> None:
    """The name of an evaluation is a folder of the reports of pytest, and never a path."""
    assert folder_name(name) == folder


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_file_system_that_refuses_every_user_is_noticed() -> None:
    """The superuser has all rights in /proc and can make no file there."""
    with pytest.raises(SetupError, match="/proc"):
        check_folder(Path("/proc/nope/out"))
