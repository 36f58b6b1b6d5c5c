"""A comparison in a notebook: the sections of its report, with rarely read sections collapsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.reports.comparison.words.headline import Naming
from assay.reports.comparison.words.outline import OPENING, Part, outline
from assay.reports.formats.notebook import html_table, html_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.comparison.words.outline import Section, Table

_SENTENCE_CHARS = 600
_MOST_CASES = 10
_MOST_PAIRS = 8
_FOLDED = (Part.RUNS, Part.METHOD, Part.CHANGES, Part.FACTS)


def comparison_html(report: ComparisonReport) -> str:
    """Return a comparison as HTML without scripts, which many notebooks remove."""
    sections = outline(report, Naming.NAME)
    left_out = [section for section in sections if section.part is Part.PAIR][_MOST_PAIRS:]
    parts = [part for section in sections if section not in left_out for part in _section(section)]
    if left_out:
        parts.append(_paragraph(f"and {len(left_out)} more pairs"))
    return f"<div>{''.join(parts)}</div>"


def _section(section: Section) -> Iterator[str]:
    if section.part in _FOLDED:
        yield f"<details><summary>{html_text(section.title)}</summary>"
    elif section.part not in (*OPENING, Part.METRICS):
        yield f'<p style="margin:0 0 4px"><strong>{html_text(section.title)}</strong></p>'
    for sentence in section.sentences:
        yield _paragraph(sentence, strong=section.part is Part.VERDICT)
    for table in section.tables:
        yield from _table(table)
    if section.part in _FOLDED:
        yield "</details>"


def _table(table: Table) -> Iterator[str]:
    heading, *rows = table.rows
    if table.total is not None:
        rows = rows[:_MOST_CASES]
        yield _paragraph(f"{table.counted(len(rows))}:")
    yield html_table(heading, rows)


def _paragraph(sentence: str, *, strong: bool = False) -> str:
    text = html_text(sentence, _SENTENCE_CHARS)
    return f'<p style="margin:0 0 4px">{f"<strong>{text}</strong>" if strong else text}</p>'
