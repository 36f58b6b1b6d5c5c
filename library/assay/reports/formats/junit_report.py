"""junit.xml: a test case per case, for CI servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.reports.formats.junit_document import write_junit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write junit.xml."""
    del options
    with folder.text("junit.xml") as file:
        write_junit(report, file)
