"""Recording of a run's rows into a file that appears, complete, after the last row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import click

from assay.reports.atomic import atomic_writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path
    from typing import IO

    from assay.model.case import Case
    from assay.model.run import RowResult


class Recording(Protocol):
    """Writer of one recording option."""

    option: str
    """Option that names the file."""

    def take(self, row: RowResult, case: Case | None, file: IO[str]) -> None:
        """Write the output of a row; `case` is None if the dataset no longer has it."""

    def finish(self, file: IO[str]) -> None:
        """Write the output of the last rows."""

    def summary(self, shown: Path) -> str:
        """Return a sentence on recorded and left-out entries; `shown` is the file as the user named it."""


async def recorded_rows(
    rows: AsyncIterator[RowResult], cases: Iterable[Case], path: Path, shown: Path, recording: Recording
) -> AsyncIterator[RowResult]:
    """Yield the rows of a run while recording them; the file appears after the last row.

    Args:
        rows: Rows in the order of the dataset.
        cases: Cases of the dataset, in order.
        path: The file; an existing one is replaced.
        shown: The file as the user named it.
        recording: Writer of the file.

    Raises:
        SetupError: The file cannot be written.
    """
    numbered = enumerate(cases)
    index, case = -1, None
    with atomic_writer(path, option=recording.option) as file:
        async for row in rows:
            while index < row.case_index:
                index, case = next(numbered, (row.case_index, None))
            recording.take(row, case if case is not None and case.case_id == row.case_id else None, file)
            yield row
        recording.finish(file)
    click.echo(recording.summary(shown), err=True)
