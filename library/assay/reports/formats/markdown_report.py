"""report.md: the run in at most 60 lines, for pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.reports.formats.markdown_document import markdown_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write report.md."""
    del options
    with folder.text("report.md") as file:
        file.write(markdown_document(report))
