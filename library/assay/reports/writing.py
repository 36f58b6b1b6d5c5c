"""Writing the reports of a run: which formats there are, and all that are wanted from one reading of the rows."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, Protocol

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay.reports.document.prepared_rows import PreparedRows
from assay.reports.document.report import report_of_run
from assay.reports.folder import ReportFolder
from assay.reports.formats.json_report import write_document
from assay.reports.words.recommendations import recommendations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from assay.model.report_settings import ReportSettings
    from assay.model.run import CaseResult, Run
    from assay.reports.document.report import Report
    from assay.reports.failures import Attempts
    from assay.specs.model import Spec


class Writer(Protocol):
    """What the module of a format has."""

    def write(self, report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
        """Write the format's files.

        Raises:
            SetupError: They cannot be written.
        """


@dataclass(frozen=True, slots=True)
class Format:
    """One format of reports.

    Args:
        module: The module that writes it, imported when it is wanted.
        summary: What it is good for, in a few words.
        package: A package that it needs beyond those of the command; empty for none.
        extra: The extra of Assay that installs the package.
    """

    module: str
    summary: str
    package: str = ""
    extra: str = ""


FORMATS: Mapping[str, Format] = {
    "json": Format("json_report", "results.json: everything, for programs"),
    "jsonl": Format("jsonl_report", "results.jsonl: one row a line"),
    "csv": Format("csv_report", "evaluation_results_….csv and evaluation_summary_….csv: for spreadsheets"),
    "markdown": Format("markdown_report", "report.md: at most 60 lines, for pull requests"),
    "junit": Format("junit_report", "junit.xml: a test case for each case, for CI servers"),
    "parquet": Format(
        "parquet_report", "results.parquet: rows with typed columns, for data tools", "pyarrow", "parquet"
    ),
    "charts": Format("charts_report", "charts/: six pictures, PNG or SVG", "matplotlib", "reports"),
    "html": Format("html.html_report", "report.html: verdict, figures and every case, for people", "jinja2", "cli"),
}


def check_formats(wanted: Sequence[ReportSettings]) -> None:
    """Raise if a package is missing that one of the formats needs; before anything is run.

    Raises:
        SetupError: It is; says how to install it.
    """
    missing = [one.format for one in wanted if not one.is_optional and not _is_there(one)]
    if missing:
        raise SetupError(f"the report {', '.join(missing)} needs {_needs(missing)}", reason="NOT_INSTALLED")


def _is_there(one: ReportSettings) -> bool:
    package = FORMATS[one.format].package
    return not package or find_spec(package) is not None


def _needs(names: Sequence[str]) -> str:
    packages = ", ".join(sorted({FORMATS[name].package for name in names}))
    hint = install_hint(*sorted({FORMATS[name].extra for name in names}))
    return f"{packages}, not installed here: {hint}"


def prepare_formats(wanted: Sequence[ReportSettings]) -> None:
    """Import what writes the formats, so that it is there when the run ends; what is missing is left to the writing."""
    for one in wanted:
        if _is_there(one):
            module = importlib.import_module(f"assay.reports.formats.{FORMATS[one.format].module}")
            if (prepare := getattr(module, "prepare", None)) is not None:
                prepare()


def write_formats(report: Report, wanted: Sequence[ReportSettings], folder: ReportFolder) -> None:
    """Write a report in every format that is wanted; `folder.attempts` names those that could not be written."""
    for one in wanted:
        if one.is_optional and not _is_there(one):
            folder.notes.append(f"{one.format} is left out: it needs {_needs([one.format])}")
            continue
        with folder.attempts.attempt(f"the report {one.format}"):
            writer: Writer = importlib.import_module(f"assay.reports.formats.{FORMATS[one.format].module}")
            writer.write(report, folder, one.options)


def row_preparation(wanted: Sequence[ReportSettings], metrics: Sequence[str]) -> PreparedRows:
    """Return what makes the parts of rows for the formats that are wanted.

    Args:
        wanted: The formats.
        metrics: The names of the run's metrics, in report order.
    """
    makers = {}
    for one in wanted:
        if _is_there(one):
            module = importlib.import_module(f"assay.reports.formats.{FORMATS[one.format].module}")
            if (make := getattr(module, "part_of", None)) is not None:
                makers[one.format] = make
    return PreparedRows(metrics, makers)


async def write_reports(
    run: Run,
    rows: AsyncIterator[CaseResult],
    wanted: Sequence[ReportSettings],
    folder: Path,
    *,
    spec: Spec | None = None,
    also: Callable[[CaseResult], None] = lambda row: None,
    document: IO[str] | None = None,
    ci: Callable[[Report, Attempts], None] | None = None,
    option: str = "--output-dir",
    prepared: PreparedRows | None = None,
    server: str | None = None,
) -> ReportFolder:
    """Write the reports of a run, in a thread, from one reading of its rows; return where they are.

    Args:
        run: With its summary.
        rows: In dataset order.
        wanted: The formats.
        folder: It is made.
        spec: Where the run came from; None where only the run is known.
        also: Called with every row as it is read.
        document: Where the document of the JSON report is printed as well; None for nowhere.
        ci: Writes what a CI server takes, in the thread as well; None for nothing.
        option: The option that names the folder, for messages.
        prepared: Has parts of rows that were made before; None for none.
        server: The server that stores the run, where the user named one, for commands that the reports print.

    Raises:
        SetupError: Nothing can be written, or a package is missing.
    """
    check_formats(wanted)
    found = ReportFolder(folder, run.run_id, option=option)
    async with report_of_run(run, spec, rows, folder, also, prepared) as report:
        report.server = server
        if server:
            source = spec.source if spec is not None else None
            report.head["summary"]["recommendations"] = recommendations(run, source, server)
        await asyncio.to_thread(write_formats, report, wanted, found)
        if ci is not None:
            await asyncio.to_thread(ci, report, found.attempts)
        if document is not None:
            write_document(report, document)
    if document is None:
        found.attempts.raise_if_all_failed()
    return found
