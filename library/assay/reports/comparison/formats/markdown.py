"""comparison_report.md: a comparison for pull requests and CI job summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.reports.comparison.words.outline import PRIMARY, Part, outline
from assay.reports.formats.markdown_document import MAX_CHARS
from assay.text.markdown_text import markdown_code, markdown_prose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.comparison.words.outline import Section, Table
    from assay.reports.comparison.words.tables import Row

_NAME_CHARS = 80
_TEXT_CHARS = 160
_SENTENCE_CHARS = 600
_MOST_FLIPPED = 20
_MOST_CHANGES = 20
_MOST_METRICS = 12
_MOST_PAIRS = 8
_MOST_SENTENCES = 20
_SECTION_FLIPPED = 5
_MOST_WARNINGS = 10
_WARNINGS = (Part.BANNERS, Part.CAUTIONS)
_UNTITLED = (Part.DECISION, Part.RUNS, Part.METRICS, Part.METHOD)
_LISTED = (*_WARNINGS, Part.METHOD, Part.PAIR, Part.FACTS)
"""Sections whose sentences become list items; other sentences become paragraphs."""
_WITHIN = (Part.VERDICT, *_WARNINGS, Part.DECISION, Part.METRICS, Part.METHOD, Part.DIFFERENCES, Part.PAIR)
"""The sections that are included in the report of a run."""


def comparison_markdown(report: ComparisonReport) -> str:
    """Return a comparison as Markdown of at most 60,000 characters, which fit into a GitHub comment."""
    sections = outline(report)
    for most in range(_MOST_FLIPPED, -1, -1):
        text = _document(sections, most)
        if len(text) <= MAX_CHARS:
            return text
    opening = [section for section in sections if section.part in (Part.VERDICT, *_WARNINGS, Part.DECISION)]
    return f"{_document(opening, 0)}\nThe tables have no room here: see comparison_results.json.\n"


def comparison_section(report: ComparisonReport) -> str:
    """Return a comparison as a part of another Markdown text: the verdict, the figures and the worst flipped cases."""
    return f"#{_document([section for section in outline(report) if section.part in _WITHIN], _SECTION_FLIPPED)}"


def _document(sections: Sequence[Section], most_flipped: int) -> str:
    pairs = [section for section in sections if section.part is Part.PAIR]
    left_out = pairs[_MOST_PAIRS:]
    lines: list[str] = []
    for section in sections:
        if section not in left_out:
            lines += _section(section, most_flipped)
        elif section is pairs[-1]:
            lines += [f"and {len(left_out)} more pairs in comparison_results.json", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(section: Section, most_flipped: int) -> Iterator[str]:
    """Yield the lines of a section, with a blank line after each block."""
    most = _MOST_WARNINGS if section.part in _WARNINGS else _MOST_SENTENCES
    sentences = [markdown_prose(sentence, _SENTENCE_CHARS) for sentence in section.sentences]
    if section.part is Part.VERDICT:
        yield from (f"## {sentences[0]}", "")
        return
    if section.part is Part.FACTS:
        yield from (f"<details><summary>{section.title}</summary>", "")
    elif section.part not in (*_UNTITLED, *_WARNINGS):
        yield from (f"### {section.title}", "")
    if section.part in _LISTED and sentences:
        yield from (f"- {sentence}" for sentence in sentences[:most])
        yield from ([f"- and {len(sentences) - most} more", ""] if len(sentences) > most else [""])
    else:
        yield from (line for sentence in sentences for line in (sentence, ""))
    for table in section.tables:
        yield from _table(table, section.part, most_flipped)
    if section.part is Part.FACTS:
        yield from ("</details>", "")


def _table(table: Table, part: Part, most_flipped: int) -> Iterator[str]:
    rows, more = table.rows, 0
    if table.total is not None:
        rows = rows[: most_flipped + 1]
        yield from (f"{markdown_prose(table.counted(len(rows) - 1))}:", "")
    elif part is Part.CHANGES:
        rows, more = rows[: _MOST_CHANGES + 1], len(rows) - 1 - _MOST_CHANGES
    elif part is Part.METRICS and not table.head_names:
        rows, more = rows[: _MOST_METRICS + 1], len(rows) - 1 - _MOST_METRICS
    elif part is Part.METRICS:  # a line for each run
        rows, more = [row[: _MOST_METRICS + 2] for row in rows], len(rows[0]) - 2 - _MOST_METRICS
    if len(rows) > 1:
        yield from _cells(table, rows, max(_TEXT_CHARS // max(1, len(rows[0]) // 3), 20))
    if more > 0:
        yield from (f"and {more:,} more", "")


def _cells(table: Table, rows: Sequence[Row], width: int) -> Iterator[str]:
    """Yield a table, with users' texts as code, and a blank line."""
    (heading, *others), width = rows, min(width, _NAME_CHARS)
    lines = [[_code(cell, width) if at in table.head_names else cell for at, cell in enumerate(heading)]]
    lines.append(["---"] * len(heading))
    lines += [[_code(cell, width) if at in table.names else cell for at, cell in enumerate(row)] for row in others]
    yield from (f"| {' | '.join(line)} |" for line in lines)
    yield ""


def _code(cell: str, width: int) -> str:
    """Return a user's text as code, followed by the mark of the primary metric if it has one."""
    name = cell.removesuffix(PRIMARY)
    return f"{markdown_code(name, width)} \\*" if name != cell else markdown_code(cell, width)
