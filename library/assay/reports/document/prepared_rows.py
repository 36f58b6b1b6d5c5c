"""Parts of reports that are prepared row by row during the run and assembled at its end."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.reports.document.document import row_document
from assay.text.unsafe_text import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.model.run import RowResult

    PartMaker = Callable[[Mapping[str, Any], Sequence[str]], Any]

_PER_ROUND = 4
"""Rows prepared per round of the event loop, which the user's agent may share: they take 0.2 ms."""
_MOST_CHARS = 20_000
"""Longer rows are prepared at the end, as they would delay the agent."""


@dataclass(frozen=True, slots=True)
class RowParts:
    """Prepared parts of a row.

    Args:
        line: The row as JSON.
        parts: What formats keep of it, by their names.
    """

    line: str
    parts: Mapping[str, Any]


class PreparedRows:
    """Prepares the parts of rows in order of arrival, a few per round of the event loop.

    Args:
        metrics: The names of the run's metrics, in report order.
        makers: Of formats that keep a part of each row: makes it of the row's document and the metrics' names.
    """

    def __init__(self, metrics: Sequence[str], makers: Mapping[str, PartMaker]) -> None:
        self.metrics = list(metrics)
        self._makers = makers
        self._waiting: deque[RowResult] = deque()
        self._made: dict[tuple[int, int], tuple[RowResult, RowParts]] = {}
        self._is_scheduled = False

    @property
    def formats(self) -> Sequence[str]:
        """The formats that keep a part of each row."""
        return list(self._makers)

    def take(self, row: RowResult, char_count: int) -> None:
        """Add a row, to be prepared soon.

        Args:
            row: Of the run; it may replace an earlier one of the same case and repeat.
            char_count: About how long its texts are.
        """
        if char_count > _MOST_CHARS:
            return
        self._waiting.append(row)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._make_some)

    def of(self, row: RowResult) -> RowParts:
        """Return and drop the parts of a row, preparing them now if needed."""
        known, parts = self._made.pop((row.case_index, row.repeat), (None, None))
        return parts if parts is not None and known is row else self._parts(row)

    def clear(self) -> None:
        """Drop all prepared parts and pending rows."""
        self._waiting.clear()
        self._made.clear()

    def _make_some(self) -> None:
        for _ in range(min(_PER_ROUND, len(self._waiting))):
            row = self._waiting.popleft()
            self._made[row.case_index, row.repeat] = row, self._parts(row)
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._make_some)

    def _parts(self, row: RowResult) -> RowParts:
        line = json_text(row_document(row))
        if not self._makers:
            return RowParts(line, {})
        document = json.loads(line)
        return RowParts(line, {name: make(document, self.metrics) for name, make in self._makers.items()})
