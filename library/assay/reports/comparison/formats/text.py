"""A comparison as terminal output: verdict first, decision last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.reports.comparison.words.outline import OPENING, Part, outline
from assay.reports.comparison.words.tables import columns
from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.comparison.words.outline import Section, Table
    from assay.reports.comparison.words.tables import Row

_CELL_CHARS = 60
_NAME_CHARS = 40
_SENTENCE_CHARS = 600
_COLUMNS_AT_ONCE = {Part.METRICS: 7, Part.DIFFERENCES: 7, Part.CHANGES: 5}
"""The most columns side by side, including the first; further columns follow below."""
_METRICS_AT_ONCE = 4
_MOST_FLIPPED = 5
_MOST_CHANGES = 10
_MOST_PAIRS = 8
_MOST_WARNINGS = 10


def comparison_lines(report: ComparisonReport) -> list[str]:
    """Return a comparison as lines of clean text, as `assay compare --verbose` prints them."""
    sections = outline(report)
    verdict, *warnings, decision = (
        shorten(sentence, _SENTENCE_CHARS)
        for section in sections
        if section.part in OPENING
        for sentence in section.sentences
    )
    lines = [verdict, *warnings[:_MOST_WARNINGS]]
    if len(warnings) > _MOST_WARNINGS:
        lines.append(f"and {count_text(len(warnings) - _MOST_WARNINGS, 'more warning')} in comparison_results.json")
    pairs = [section for section in sections if section.part is Part.PAIR]
    left_out = pairs[_MOST_PAIRS:]
    for section in sections:
        if section.part not in OPENING and section not in left_out:
            lines += _section(section)
        if left_out and section is pairs[_MOST_PAIRS - 1]:
            lines += ["", f"and {len(left_out)} more pairs in comparison_results.json"]
    return [*lines, decision]


def _section(section: Section) -> Iterator[str]:
    if section.part is not Part.METHOD:  # it stands below the metrics
        yield ""
    sentences = [shorten(sentence, _SENTENCE_CHARS) for sentence in section.sentences]
    if section.part is Part.CHANGES:
        sentences = [f"what changed: {' '.join(sentences)}".rstrip()]
    yield from sentences
    for table in section.tables:
        yield from _table(table, section.part)


def _table(table: Table, part: Part) -> Iterator[str]:
    if part is Part.CHANGES:
        yield from _indented(_blocks(table.rows[: _MOST_CHANGES + 1], 1, _COLUMNS_AT_ONCE[part]))
        if (more := len(table.rows) - 1 - _MOST_CHANGES) > 0:
            yield f"  and {count_text(more, 'more setting')} in comparison_results.json"
    elif table.total is not None:
        shown = table.rows[1 : _MOST_FLIPPED + 1]
        yield f"{table.counted(len(shown))}:"
        yield from _indented(columns([table.rows[0], *shown], _NAME_CHARS))
    elif part is Part.METRICS and table.head_names:  # a line for each run
        yield from _blocks(table.rows, 2, _METRICS_AT_ONCE + 2)
    else:
        yield from _blocks(table.rows, 1, _COLUMNS_AT_ONCE.get(part, len(table.rows[0])))


def _indented(lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _blocks(rows: Sequence[Row], kept: int, size: int) -> Iterator[str]:
    """Yield a table in blocks of at most `size` columns; every block begins with the first `kept` columns."""
    step = size - kept
    for start in range(kept, len(rows[0]), step):
        yield from columns([row[:kept] + row[start : start + step] for row in rows], _CELL_CHARS)
