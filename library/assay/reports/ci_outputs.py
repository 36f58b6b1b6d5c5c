"""Outputs of a run for CI servers: JUnit file, job summary, comment text and annotations."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from assay.comparison.decision import FAILED, NO_REGRESSION
from assay.errors import InvalidInputError, Problem, SetupError
from assay.reports.annotations import annotation_lines, comparison_line
from assay.reports.atomic import atomic_writer, check_folder
from assay.reports.comparison.formats.markdown import comparison_section
from assay.reports.comparison.words.headline import Naming, verdict_sentence
from assay.reports.document.case_outcomes import Outcome
from assay.reports.formats.junit_document import ComparedWithBaseline, write_junit
from assay.reports.formats.markdown_document import markdown_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay.comparison.decision import ComparisonDecision
    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.document.report import Report
    from assay.reports.failures import Attempts

MAX_SUMMARY_BYTES = 1_024_000
"""The largest summary of a GitHub step; above 1,024 kB GitHub drops all of it."""


@dataclass(frozen=True, slots=True)
class CiOutputs:
    """The requested outputs; none by default.

    Args:
        junit: The JUnit file, which is replaced.
        summary: The job's summary, which the report is added to.
        comment_file: The text of a comment, which is replaced; its first line names spec and key.
        comment_key: Distinguishes the comments of one spec.
        annotations: Whether annotations are printed.
        annotations_file: The file for annotations, which is replaced.
    """

    junit: Path | None = None
    summary: Path | None = None
    comment_file: Path | None = None
    comment_key: str = "default"
    annotations: bool = False
    annotations_file: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.annotations or list(self._files()))

    def check(self) -> None:
        """Check that all files can be written, before anything runs.

        Raises:
            InvalidInputError: Two options name one file.
            SetupError: Files cannot be written; names all of them.
        """
        files = [(option, path.absolute()) for option, path in self._files()]
        twice = [option for option, path in files if [other_path for _, other_path in files].count(path) > 1]
        if twice:
            raise InvalidInputError([Problem("names the file of another option, too", option) for option in twice])
        if problems := [problem for option, path in self._files() if (problem := _problem(option, path))]:
            raise SetupError("\n".join(problems))

    def in_place(self) -> CiOutputs:
        """Return the same outputs with absolute files: an agent may change the current folder."""
        files = (self.junit, self.summary, self.comment_file, self.annotations_file)
        junit, summary, comment, annotations = (path and path.absolute() for path in files)
        return replace(self, junit=junit, summary=summary, comment_file=comment, annotations_file=annotations)

    def write(
        self,
        report: Report,
        out: IO[str],
        compared: ComparisonReport | None = None,
        decision: ComparisonDecision | None = None,
        *,
        attempts: Attempts,
    ) -> None:
        """Write the files, and print annotations.

        Args:
            report: The report.
            out: Takes annotations, a line each.
            compared: The run's comparison with its baseline; None without one.
            decision: Decision of the comparison, even if it failed; None for that of `compared`.
            attempts: Records failures to write.
        """
        against = _Against(compared, compared.decision if compared is not None else decision)
        if self.junit is not None:
            with attempts.attempt("the file of --junit"), atomic_writer(self.junit, option="--junit") as file:
                write_junit(report, file, against.as_test_case())
        if self.comment_file is not None:
            attempt = attempts.attempt("the file of --comment-file")
            with attempt, atomic_writer(self.comment_file, option="--comment-file") as file:
                file.write(f"{comment_marker(report, self.comment_key)}\n{_markdown(report, against)}")
        if self.summary is not None:
            with attempts.attempt("the file of --summary"):
                _add_summary(report, self.summary, against)
        if not self.annotations and self.annotations_file is None:
            return
        with attempts.attempt("the annotations"):
            lines = [f"{line}\n" for line in (*annotation_lines(report), *against.annotation_lines())]
            if self.annotations:
                out.writelines(lines)
            if self.annotations_file is not None:
                with atomic_writer(self.annotations_file, option="--annotations-file") as file:
                    file.writelines(lines)

    def _files(self) -> Iterator[tuple[str, Path]]:
        given = (
            ("--junit", self.junit),
            ("--summary", self.summary),
            ("--comment-file", self.comment_file),
            ("--annotations-file", self.annotations_file),
        )
        yield from ((option, path) for option, path in given if path is not None)


@dataclass(frozen=True, slots=True)
class _Against:
    """A run's comparison with its baseline; both fields are None without a baseline.

    Args:
        compared: The comparison; None if it failed.
        decision: Its decision.
    """

    compared: ComparisonReport | None
    decision: ComparisonDecision | None

    def as_test_case(self) -> ComparedWithBaseline | None:
        """Return the comparison as a test case of a JUnit file; None without a baseline."""
        if self.decision is None:
            return None
        status = self.decision.exit_status
        outcome = Outcome.PASSED if status == NO_REGRESSION else Outcome.FAILED if status == FAILED else Outcome.ERROR
        name = self.compared.comparison.variants[0].run_id if self.compared is not None else "the baseline"
        return ComparedWithBaseline(name, outcome, self._message(self.decision))

    def annotation_lines(self) -> list[str]:
        """Return the annotation of a comparison that fails the job, or passes it undecided; else none."""
        if self.decision is None:
            return []
        is_failure = self.decision.exit_status != NO_REGRESSION
        if not is_failure and not self.decision.otherwise:
            return []
        return [comparison_line(self.decision.word, self._message(self.decision), is_failure=is_failure)]

    def _message(self, decision: ComparisonDecision) -> str:
        """Return the verdict and why the job fails, without reasons that the verdict states already."""
        if self.compared is None:
            return " ".join(decision.reasons)
        sentence = verdict_sentence(self.compared, Naming.NAME)
        return sentence if decision.exit_status == NO_REGRESSION else " ".join((sentence, *decision.reasons))


def comment_marker(report: Report, key: str) -> str:
    """Return the hidden line that identifies a comment, so that it can be updated."""
    return f"<!-- assay:{_marked(report.head['run']['name'])}:{_marked(key)} -->"


def _marked(name: str) -> str:
    return quote(name, safe="", errors="replace").replace("--", "-%2D")


def _problem(option: str, path: Path) -> str:
    """Return why a file cannot be written; empty if it can."""
    if os.path.lexists(path) and not path.is_file():
        return f"{path} is no file: choose another place with {option}"
    try:
        check_folder(path.parent, option=option)
    except SetupError as error:
        return error.message
    if path.is_file() and not os.access(path, os.W_OK):
        return f"{path} cannot be written: choose another place with {option}"
    return ""


def _markdown(report: Report, against: _Against, max_bytes: int | None = None) -> str:
    """Return a report as Markdown followed by the comparison with a baseline, which has priority if room is short."""
    section = "" if against.compared is None else f"\n{comparison_section(against.compared)}"
    room = None if max_bytes is None else max_bytes - len(section.encode())
    if room is not None and room < 0:
        section, room = "", max_bytes
    return markdown_document(report, against.decision, max_bytes=room) + section


def _add_summary(report: Report, path: Path, against: _Against) -> None:
    """Append the report to a summary, to which other commands may have written, as far as there is room."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            room = MAX_SUMMARY_BYTES - file.tell() - 2
            text = _markdown(report, against, max(0, room))
            # Blank lines around it: it ends with HTML, which Markdown that follows at once would belong to.
            file.write(f"\n{text}\n".encode() if text else b"")
    except OSError as error:
        raise SetupError(
            f"{path} cannot be written ({error.strerror or error}): choose another place with --summary"
        ) from error
