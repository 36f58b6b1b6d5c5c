"""Writing of comparison reports into a folder."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from assay.errors import InvalidInputError, Problem
from assay.model.report_settings import ReportSettings
from assay.parsing.names import unknown_name
from assay.reports.comparison.formats.cases_csv import write_cases
from assay.reports.comparison.formats.json_document import comparison_document, evaluation_name
from assay.reports.comparison.formats.markdown import comparison_markdown
from assay.reports.folder import ReportFolder
from assay.reports.formats.json_report import write_document
from assay.reports.writing import check_formats
from assay.text.unsafe_text import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from assay.reports.comparison.document.comparison_report import ComparisonReport

FORMATS: Mapping[str, str] = {
    "json": "comparison_results.json and evaluation_1.json, …: everything, for programs",
    "markdown": "comparison_report.md: for pull requests",
    "csv": "comparison_cases.csv: a line for each case, for spreadsheets",
    "charts": "comparison_plots.png or .svg: one picture",
    "html": "comparison.html: verdict, figures and cases with their answers, for people",
}
"""What a comparison can be written as; packages are those of the reports of a run with the same names."""
PLOT_FORMATS = ("png", "svg")


class _Writer(Protocol):
    """Interface of a format's module, which is imported on demand."""

    def write(self, report: ComparisonReport, folder: ReportFolder, plot_format: str) -> None:
        """Write the files of a format."""


def write_comparison(
    report: ComparisonReport,
    folder: Path,
    formats: Sequence[str] = tuple(FORMATS),
    plot_format: str = "png",
) -> ReportFolder:
    """Write a comparison in every format that is wanted; return where the files are, and notes on them.

    In a folder with the report of a run or of another comparison, names carry the id of this comparison.

    Args:
        report: The comparison.
        folder: Folder, created if missing.
        formats: Names of `FORMATS`.
        plot_format: "png" or "svg".

    Raises:
        InvalidInputError: A format is unknown.
        SetupError: Nothing can be written, or a package is missing.
    """
    check_comparison_formats(formats, plot_format)
    reports = ReportFolder(folder, report.comparison_id)
    for name in dict.fromkeys(formats):
        writer = _WRITERS.get(name)
        with reports.attempts.attempt(f"the report {name}"):
            if writer is not None:
                writer(report, reports)
            else:
                module: _Writer = importlib.import_module(f"assay.reports.comparison.formats.{_MODULES[name]}")
                module.write(report, reports, plot_format)
    reports.attempts.raise_if_all_failed()
    return reports


def check_comparison_formats(formats: Sequence[str], plot_format: str = "png") -> None:
    """Check that all formats are known and their packages installed, before anything is compared.

    Raises:
        InvalidInputError: A format is unknown.
        SetupError: A package is missing; says how to install it.
    """
    problems = [unknown_name("report of a comparison", name, tuple(FORMATS)) for name in formats if name not in FORMATS]
    if plot_format not in PLOT_FORMATS:
        problems.append(unknown_name("format of plots", plot_format, PLOT_FORMATS))
    if problems:
        raise InvalidInputError([Problem(problem) for problem in problems])
    check_formats([ReportSettings(name) for name in formats])


def _write_json(report: ComparisonReport, folder: ReportFolder) -> None:
    with folder.text("comparison_results.json") as file:
        file.write(json_text(comparison_document(report), indent=1) + "\n")
    for index, run in enumerate(report.runs):
        with folder.text(evaluation_name(index)) as file:
            write_document(run, file)
    if not report.runs:
        folder.notes.append("evaluation_1.json and so on are left out: the documents of the runs are not here")


def _write_markdown(report: ComparisonReport, folder: ReportFolder) -> None:
    with folder.text("comparison_report.md") as file:
        file.write(comparison_markdown(report))


def _write_csv(report: ComparisonReport, folder: ReportFolder) -> None:
    if report.cases is None:
        folder.notes.append("comparison_cases.csv is left out: the cases of the runs are not here")
        return
    with folder.text("comparison_cases.csv") as file:
        write_cases(report, report.cases, file)


_WRITERS: Mapping[str, Callable[[ComparisonReport, ReportFolder], None]] = {
    "json": _write_json,
    "markdown": _write_markdown,
    "csv": _write_csv,
}
_MODULES = {"charts": "plots", "html": "html.comparison_html"}
"""Of the formats whose packages are imported when they are wanted."""
