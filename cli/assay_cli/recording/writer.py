"""What a run records while its rows come: a file that appears whole, behind the last row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import click

from assay.reports.atomic import atomic_writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path
    from typing import IO

    from assay.model.case import Case
    from assay.model.run import CaseResult


class Recording(Protocol):
    """Writes what one option records of a run's rows."""

    option: str
    """The option that names the file."""

    def take(self, row: CaseResult, case: Case | None, file: IO[str]) -> None:
        """Write what a row adds; `case` is None where the dataset no longer has the row's case."""

    def finish(self, file: IO[str]) -> None:
        """Write what the last rows add."""

    def summary(self, shown: Path) -> str:
        """Return what was recorded and what was left out; `shown` is the file as the user named it."""


async def recorded_rows(
    rows: AsyncIterator[CaseResult], cases: Iterable[Case], path: Path, shown: Path, recording: Recording
) -> AsyncIterator[CaseResult]:
    """Yield the rows of a run; after the last one the recording is in a file.

    Args:
        rows: In the order of the dataset.
        cases: The cases of the dataset, in order.
        path: The file, which is replaced.
        shown: The file as the user named it.
        recording: What is written.

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
