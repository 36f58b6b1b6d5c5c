"""Table of rows: failures first, with scores and reasons."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.reports.charts.frame import CONTENT, draw_frame, draw_message
from assay.reports.charts.outcomes import FILLS, outcome_counts
from assay.reports.charts.palette import GRID, INK, MUTED, VERMILION
from assay.reports.charts.scales import Numbers
from assay.reports.charts.sheet import Area

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.reports.charts.row_figures import RowFigures, TableRow
    from assay.reports.charts.sheet import Align, Sheet

_HEIGHT = 25.0
_MOST = 20
_MOST_METRICS = 3
_GAP = 16.0
_SWATCH = 22.0
_FAILED = "✗ "
_SUBTITLE = "Failed rows first, then agent errors, rows without a verdict, and passed ones"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table.

    Args:
        heading: One line, or two.
        cells: Text per row.
        most: Maximum width; 0 for a column that shares the remaining width.
        numbers: Whether the cells are numbers, which are right-aligned.
    """

    heading: tuple[str, ...]
    cells: Sequence[str]
    most: float = 0.0
    numbers: bool = False

    def width(self, sheet: Sheet) -> float:
        """Return the width that the column needs, up to its maximum."""
        headings = [sheet.width_of(line, bold=True) for line in self.heading]
        return min(max(*headings, *(sheet.width_of(cell) for cell in self.cells)) + 1, self.most)


def draw(sheet: Sheet, head: Mapping[str, Any], figures: RowFigures, row_count: int) -> None:
    """Draw the chart."""
    rows = figures.table[:_MOST]
    draw_frame(sheet, head, "Detailed results", _SUBTITLE if rows else "", _note(head, len(rows), row_count))
    if not rows:
        draw_message(sheet, CONTENT, "The run has no row.")
        return
    for index, row in enumerate(rows):
        y = _row_y(index)
        sheet.line([CONTENT.left, CONTENT.right], [y - _HEIGHT / 2] * 2, GRID, width=0.8)
        sheet.rectangle(Area(CONTENT.left, y - 7, CONTENT.left + 14, y + 7), FILLS[row.outcome], outline=MUTED)
    columns = _columns(head["results"], rows, Numbers("s", figures.latency.upper_s))
    texts = sum(column.most == 0 for column in columns)
    fixed = sum(column.width(sheet) + _GAP for column in columns) - _GAP
    left = CONTENT.left + _SWATCH
    for column in columns:
        width = column.width(sheet) or (CONTENT.right - CONTENT.left - _SWATCH - fixed) / texts
        _draw_column(sheet, column, left, left + width)
        left += width + _GAP


def _note(head: Mapping[str, Any], shown: int, row_count: int) -> str:
    if row_count <= shown:
        return ""
    counts = ", ".join(
        f"{outcome.count:,} {outcome.outcome}" for outcome in outcome_counts(head["summary"]) if outcome.count
    )
    return f"{shown:,} of {row_count:,} rows shown ({counts}); results.json has all of them"


def _row_y(index: int) -> float:
    return CONTENT.top + 56 + index * _HEIGHT


def _columns(results: Mapping[str, Any], rows: Sequence[TableRow], times: Numbers) -> Sequence[_Column]:
    """Return the columns from left to right, without empty text columns."""
    scored = [name for name, result in results.items() if result.get("kind") != "latency"]
    deciding_first = sorted(scored, key=lambda name: results[name]["passed_count"] + results[name]["failed_count"] == 0)
    metrics = [name for name in scored if name in deciding_first[:_MOST_METRICS]]
    columns = [
        _Column(("outcome",), [row.outcome for row in rows], 100),
        _Column(("case",), [row.name for row in rows], 130),
        _Column(("category",), [row.category for row in rows], 120),
        _Column(("question",), [row.question for row in rows]),
        *(_metric_column(name, results[name], rows) for name in metrics),
        _Column(("latency",), [times.text(row.latency_s) for row in rows], 90, numbers=True),
        _Column(("why",), [row.message for row in rows]),
    ]
    return [column for column in columns if any(column.cells)]


def _metric_column(name: str, result: Mapping[str, Any], rows: Sequence[TableRow]) -> _Column:
    numbers = Numbers(result.get("unit", ""), float(result["value"] or 0.0))
    scores = [row.scores.get(name, (None, None)) for row in rows]
    cells = [(_FAILED if passed is False else "") + numbers.text(value) for value, passed in scores]
    return _Column(_two_lines(name), cells, 110, numbers=True)


def _two_lines(name: str) -> tuple[str, ...]:
    """Split a long name into two lines at the word boundary nearest to its middle."""
    breaks = [index + 1 for index, char in enumerate(name) if char in "_ -."]
    middle = min(breaks, key=lambda index: abs(index - len(name) / 2), default=0)
    return (name[:middle], name[middle:]) if middle and len(name) > 10 else (name,)


def _draw_column(sheet: Sheet, column: _Column, left: float, right: float) -> None:
    x = right if column.numbers else left
    align: Align = "right" if column.numbers else "left"
    for index, line in enumerate(reversed(column.heading)):
        sheet.text((x, CONTENT.top + 27 - 23 * index), line, bold=True, align=align, width=right - left)
    for index, cell in enumerate(column.cells):
        failed = column.numbers and cell.startswith(_FAILED)
        at_right = column.numbers or _is_rtl(cell)
        sheet.text(
            (right if at_right else left, _row_y(index)),
            cell,
            colour=VERMILION if failed else INK,
            align="right" if at_right else "left",
            width=right - left,
        )


def _is_rtl(text: str) -> bool:
    """Return whether a text runs from right to left, judged by its first letter."""
    first = next((kind for char in text if (kind := unicodedata.bidirectional(char)) in ("L", "R", "AL")), "L")
    return first != "L"
