"""CSV and TSV: each row is a record, with field names from the first row."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, TextIO

from assay.datasets.records import MAX_RAW_CHARS, BadFileError, Record, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 20
MAX_COLUMNS = 10_000
_EXCEL = re.compile(r"""\ufeff?"?sep=([,;|\t])"?[ \t,;|]*\r?(?:\n|$)""", re.IGNORECASE)
_MAX_EXCEL_CHARS = 1000


def find_delimiter(head: str) -> str:
    """Return the delimiter: the one in Excel's first line `sep=;`, or the first of `, ; tab |` that fits.

    A delimiter fits if it splits all of the first rows into the same number of cells.
    """
    if (declared := _EXCEL.match(head)) is not None:
        return declared[1]
    complete = head[: head.rfind("\n") + 1] or head
    fallback = ""
    for delimiter in _DELIMITERS:
        widths = _widths(complete, delimiter)
        if widths and widths[0] > 1:
            if len(set(widths)) == 1:
                return delimiter
            fallback = fallback or delimiter
    return fallback or ","


def _widths(text: str, delimiter: str) -> list[int]:
    widths: list[int] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
            if row:
                widths.append(len(row))
            if len(widths) == _SAMPLE_ROWS:
                break
    except csv.Error:
        pass  # a quoted cell that the sample cuts off, or an error that reading will report
    return widths


def read_csv(stream: TextIO, delimiter: str) -> Iterator[Record]:
    """Yield a record per row; a cell may span lines, and an empty cell is an absent field.

    Args:
        stream: The text, opened with line ends preserved.
        delimiter: A single character.
    """
    if csv.field_size_limit() < MAX_RAW_CHARS:
        csv.field_size_limit(MAX_RAW_CHARS)
    lines = _Lines(stream)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    number = 0
    names: list[str] | None = None
    start = 1
    try:
        for row in rows:
            if not any(row) or (names is None and rows.line_num == 1 and lines.is_excel_line):
                pass  # an empty line, a row of only separators, or the line that tells Excel the separator
            elif names is None:
                names = _header(row)
            else:
                number += 1
                yield _record(number, start, names, row, lines)
            lines.size, lines.has_nul = 0, False
            start = rows.line_num + 1
    except csv.Error as error:
        raise BadFileError(f"is not valid CSV: {error} in the row that begins here", start) from None


def _record(number: int, line: int, names: list[str], row: list[str], lines: _Lines) -> Record:
    if len(row) != len(names):
        while len(row) > len(names) and not row[-1]:
            row.pop()
        if len(row) != len(names):
            problem = (
                f"has {len(row)} cells, but the first row names {len(names)} columns: "
                "put texts that hold separators, quotes or line ends into double quotes"
            )
            return Record(number, line, None, problem=problem)
    data = {name: cell for name, cell in zip(names, row, strict=True) if cell}
    return Record(number, line, data, lines.size, lines.has_nul)


def _header(row: list[str]) -> list[str]:
    """Return the column names; a column without a name is named by its position, as in data frames."""
    names = [name.strip() for name in row]
    while names and not names[-1]:
        names.pop()
    if len(names) > MAX_COLUMNS:
        raise BadFileError(
            f"names {len(names):,} columns, more than {MAX_COLUMNS:,}: a row is a case, a column a field", 1
        )
    names = [name or f"Unnamed: {index}" for index, name in enumerate(names)]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadFileError(f"names two columns {shown(name)}: give every column a name of its own", 1)
        seen.add(name)
    return names


class _Lines:
    """The lines of a file, with their size counted per record."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.size = 0
        self.has_nul = False
        self.is_excel_line = False

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(MAX_RAW_CHARS)
        if not line:
            raise StopIteration
        self.is_excel_line = len(line) < _MAX_EXCEL_CHARS and _EXCEL.match(line) is not None
        self.size += len(line)
        if self.size >= MAX_RAW_CHARS:
            limit = MAX_RAW_CHARS // 1024**2
            raise csv.Error(f"a row longer than {limit} MiB, or a quote that is never closed,")
        if "\0" in line:
            self.has_nul = True
        return line
