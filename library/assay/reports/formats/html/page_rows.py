"""Rows of the page, collected in any order: their figures, list entries and texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from assay.reports.document.row_spool import RowSpool
from assay.reports.formats.html.row_data import detail_of, entry_of
from assay.reports.formats.html.row_figures import RowFigures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from assay.reports.document.report import Report

MAX_DETAIL_BYTES = 512 * 1024 * 1024
"""The size that all texts together are cut to, as far as possible: browsers do not load pages of any size."""
_MIN_DETAIL_BYTES = 4_096


class PageRows:
    """Collects the rows of the page; list entries and texts are stored on disk.

    Args:
        metrics: The names of the run's metrics.
        folder: An existing folder for the temporary file.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, metrics: Sequence[str], folder: Path) -> None:
        self.figures = RowFigures()
        self._metrics = metrics
        self._texts = RowSpool(folder)

    def texts_of(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """Return the list entry of a row and its texts, both as JSON."""
        entry = json.dumps(entry_of(row, self._metrics), ensure_ascii=False, separators=(",", ":"))
        return entry, detail_of(row, MAX_DETAIL_BYTES)

    def take(self, place: int, case: int, row: Mapping[str, Any], texts: tuple[str, str], size: int) -> None:
        """Add a row; see `RowCollector`."""
        self._texts.put(place, *texts)
        self.figures.take(case, row, size)

    def read(self, report: Report) -> None:
        """Add all rows of a report."""
        case, case_id = -1, None
        for place, (line, row) in enumerate(zip(report.row_lines(), report.rows(), strict=True)):
            if row["case_id"] != case_id:
                case, case_id = case + 1, row["case_id"]
            self.take(place, case, row, self.texts_of(row), len(line))

    def close(self) -> None:
        """Remove the file."""
        self._texts.close()

    def entries(self) -> Iterator[str]:
        """Yield the list entry of each row as JSON, in dataset order."""
        return (_decoded(text) for text in self._texts.first_texts())

    def details(self, report: Report, max_bytes: int = MAX_DETAIL_BYTES) -> Iterator[str]:
        """Yield the texts of each row as JSON, in dataset order.

        Args:
            report: The report, whose rows these are.
            max_bytes: The size of all texts; if they are larger, long texts are cut further, down to 4 kB per row.
        """
        if self._texts.second_size <= max_bytes:
            yield from (_decoded(text) for text in self._texts.second_texts())
            return
        left = max_bytes
        for place, (text, line) in enumerate(zip(self._texts.second_texts(), report.encoded_lines(), strict=True)):
            most = max(left // (report.row_count - place), _MIN_DETAIL_BYTES)
            fitting = text if len(text) <= most else _encoded(detail_of(json.loads(line), most))
            left -= len(fitting)
            yield _decoded(fitting)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")
