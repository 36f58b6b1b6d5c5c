"""Lines that name the written report files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from assay.reports.folder import ReportFolder


def print_failures(reports: ReportFolder) -> None:
    """Name reports that could not be written, on stderr; the verdict does not depend on them."""
    for failure in reports.attempts.failures:
        click.echo(f"error: {clean(failure)}", err=True)


def report_lines(reports: ReportFolder) -> list[str]:
    """Return a line for each written file; the files of a subfolder share one."""
    lines, folders = [], dict[str, int]()
    for path in reports.written:
        if path.parent == reports.path:
            lines.append(f"report: {clean(str(reports.shown_path(path)))}")
        else:
            folder = str(reports.shown_path(path.parent))
            folders[folder] = folders.get(folder, 0) + 1
    lines += [f"report: {clean(folder)}/ ({count_text(count, 'file')})" for folder, count in folders.items()]
    lines += [f"note: {clean(note)}" for note in reports.notes]
    if reports.other_run is not None:
        lines.append(
            f"note: {clean(str(reports.shown))} has the report of {clean(reports.other_run)}, so these files have the "
            "id of their run in their names"
        )
    return lines
