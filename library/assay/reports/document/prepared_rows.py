"""Rows of a run, prepared for its reports as they arrive and stored on disk until its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from array import array
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from assay.errors import SetupError
from assay.reports.document.document import head_document, row_document
from assay.reports.document.report import Report
from assay.reports.document.row_spool import RowSpool
from assay.text.unsafe_text import json_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from assay.model.run import MetricSpec, RowResult, Run
    from assay.reports.document.report import RowCollector
    from assay.specs.model import Spec

_PER_ROUND = 4
"""Rows prepared per round of the event loop, which the user's agent may share: they take 0.2 ms."""
_MOST_CHARS = 20_000
"""Longer rows are prepared in a thread, as their word differences would delay the agent."""
_MOST_WAITING_CHARS = 4_000_000
"""Above this size, rows are prepared at once instead of soon, to bound the memory."""

_ABSENT = math.inf  # no row; ratings are finite
_UNRATED = math.nan


@dataclass(frozen=True, slots=True)
class _Texts:
    """A row as its document, as a line of JSON, and as the texts that formats store."""

    document: Mapping[str, Any]
    line: str
    of_format: Mapping[str, tuple[str, str]]


class QualityScores:
    """Collects the ratings of a run's quality metrics, in any order of its rows.

    The entry of a repeated case is the mean of its ratings.

    Args:
        metrics: The run's metrics.
        repeats: Number of repeats per case.
    """

    def __init__(self, metrics: Sequence[MetricSpec], repeats: int) -> None:
        self._ratings = {metric.name: array("d") for metric in metrics if metric.kind == "quality"}
        self._repeats = repeats

    def take(self, place: int, row: RowResult) -> None:
        """Add the row at a place."""
        for name, ratings in self._ratings.items():
            ratings.extend([_ABSENT] * (place + 1 - len(ratings)))
            ratings[place] = _UNRATED
            for score in row.scores:
                if score.metric == name and score.value is not None:
                    ratings[place] = score.value

    def result(self) -> dict[str, dict[str, Any]]:
        """Return `quality_scores` by metric, after all rows."""
        return {name: {"quality_scores": list(self._means(ratings))} for name, ratings in self._ratings.items()}

    def _means(self, ratings: array[float]) -> Iterator[float | None]:
        for start in range(0, len(ratings), self._repeats):
            of_case = [rating for rating in ratings[start : start + self._repeats] if rating != _ABSENT]
            rated = [rating for rating in of_case if not math.isnan(rating)]
            if of_case:
                yield math.fsum(rated) / len(rated) if rated else None


class PreparedRows:
    """Prepares rows for reports in order of arrival, and stores what the reports need of them on disk.

    Memory grows by a few bytes per row. No file is left behind, even by a killed process.

    Args:
        run: The run, in any state.
        folder: An existing folder for the temporary files.
        collectors: By format, what it collects.
        also: Called with each row, once.

    Raises:
        SetupError: No file can be created in the folder.
    """

    def __init__(
        self,
        run: Run,
        folder: Path,
        collectors: Mapping[str, RowCollector] | None = None,
        also: Callable[[RowResult], None] = lambda row: None,
    ) -> None:
        self._repeats = run.spec.repeats
        self._preset = run.spec.preset
        self._folder = folder
        self._collectors = dict(collectors or {})
        self._also = also
        self._ratings = QualityScores(run.spec.metrics, self._repeats)
        with spooling(folder):
            self._lines = RowSpool(folder)
        self._waiting: deque[tuple[RowResult, int]] = deque()
        self._long: deque[tuple[RowResult, int]] = deque()
        self._waiting_chars = 0
        self._is_scheduled = False
        self._in_thread: asyncio.Future[_Texts] | None = None
        self._is_usable = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove all files and drop the waiting rows."""
        self._is_usable = False
        self._waiting.clear()
        self._long.clear()
        self._lines.close()
        for collector in self._collectors.values():
            collector.close()

    def take_soon(self, row: RowResult) -> None:
        """Add a row of a watch, to be prepared by the event loop.

        The same row may come again. After a different row for the same case and repeat, `is_complete` is false.
        """
        if not self._is_usable:
            return
        chars = _chars(row)
        self._waiting_chars += chars
        if chars > _MOST_CHARS:
            self._long.append((row, chars))
            self._start_thread()
        else:
            self._waiting.append((row, chars))
            if not self._is_scheduled:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._prepare_some)
        while self._waiting_chars > _MOST_WAITING_CHARS and (self._waiting or self._long):
            self._prepare_next(self._waiting or self._long)

    async def is_complete(self, run: Run) -> bool:
        """Prepare the waiting rows; return whether all rows of an ended run are prepared."""
        while self._in_thread is not None:
            await asyncio.wait([self._in_thread])
        while self._is_usable and self._waiting:
            self._prepare_next(self._waiting)
        return self._is_usable and run.finished and self._lines.count == run.counts.finished_count

    def take(self, row: RowResult) -> None:
        """Add a row now.

        Raises:
            SetupError: The files cannot be written.
        """
        with spooling(self._folder):
            self._store(row, self._texts_of(row))

    def report(self, run: Run, spec: Spec | None) -> Report:
        """Return the report of the run, whose rows are all taken.

        Args:
            run: The run with its summary.
            spec: Its spec; None if only the run is known.

        Raises:
            SetupError: The files cannot be written.
        """
        assert run.summary is not None, "only runs with a summary are reported"
        with spooling(self._folder):
            self._lines.flush()
        head = json.loads(json_text(head_document(run, spec, self._ratings.result())))
        return Report(head, self._lines.count, self._lines.first_texts, self._collectors)

    def _prepare_some(self) -> None:
        for _ in range(min(_PER_ROUND, len(self._waiting))):
            self._prepare_next(self._waiting)
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._prepare_some)

    def _prepare_next(self, rows: deque[tuple[RowResult, int]]) -> None:
        row, chars = rows.popleft()
        self._waiting_chars -= chars
        self._store_if_possible(row, self._texts_of(row))

    def _start_thread(self) -> None:
        """Prepare the next long row in a thread, unless one is being prepared."""
        if self._in_thread is not None or not self._long:
            return
        row, chars = self._long.popleft()

        def store(prepared: asyncio.Future[_Texts]) -> None:
            self._in_thread = None
            self._waiting_chars -= chars
            self._store_if_possible(row, prepared.result())
            self._start_thread()

        self._in_thread = asyncio.get_running_loop().run_in_executor(None, self._texts_of, row)
        self._in_thread.add_done_callback(store)

    def _texts_of(self, row: RowResult) -> _Texts:
        document = row_document(row, self._preset)
        texts: dict[str, tuple[str, str]] = {}
        for name, collector in list(self._collectors.items()):
            # The format's writer starts again without what was collected, and reports the failure.
            with contextlib.suppress(Exception):
                texts[name] = collector.texts_of(document)
        return _Texts(document, json_text(document), texts)

    def _store_if_possible(self, row: RowResult, texts: _Texts) -> None:
        if not self._is_usable:
            return
        try:
            self._store(row, texts)
        except OSError:  # without space, the rows are read again, and the error is shown after the verdict
            self.close()

    def _store(self, row: RowResult, texts: _Texts) -> None:
        case = row.place if row.place is not None else row.case_index
        place = case * self._repeats + row.repeat - 1
        if self._lines.has(place):
            if self._lines.first_text(place) != texts.line.encode():
                self.close()
            return
        for name, collector in list(self._collectors.items()):
            if name in texts.of_format:
                collector.take(place, case, texts.document, texts.of_format[name], len(texts.line))
            else:
                self._collectors.pop(name).close()
        self._lines.put(place, texts.line)
        self._ratings.take(place, row)
        self._also(row)


def _chars(row: RowResult) -> int:
    """Return about how many characters a row has."""
    answer = len(row.response.text) + len(str(row.response.metadata)) if row.response is not None else 0
    expected = len(str(row.expected)) if row.expected else 0
    return 1000 + answer + len(row.input) + sum(map(len, row.references)) + expected


@contextlib.contextmanager
def spooling(folder: Path) -> Iterator[None]:
    """Turn a failure to write temporary files of rows into an error with a remedy.

    Raises:
        SetupError: A file could not be written.
    """
    try:
        yield
    except OSError as error:
        raise SetupError(
            f"{folder} cannot hold the rows of the report ({error.strerror or error}): choose another place with "
            "--output-dir"
        ) from error


@asynccontextmanager
async def report_of_run(
    run: Run, spec: Spec | None, rows: AsyncIterator[RowResult], folder: Path
) -> AsyncIterator[Report]:
    """Read the rows of a run once, and yield the run's report.

    Args:
        run: The run, with its summary.
        spec: Its spec; None if only the run is known.
        rows: Its rows.
        folder: An existing folder for a temporary file of the rows.

    Raises:
        SetupError: The rows cannot be written to the folder.
    """
    with PreparedRows(run, folder) as prepared:
        async for row in rows:
            prepared.take(row)
        yield prepared.report(run, spec)
