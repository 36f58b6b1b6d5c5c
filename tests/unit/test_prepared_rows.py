"""Rows that are prepared for reports while they arrive: the same files, byte for byte, and none left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tracemalloc
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_report_document import ROWS, finished

from assay.errors import SetupError
from assay.model.answers.agent_response import AgentResponse
from assay.model.report_settings import DEFAULT_REPORTS
from assay.model.run import RowResult, RunCounts
from assay.reports.document.prepared_rows import PreparedRows
from assay.reports.document.row_spool import RowSpool
from assay.reports.formats.html.page_rows import PageRows
from assay.reports.writing import row_preparation, write_prepared, write_reports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

LONG = dataclasses.replace(ROWS[2], response=AgentResponse(text="<long> \u202e\ud800" * 30_000))
REPORTED = (*ROWS[:2], LONG)


async def plain(folder: Path, rows: Sequence[RowResult]) -> dict[str, bytes]:
    """The report's files by their names, from rows that are read at the end."""

    async def one_by_one() -> AsyncIterator[RowResult]:
        for row in rows:
            yield row

    files = await write_reports(finished(), one_by_one(), DEFAULT_REPORTS, folder)
    return {path.name: path.read_bytes() for path in files.written}


@pytest.mark.parametrize("rounds", [0, 1, 50])
async def test_files_do_not_depend_on_when_rows_were_prepared(tmp_path: Path, rounds: int) -> None:
    """The rows arrive in another order, a row arrives twice, and all, a few or none are prepared before the end."""
    taken: list[str] = []
    with row_preparation(finished(), DEFAULT_REPORTS, tmp_path, lambda row: taken.append(row.case_id)) as prepared:
        for row in (*reversed(REPORTED), ROWS[0]):
            prepared.take_soon(row)
        for _ in range(rounds):
            await asyncio.sleep(0)
        assert await prepared.is_complete(finished())
        files = await write_prepared(finished(), prepared, DEFAULT_REPORTS, tmp_path / "prepared")
    assert {path.name: path.read_bytes() for path in files.written} == await plain(tmp_path / "plain", REPORTED)
    assert sorted(taken) == [row.case_id for row in REPORTED]


async def test_rows_are_prepared_while_they_arrive(tmp_path: Path) -> None:
    """Short rows need only the event loop: at the end of the run, nothing of them remains to be done."""
    taken: list[RowResult] = []
    with row_preparation(finished(), DEFAULT_REPORTS, tmp_path, taken.append) as prepared:
        for row in ROWS:
            prepared.take_soon(row)
        assert taken == []
        for _ in range(3):
            await asyncio.sleep(0)
        assert taken == list(ROWS)


async def test_a_replaced_row_makes_the_preparation_unusable(tmp_path: Path) -> None:
    """A row that was scored again differs from what figures and files already contain."""
    with row_preparation(finished(), DEFAULT_REPORTS, tmp_path) as prepared:
        for row in (dataclasses.replace(ROWS[0], passed=None, message="an earlier attempt"), *ROWS):
            prepared.take_soon(row)
        assert not await prepared.is_complete(finished())


async def test_a_missing_row_makes_the_preparation_incomplete(tmp_path: Path) -> None:
    """Rows that ended before the watch began are not among the prepared rows."""
    with row_preparation(finished(), DEFAULT_REPORTS, tmp_path) as prepared:
        prepared.take_soon(ROWS[0])
        assert not await prepared.is_complete(finished())


async def test_prepared_rows_are_neither_in_memory_nor_in_a_named_file(tmp_path: Path) -> None:
    """30 MB of rows need little memory, whether the event loop gets to them or not, and a kill leaves no file."""
    run = dataclasses.replace(finished(), counts=RunCounts(2_000, 2_000))
    with row_preparation(run, DEFAULT_REPORTS, tmp_path) as prepared:
        tracemalloc.start()
        for index in range(2_000):
            text = AgentResponse(text=f"{index}" + "x" * 15_000)
            prepared.take_soon(dataclasses.replace(ROWS[0], case_index=index, response=text))
            if index < 1_000:
                await asyncio.sleep(0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert not any(os.scandir(tmp_path))
        assert await prepared.is_complete(run)
    assert peak < 8_000_000


async def test_a_format_that_cannot_be_prepared_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows stay complete, so that the verdict is printed and the other reports are written."""

    def fail(self: PageRows, row: object) -> tuple[str, str]:
        raise ValueError("an odd row")

    monkeypatch.setattr(PageRows, "texts_of", fail)
    with row_preparation(finished(), DEFAULT_REPORTS, tmp_path) as prepared:
        for row in ROWS:
            prepared.take_soon(row)
        assert await prepared.is_complete(finished())
        files = await write_prepared(finished(), prepared, DEFAULT_REPORTS, tmp_path)
    assert [path.name for path in files.written] == ["results.json"]
    (failure,) = files.attempts.failures
    assert failure.startswith("the report html was not written (ValueError: an odd row)")


async def test_a_full_disk_is_reported_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run continues without prepared rows; only reading them again fails."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with PreparedRows(finished(), tmp_path) as prepared, PreparedRows(finished(), tmp_path) as at_the_end:
        monkeypatch.setattr(RowSpool, "put", fail)
        for row in ROWS:
            prepared.take_soon(row)
        assert not await prepared.is_complete(finished())
        with pytest.raises(SetupError, match=r"cannot hold the rows of the report \(No space left on device\)"):
            at_the_end.take(ROWS[0])


def test_a_spool_returns_texts_by_place(tmp_path: Path) -> None:
    """Texts come back in the order of their places, with gaps left out, and empty or odd texts unchanged."""
    with closing(RowSpool(tmp_path)) as spool:
        spool.put(5, "five", "\ud800")
        spool.put(0, "", "zero")
        assert (spool.has(0), spool.has(1), spool.has(5), spool.has(9)) == (True, False, True, False)
        assert list(spool.first_texts()) == [b"", b"five"]
        spool.put(2, "two")
        assert [text.decode("utf-8", "surrogatepass") for text in spool.second_texts()] == ["zero", "", "\ud800"]
        assert spool.first_text(2) == b"two"
