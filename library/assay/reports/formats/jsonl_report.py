"""results.jsonl: one row per line, without the head, for tools that stream rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.text.unsafe_text import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write results.jsonl; each row also names its schema and its run."""
    del options
    prefix = '{"schema": "assay/row/1", "run_id": ' + json_text(report.run_id) + ", "
    with folder.text("results.jsonl") as file:
        for line in report.row_lines():
            file.write(prefix + line.removeprefix("{") + "\n")
