"""A report: the head of its document, and rows that can be read repeatedly."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from contextlib import asynccontextmanager, contextmanager
from typing import IO, TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem, SetupError, first_problems
from assay.parsing.names import run_id_problem
from assay.parsing.strict_json import DECODER
from assay.reports.document.document import SCHEMA, head_document
from assay.reports.document.prepared_rows import PreparedRows
from assay.reports.document.schema import problems_of_head, problems_of_row
from assay.text.unsafe_text import json_text, shorten

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from assay.model.run import MetricSpec, RowResult, Run
    from assay.specs.model import Spec

_CHUNK_BYTES = 1 << 20
_MOST_PROBLEMS = 20
_ROWS_START = ' "rows": ['
_ROWS_END = " ]"


class QualityScores:
    """Collects the ratings of a run's quality metrics while its rows are read.

    The entry of a repeated case is the mean of its ratings.

    Args:
        metrics: The run's metrics.
    """

    def __init__(self, metrics: Sequence[MetricSpec]) -> None:
        self._found: dict[str, list[float | None]] = {metric.name: [] for metric in metrics if metric.kind == "quality"}
        self._case: int | None = None
        self._open: dict[str, list[float]] = {}

    def take(self, row: RowResult) -> None:
        """Add the next row, in dataset order."""
        if row.case_index != self._case:
            self._close()
            self._case = row.case_index
        for score in row.scores:
            if score.metric in self._found and score.value is not None:
                self._open.setdefault(score.metric, []).append(score.value)

    def _close(self) -> None:
        if self._case is None:
            return
        for name, ratings in self._found.items():
            seen = self._open.get(name)
            ratings.append(math.fsum(seen) / len(seen) if seen else None)
        self._open = {}

    def result(self) -> dict[str, dict[str, Any]]:
        """Return `quality_scores` by metric, after all rows."""
        self._close()
        self._case = None
        return {name: {"quality_scores": ratings} for name, ratings in self._found.items()}


class Report:
    """The document of a run, source of all formats; `docs/report.md` describes it.

    Rows stay on disk, so that a run of any size needs little memory.

    Args:
        head: The document without its rows.
        row_count: The number of rows.
        file: A file with the rows in dataset order, one JSON object per line, open for reading bytes.
        start: The position of the first row in the file.
        end: The position after the line of the last row.
    """

    def __init__(self, head: Mapping[str, Any], row_count: int, file: IO[bytes], start: int, end: int) -> None:
        self.head = head
        self.row_count = row_count
        self.parts: Mapping[str, Sequence[Any]] = {}
        """Parts of the rows by format that were rendered before, in dataset order; empty if none were."""
        self.server: str | None = None
        """The server given by the user that stores the run, for printed commands; None if none was given."""
        self._file = file
        self._start = start
        self._end = end

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return str(self.head["run"]["run_id"])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows in dataset order; can be called repeatedly, and iterated concurrently."""
        for line in self.row_lines():
            yield json.loads(line)

    def row_lines(self) -> Iterator[str]:
        """Yield the JSON of each row, without comma and line end."""
        position = self._start
        while position < self._end:
            self._file.seek(position)
            for line in self._file.readlines(_CHUNK_BYTES):
                if position >= self._end:
                    break
                position += len(line)
                yield line.decode().strip().removesuffix(",")


@asynccontextmanager
async def report_of_run(
    run: Run,
    spec: Spec | None,
    rows: AsyncIterator[RowResult],
    folder: Path,
    also: Callable[[RowResult], None],
    prepared: PreparedRows | None = None,
) -> AsyncIterator[Report]:
    """Read the rows of a run once, pass each to `also`, and yield the run's report.

    Args:
        run: The run, with its summary.
        spec: Its spec; None if only the run is known.
        rows: Its rows, in dataset order or with the place of each case in the dataset.
        folder: An existing folder for a temporary file of the rows.
        also: Called with each row.
        prepared: Parts of rows that were rendered before; None if there are none.

    Raises:
        SetupError: The rows cannot be written to the folder.
    """
    ratings = QualityScores(run.spec.metrics)
    prepared = prepared if prepared is not None else PreparedRows((), {})
    parts: dict[str, list[Any]] = {name: [] for name in prepared.formats}
    row_count = 0
    placed: list[tuple[int, int, int]] = []
    with contextlib.ExitStack() as stack:
        try:
            file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile("w+b", dir=folder))
            async for row in rows:
                also(row)
                ratings.take(row)
                if row.place is not None:
                    placed.append((row.place, row.repeat, file.tell()))
                prepared_parts = prepared.of(row)
                file.write(prepared_parts.line.encode() + b"\n")
                for name, part in prepared_parts.parts.items():
                    parts[name].append(part)
                row_count += 1
            if placed:
                file = _in_places(file, placed, stack.enter_context(tempfile.TemporaryFile("w+b", dir=folder)))
            file.flush()
        except OSError as error:
            raise SetupError(
                f"{folder} cannot hold the rows of the report ({error.strerror or error}): choose another place with "
                "--output-dir"
            ) from error
        assert run.summary is not None, "only runs with a summary are reported"
        head = head_document(run, spec, ratings.result())
        report = Report(json.loads(json_text(head)), row_count, file, 0, file.tell())
        if not placed and prepared.metrics == list(report.head["results"]):
            report.parts = parts
        yield report


def _in_places(file: IO[bytes], placed: list[tuple[int, int, int]], ordered: IO[bytes]) -> IO[bytes]:
    """Copy the rows of a file to another, ordered by the places of their cases and by repeat; return that file."""
    for _, _, start in sorted(placed):
        file.seek(start)
        ordered.write(file.readline())
    return ordered


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
    ended = False
    for line in file:
        if line.rstrip() == _ROWS_END.encode():
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
    return Report(document, count, file, start, end)


def _read_whole(path: Path, file: IO[bytes], copy: IO[bytes]) -> Report:
    """Return the report of a file in any layout; the rows are copied to a file with one row per line."""
    file.seek(0)
    document = _decoded(path, file.read().decode("utf-8-sig", "replace"))
    _check(path, _head_problems(document))
    rows = document.pop("rows", None)
    if not isinstance(rows, list):
        raise InvalidInputError(f"{path}: rows is missing: the file is no whole report of a run")
    _check(path, [problem for index, row in enumerate(rows) for problem in problems_of_row(row, f"rows[{index}]")])
    copy.writelines(json_text(row).encode() + b"\n" for row in rows)
    copy.flush()
    return Report(document, len(rows), copy, 0, copy.tell())


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
