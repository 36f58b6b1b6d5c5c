"""evaluation_results_<time>.csv, one row per row of the run, and evaluation_summary_<time>.csv."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError
from assay.reports.formats.csv_columns import row_columns
from assay.reports.formats.csv_summary import summary_lines
from assay.text.csv_text import csv_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import IO

    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder

_LINE_END = "\r\n"  # RFC 4180's


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write both files; with the option `bom`, each begins with the mark by which a spreadsheet knows UTF-8."""
    start = "\ufeff" if options.get("bom") else ""
    stamp = _stamp(str(report.head["timestamp"]))
    columns = row_columns(report.head)
    with folder.text(f"evaluation_results_{stamp}.csv") as file:
        file.write(start)
        rows = ([column.cell(row) for column in columns] for row in report.rows())
        _write_lines(file, [column.name for column in columns], rows)
    with folder.text(f"evaluation_summary_{stamp}.csv") as file:
        file.write(start)
        _write_lines(file, ["Metric", "Value"], summary_lines(report))


def _write_lines(file: IO[str], heading: Iterable[str], lines: Iterable[Iterable[object]]) -> None:
    writer = csv.writer(file, lineterminator=_LINE_END)
    writer.writerow([csv_text(name) for name in heading])
    writer.writerows([_cell(value) for value in line] for line in lines)


def _cell(value: object) -> str | float | None:
    return value if value is None or isinstance(value, int | float) else csv_text(str(value))


def _stamp(timestamp: str) -> str:
    """Return a time as the names of the files have it, in UTC."""
    try:
        return datetime.fromisoformat(timestamp).astimezone(UTC).strftime("%Y%m%d_%H%M%S")
    except ValueError:
        raise InvalidInputError(
            f"the report's timestamp is {timestamp!r}, and the names of CSV files need a time as 2026-11-23T16:41:11Z"
        ) from None
