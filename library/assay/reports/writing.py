"""Writing of a run's reports: the known formats, all written from the same prepared rows."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, Protocol

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay.reports.atomic import existing_folder
from assay.reports.document.prepared_rows import PreparedRows, spooling
from assay.reports.folder import ReportFolder
from assay.reports.formats.json_report import write_document
from assay.reports.words.recommendations import recommendations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from assay.model.report_settings import ReportSettings
    from assay.model.run import RowResult, Run
    from assay.reports.document.report import Report, RowCollector
    from assay.reports.failures import Attempts
    from assay.specs.model import Spec


class Writer(Protocol):
    """Interface of a format's module."""

    def write(self, report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
        """Write the format's files.

        Raises:
            SetupError: The files cannot be written.
        """


@dataclass(frozen=True, slots=True)
class Format:
    """A report format.

    Args:
        module: Module that writes it, imported on demand.
        summary: Its purpose in a few words.
        package: Additional package that it needs; empty for none.
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
    "markdown": Format("markdown_document", "report.md: at most 60 lines, for pull requests"),
    "junit": Format("junit_document", "junit.xml: a test case for each case, for CI servers"),
    "parquet": Format(
        "parquet_report", "results.parquet: rows with typed columns, for data tools", "pyarrow", "parquet"
    ),
    "charts": Format("charts_report", "charts/: six pictures, PNG or SVG", "matplotlib", "reports"),
    "html": Format("html.html_report", "report.html: verdict, figures and every case, for people", "jinja2", "cli"),
}


def check_formats(wanted: Sequence[ReportSettings]) -> None:
    """Check that the packages of the formats are installed, before anything runs.

    Raises:
        SetupError: A package is missing; the message says how to install it.
    """
    missing = [settings.format for settings in wanted if not settings.is_optional and not _is_there(settings)]
    if missing:
        raise SetupError(f"the report {', '.join(missing)} needs {_needs(missing)}", reason="NOT_INSTALLED")


def _is_there(settings: ReportSettings) -> bool:
    package = FORMATS[settings.format].package
    return not package or find_spec(package) is not None


def _needs(names: Sequence[str]) -> str:
    packages = ", ".join(sorted({FORMATS[name].package for name in names}))
    hint = install_hint(*sorted({FORMATS[name].extra for name in names}))
    return f"{packages}, not installed here: {hint}"


def prepare_formats(wanted: Sequence[ReportSettings]) -> None:
    """Import the modules of the formats early; missing packages are reported when writing."""
    for settings in wanted:
        if _is_there(settings):
            module = importlib.import_module(f"assay.reports.formats.{FORMATS[settings.format].module}")
            if (prepare := getattr(module, "prepare", None)) is not None:
                prepare()


def write_formats(
    report: Report,
    wanted: Sequence[ReportSettings],
    folder: ReportFolder,
    shown: Callable[[str], None] = lambda text: None,
) -> None:
    """Write a report in all requested formats; `folder.attempts` records failures.

    Args:
        report: The report.
        wanted: The requested formats.
        folder: The folder of the files.
        shown: Called with the name of each format before it is written.
    """
    for settings in wanted:
        shown(settings.format)
        if settings.is_optional and not _is_there(settings):
            folder.notes.append(f"{settings.format} is left out: it needs {_needs([settings.format])}")
            continue
        with folder.attempts.attempt(f"the report {settings.format}"):
            writer: Writer = importlib.import_module(f"assay.reports.formats.{FORMATS[settings.format].module}")
            writer.write(report, folder, settings.options)


def row_preparation(
    run: Run, wanted: Sequence[ReportSettings], folder: Path, also: Callable[[RowResult], None] = lambda row: None
) -> PreparedRows:
    """Return the preparation of a run's rows for the requested formats.

    Args:
        run: The run, in any state.
        wanted: The requested formats.
        folder: The folder of the reports, which need not exist yet; temporary files are stored there or above it.
        also: Called with each row, once.

    Raises:
        SetupError: No temporary file can be created.
    """
    place = existing_folder(folder)
    metrics = [metric.name for metric in run.spec.metrics]
    collectors: dict[str, RowCollector] = {}
    with spooling(place):
        for settings in wanted:
            if _is_there(settings):
                module = importlib.import_module(f"assay.reports.formats.{FORMATS[settings.format].module}")
                if (collector := getattr(module, "collector", None)) is not None:
                    collectors[settings.format] = collector(metrics, place)
    return PreparedRows(run, place, collectors, also)


async def write_reports(
    run: Run,
    rows: AsyncIterator[RowResult],
    wanted: Sequence[ReportSettings],
    folder: Path,
    *,
    ci: Callable[[Report, Attempts], None] | None = None,
    server: str | None = None,
) -> ReportFolder:
    """Read the rows of a run once and write its reports; return their folder.

    Args:
        run: The run with its summary.
        rows: Rows in dataset order.
        wanted: The requested formats.
        folder: Folder, created if missing.
        ci: Outputs for a CI server, or None.
        server: The server that stores the run, where the user named one, for commands that the reports print.

    Raises:
        SetupError: No report can be written, or a package is missing.
    """
    check_formats(wanted)
    with row_preparation(run, wanted, folder) as prepared:
        async for row in rows:
            prepared.take(row)
        return await write_prepared(run, prepared, wanted, folder, ci=ci, server=server)


async def write_prepared(
    run: Run,
    prepared: PreparedRows,
    wanted: Sequence[ReportSettings],
    folder: Path,
    *,
    spec: Spec | None = None,
    document: IO[str] | None = None,
    ci: Callable[[Report, Attempts], None] | None = None,
    option: str = "--output-dir",
    server: str | None = None,
    shown: Callable[[str], None] = lambda text: None,
) -> ReportFolder:
    """Write the reports of a run in a thread; return their folder.

    Args:
        run: The run with its summary.
        prepared: Its rows, all of them.
        wanted: The requested formats.
        folder: Folder, created if missing.
        spec: Path of the run's spec; None if only the run is known.
        document: Stream that also gets the document of the JSON report, or None.
        ci: Outputs for a CI server, written in the same thread, or None.
        option: The option that names the folder, for messages.
        server: The server that stores the run, where the user named one, for commands that the reports print.
        shown: Called with the name of each format before it is written.

    Raises:
        SetupError: No report can be written, or a package is missing.
    """
    check_formats(wanted)
    reports_folder = ReportFolder(folder, run.run_id, option=option)
    report = prepared.report(run, spec)
    report.server = server
    if server:
        source = spec.source if spec is not None else None
        report.head["summary"]["recommendations"] = recommendations(run, source, server)
    await asyncio.to_thread(write_formats, report, wanted, reports_folder, shown)
    if ci is not None:
        await asyncio.to_thread(ci, report, reports_folder.attempts)
    if document is not None:
        write_document(report, document)
    else:
        reports_folder.attempts.raise_if_all_failed()
    return reports_folder
