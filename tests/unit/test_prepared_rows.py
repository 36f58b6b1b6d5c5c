"""Reports of rows whose parts were made while the run went on: the same files, byte for byte."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.test_report_document import KINDS, ROWS, finished

from assay.client.watched_rows import WatchedRows
from assay.model.answers.agent_response import AgentResponse
from assay.model.report_settings import DEFAULT_REPORTS
from assay.reports.document.prepared_rows import PreparedRows
from assay.reports.writing import row_preparation, write_reports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from assay.model.run import RowResult

LONG = dataclasses.replace(ROWS[2], response=AgentResponse(text="<long> \u202e" * 30_000))
REPORTED = (*ROWS[:2], LONG)


async def written(folder: Path, rows: Sequence[RowResult], prepared: PreparedRows | None) -> dict[str, bytes]:
    """The report's files by their names."""

    async def one_by_one() -> AsyncIterator[RowResult]:
        for row in rows:
            yield row

    files = await write_reports(finished(), one_by_one(), DEFAULT_REPORTS, folder, prepared=prepared)
    return {path.name: path.read_bytes() for path in files.written}


async def prepared_of(events: Sequence[RowResult], *, rounds: int) -> PreparedRows:
    """What is prepared of rows that a watch brings, so many rounds of the event loop later."""
    prepared = row_preparation(DEFAULT_REPORTS, KINDS)
    await take(events, prepared, rounds=rounds)
    return prepared


async def take(events: Sequence[RowResult], prepared: PreparedRows, *, rounds: int) -> None:
    """Prepare the rows that a watch brings, for so many rounds of the event loop."""
    watched = WatchedRows(len(events), prepared=prepared)
    for event in events:
        watched.take(event)
    for _ in range(rounds):
        await asyncio.sleep(0)


def counting(made: list[str]) -> PreparedRows:
    """Return a preparation whose parts are the ids of the cases, and which lists every part that it makes."""

    def make(document: Mapping[str, Any], _: Sequence[str]) -> str:
        made.append(document["case_id"])
        return made[-1]

    return PreparedRows(KINDS, {"html": make})


@pytest.mark.parametrize("rounds", [0, 1, 50])
async def test_files_do_not_depend_on_what_was_prepared(tmp_path: Path, rounds: int) -> None:
    """All rows prepared, a few, or none; a row that comes again replaces itself; long ones are left to the end."""
    earlier = [dataclasses.replace(row, passed=None, message="an earlier attempt") for row in ROWS]
    prepared = await prepared_of([*earlier, *reversed(REPORTED)], rounds=rounds)
    files = await written(tmp_path / "prepared", REPORTED, prepared)
    assert files == await written(tmp_path / "plain", REPORTED, None)
    assert set(files) == {"results.json", "report.html"}


async def test_rows_are_prepared_before_they_are_asked_for() -> None:
    """A row of the watch is there at the end of the run; a long one is not, as it would hold the agent up."""
    made: list[str] = []
    prepared = counting(made)
    await take(REPORTED, prepared, rounds=50)
    assert made == [row.case_id for row in ROWS[:2]]
    for row in ROWS[:2]:
        assert prepared.of(row).parts == {"html": row.case_id}
    assert len(made) == 2


async def test_many_or_long_rows_leave_nothing_behind() -> None:
    """Rows that are given up because they are too long altogether leave no parts in memory."""
    made: list[str] = []
    prepared = counting(made)
    watched = WatchedRows(2_000, prepared=prepared)
    text = AgentResponse(text="x" * 15_000)
    rows = [dataclasses.replace(ROWS[0], case_index=index, response=text) for index in range(1_200)]
    for row in rows:
        watched.take(row)
        await asyncio.sleep(0)
    assert not watched.is_wanted
    await asyncio.sleep(0)
    assert made
    made.clear()
    for row in rows:
        prepared.of(row)
    assert len(made) == len(rows)
