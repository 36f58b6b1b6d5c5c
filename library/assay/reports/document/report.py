"""A report: the head of its document, and rows that can be read repeatedly."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import tempfile
from contextlib import contextmanager
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Protocol

from assay.errors import InvalidInputError, Problem, first_problems
from assay.parsing.names import run_id_problem
from assay.parsing.strict_json import DECODER
from assay.reports.document.document import SCHEMA
from assay.reports.document.schema import problems_of_head, problems_of_row
from assay.text.unsafe_text import json_text, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_CHUNK_BYTES = 1 << 20
_MOST_PROBLEMS = 20
_ROWS_START = ' "rows": ['
_ROWS_END = " ]"
_DIGEST = re.compile(rb'(\n \],\n) "digest": "sha256:([0-9a-f]{64})"\n\}\s*\Z')
_TAIL_BYTES = 200
_CHECKED_ROWS = 100


class RowCollector(Protocol):
    """What a report format collects from rows that arrive in any order."""

    def texts_of(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """Return the texts that the format stores of a row; may be called in any thread."""

    def take(self, place: int, case: int, row: Mapping[str, Any], texts: tuple[str, str], size: int) -> None:
        """Add a row.

        Args:
            place: Position of the row in the report.
            case: Number of its case.
            row: Document of the row.
            texts: What `texts_of` returns for it.
            size: Characters of the document as JSON.

        Raises:
            OSError: The disk is full.
        """

    def close(self) -> None:
        """Release all resources."""


class Report:
    """The document of a run, source of all formats; `docs/report.md` describes it.

    Rows stay on disk, so that a run of any size needs little memory.

    Args:
        head: The document without its rows.
        row_count: The number of rows.
        lines: Returns the JSON of each row in dataset order; may be called repeatedly, and the iterators may run
            concurrently.
        collected: What formats collected of the rows before, by their names.
        unchecked: The file of the rows, if they are checked against the schema only when they are first read.
    """

    def __init__(
        self,
        head: Mapping[str, Any],
        row_count: int,
        lines: Callable[[], Iterator[bytes]],
        collected: Mapping[str, RowCollector] = MappingProxyType({}),
        unchecked: Path | None = None,
    ) -> None:
        self.head = head
        self.row_count = row_count
        self.collected = collected
        self.server: str | None = None
        """The server given by the user that stores the run, for printed commands; None if none was given."""
        self.encoded_lines = lines
        """Returns an iterator over the JSON of the rows, in UTF-8."""
        self._unchecked = unchecked

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return str(self.head["run"]["run_id"])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows in dataset order; can be called repeatedly, and iterated concurrently.

        Raises:
            InvalidInputError: A row of a file does not have the form of rows.
        """
        path = self._unchecked
        if path is None:
            for line in self.row_lines():
                yield json.loads(line)
            return
        for index, line in enumerate(self.row_lines()):
            row = _decoded(path, line, f"row {index}")
            _check(path, problems_of_row(row, f"rows[{index}]"))
            yield row
        self._unchecked = None

    def row_lines(self) -> Iterator[str]:
        """Yield the JSON of each row."""
        for line in self.encoded_lines():
            yield line.decode()


def lines_of_file(file: IO[bytes], start: int, end: int) -> Callable[[], Iterator[bytes]]:
    """Return a function that yields the lines of a part of a file, without commas and line ends.

    Args:
        file: The file, open for reading.
        start: Position of the first line.
        end: Position after the last line.
    """

    def lines() -> Iterator[bytes]:
        position = start
        while position < end:
            file.seek(position)
            for line in file.readlines(_CHUNK_BYTES):
                if position >= end:
                    break
                position += len(line)
                yield line.strip().removesuffix(b",")

    return lines


@contextmanager
def report_of_file(path: Path) -> Iterator[Report]:
    """Yield the report in a results.json.

    Raises:
        InvalidInputError: The file cannot be read, is not such a document, is incomplete, or has another version.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}") from None
    with file, tempfile.TemporaryFile("w+b") as copy:
        yield _read_by_line(path, file) or _read_whole(path, file, copy)


def _read_by_line(path: Path, file: IO[bytes]) -> Report | None:
    """Return the report of a file in the layout of this version; None for another layout."""
    head: list[bytes] = []
    for line in file:
        head.append(line)
        if line.rstrip(b"\r\n") == _ROWS_START.encode():
            break
        if len(head) == 1 and line.strip() != b"{":
            return None
    else:
        return None
    text = b"".join(head).decode("utf-8", "replace").rstrip()
    document = _decoded(path, text.removesuffix(_ROWS_START.strip()).rstrip().rstrip(",") + "}")
    _check(path, [shorten(problem, None) for problem in _head_problems(document)])
    start, end, count, problems = file.tell(), file.tell(), 0, list[str]()
    if (verified_end := _verified_end(path, file)) is not None:
        return _unchanged_report(path, file, document, start, verified_end)
    file.seek(start)
    ended = False
    for line in file:
        if line.rstrip().rstrip(b",") == _ROWS_END.encode():
            ended = True
            break
        if not line.endswith(b"\n"):
            break
        row = _decoded(path, line.decode("utf-8", "replace").strip().removesuffix(","), f"row {count}")
        problems += problems_of_row(row, f"rows[{count}]")
        count += 1
        end = file.tell()
    if not ended:
        raise InvalidInputError(
            f"{path} is cut off after {count:,} rows: write it again with `assay report {document['run']['run_id']} "
            "--format json`"
        )
    _check(path, problems)
    _decoded(path, "{" + file.read(_TAIL_BYTES).decode("utf-8", "replace"), "the end")
    return Report(document, count, lines_of_file(file, start, end))


def _verified_end(path: Path, file: IO[bytes]) -> int | None:
    """Return where the rows of a file end whose digest shows that it is as Assay wrote it; None without a digest.

    Raises:
        InvalidInputError: The file differs from what Assay wrote.
    """
    tail_start = max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0)
    file.seek(tail_start)
    match = _DIGEST.search(file.read())
    if match is None:
        return None
    left = tail_start + match.end(1)
    digest = hashlib.sha256()
    file.seek(0)
    while left and (block := file.read(min(left, _CHUNK_BYTES))):
        digest.update(block)
        left -= len(block)
    if digest.hexdigest().encode() != match[2]:
        raise InvalidInputError(
            f"{path} is not as Assay wrote it: its digest does not match. Write it again with `assay report RUN "
            '--format json`, or remove its field "digest" if the change is intended'
        )
    return tail_start + match.start(1) + 1


def _unchanged_report(path: Path, file: IO[bytes], document: Any, start: int, end: int) -> Report:
    """Return the report of a file as Assay wrote it.

    The digest excludes damage. The first rows are checked, because another version of Assay may have written the file;
    other rows are checked when they are read, so that copying them costs no check.
    """
    lines = lines_of_file(file, start, end)
    report = Report(document, sum(1 for _ in lines()), lines, unchecked=path)
    for _ in itertools.islice(report.rows(), _CHECKED_ROWS):
        pass
    return report


def _read_whole(path: Path, file: IO[bytes], copy: IO[bytes]) -> Report:
    """Return the report of a file in any layout; the rows are copied to a file with one row per line."""
    file.seek(0)
    document = _decoded(path, file.read().decode("utf-8-sig", "replace"))
    _check(path, _head_problems(document))
    document.pop("digest", None)  # of another layout
    rows = document.pop("rows", None)
    if not isinstance(rows, list):
        raise InvalidInputError(f"{path}: rows is missing: the file is no whole report of a run")
    _check(path, [problem for index, row in enumerate(rows) for problem in problems_of_row(row, f"rows[{index}]")])
    copy.writelines(json_text(row).encode() + b"\n" for row in rows)
    copy.flush()
    return Report(document, len(rows), lines_of_file(copy, 0, copy.tell()))


def _decoded(path: Path, text: str, where: str = "") -> Any:
    try:
        return DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        place = f"{path}, {where}" if where else str(path)
        raise InvalidInputError(
            f"{place} is not JSON ({shorten(str(error), 120)}): it is cut off, or was not written by Assay"
        ) from None


def _head_problems(document: Any) -> Sequence[str]:
    """Return the problems of a document's head; for another version, only that."""
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        return ["this is no report of a run: `assay run` writes one as results.json"]
    if document["schema"] != SCHEMA:
        other_schema = shorten(document["schema"], 60)
        remedy = "write it again from the stored run with `assay report RUN --format json`"
        return [f"this is a report of the form {other_schema!r}, and this version of Assay reads {SCHEMA!r}: {remedy}"]
    if problems := problems_of_head(document):
        return problems
    problem = run_id_problem(document["run"]["run_id"])
    return [f"run.run_id: {problem}"] if problem else []


def _check(path: Path, problems: Sequence[str]) -> None:
    if problems:
        listed = [Problem(problem, file=str(path)) for problem in problems]
        raise InvalidInputError(first_problems(listed, _MOST_PROBLEMS))
