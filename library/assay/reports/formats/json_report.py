"""results.json: the whole document."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from assay.reports.document.document import row_document
from assay.text.unsafe_text import json_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from assay.model.run import RowResult
    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write results.json, row by row."""
    del options
    with folder.text("results.json") as file:
        write_document(report, file)


def write_document(report: Report, file: IO[str]) -> None:
    """Write the document of a report: one row a line, so that readers need not hold all of them."""
    head = json_text(report.head, indent=1)
    file.write(head.removesuffix("\n}") + ',\n "rows": [')
    separator = "\n  "
    for line in report.row_lines():
        file.write(separator + line)
        separator = ",\n  "
    file.write("\n ]\n}\n")


async def write_rows(file: IO[str], rows: AsyncIterator[RowResult]) -> None:
    """Write the documents of rows that come one after the other, with commas between them."""
    separator = "\n  "
    async for row in rows:
        file.write(separator + json_text(row_document(row)))
        separator = ",\n  "
