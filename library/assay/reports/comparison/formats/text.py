"""A comparison as lines for a terminal: the verdict first, then figures, then what stands behind them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from assay.reports.comparison.words.headline import pair_sentence, verdict_sentence
from assay.reports.comparison.words.sentences import (
    adjustment_text,
    banners,
    cautions,
    classical_texts,
    counts_text,
    decision_sentence,
    detectable_sentence,
    effort_texts,
    floor_sentence,
    joined_text,
    judge_sentence,
    matrix_heading,
    meaning_sentence,
    method_text,
    omnibus_sentence,
    ranking_texts,
)
from assay.reports.comparison.words.tables import (
    changed_rows,
    code_sentence,
    columns,
    differing_count,
    flipped_cases,
    flipped_row,
    matrix,
    metrics_of_pair,
    metrics_of_runs,
    table_metric,
    two_by_two,
)
from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.comparison.model import MetricComparison, PairComparison, Variant
    from assay.reports.comparison.document.comparison_report import ComparisonReport

_WIDTH = 118
_NAME_CHARS = 40
_VALUE_CHARS = 60
_SENTENCE_CHARS = 600
_COLUMNS_AT_ONCE = 4
_MATRIX_COLUMNS = 6
_MOST_FLIPPED = 5
_MOST_CHANGES = 10
_MOST_CLASSICAL = 4
_MOST_RUNS = 8
_MOST_WARNINGS = 10


def comparison_lines(report: ComparisonReport) -> list[str]:
    """Return a comparison as lines of clean text, as `assay compare --verbose` prints them."""
    lines = [shorten(verdict_sentence(report), _SENTENCE_CHARS)]
    said = [*banners(report), *cautions(report)]
    lines += [shorten(sentence, _SENTENCE_CHARS) for sentence in said[:_MOST_WARNINGS]]
    if len(said) > _MOST_WARNINGS:
        lines.append(f"and {count_text(len(said) - _MOST_WARNINGS, 'more warning')} in comparison_results.json")
    parts = _two(report) if len(report.comparison.variants) == 2 else _many(report)
    return [*lines, "", *parts, *_end(report)]


def _two(report: ComparisonReport) -> Iterator[str]:
    pair = report.comparison.pairs[0]
    if pair.n_common == pair.n_changed:
        yield "   ".join(_run(report, variant) for variant in report.comparison.variants)
        return
    one = pair.metric(report.comparison.primary)
    runs = "   ".join(_run(report, variant) for variant in report.comparison.variants)
    yield f"{runs}   cases: {_cases(report, pair)}"
    yield ""
    heading, first, *others = metrics_of_pair(report, pair)
    yield from columns([heading, (f"{first[0]} *", *first[1:]), *others], _VALUE_CHARS)
    yield from _footnote(report, pair)
    yield from textwrap.wrap(meaning_sentence(report), _WIDTH, subsequent_indent="  ")
    yield from _detectable(report, one)
    tests = classical_texts(report, pair)
    more = f"; and {len(tests) - _MOST_CLASSICAL} more" if len(tests) > _MOST_CLASSICAL else ""
    said = "; ".join(shorten(test, _VALUE_CHARS + _NAME_CHARS) for test in tests[:_MOST_CLASSICAL]) or "none"
    yield f"classical (unpaired): {said}{more}      ranking: {', '.join(ranking_texts(report))}"
    yield shorten(judge_sentence(report), None)
    yield shorten(floor_sentence(report, one), None)
    if (table := table_metric(report, pair)) is not None:
        yield ""
        yield from columns(two_by_two(table, pair.a, pair.b), _VALUE_CHARS)
    yield from _flipped(report, pair)


def _many(report: ComparisonReport) -> Iterator[str]:
    comparison = report.comparison
    for variant in comparison.variants:
        yield _run(report, variant)
    yield f"cases: {_least_cases(report)}"
    yield ""
    (label, cases, primary, *names), *rows = metrics_of_runs(report)
    yield from _blocks([(label, cases, f"{primary} *", *names), *rows], 2, _COLUMNS_AT_ONCE)
    yield "* primary metric; values of each run over all its cases"
    yield shorten(omnibus_sentence(report, comparison.primary), None)
    yield ""
    yield shorten(matrix_heading(report, comparison.primary), None)
    yield from _blocks(matrix(report), 1, _MATRIX_COLUMNS)
    first = report.baseline_pairs[0].metric(comparison.primary)
    yield shorten(f"test: {method_text(report, first)}; all other metrics are exploratory", None)
    yield from textwrap.wrap(meaning_sentence(report), _WIDTH, subsequent_indent="  ")
    yield f"ranking: {', '.join(ranking_texts(report))}"
    yield shorten(judge_sentence(report), None)
    yield shorten(floor_sentence(report, first), None)
    for pair in report.baseline_pairs[:_MOST_RUNS]:
        one = pair.metric(comparison.primary)
        yield ""
        yield shorten(pair_sentence(report, pair), _SENTENCE_CHARS)
        yield shorten(counts_text(one, pair.a, pair.b), None)
        yield from _detectable(report, one)
        if (table := table_metric(report, pair)) is not None:
            yield from columns(two_by_two(table, pair.a, pair.b), _VALUE_CHARS)
        yield from _flipped(report, pair, blank=False)
    if (more := len(report.baseline_pairs) - _MOST_RUNS) > 0:
        yield ""
        yield f"and {more} more against {comparison.variants[0].label} in comparison_results.json"


def _detectable(report: ComparisonReport, one: MetricComparison) -> Iterator[str]:
    if said := detectable_sentence(report, one):
        yield shorten(said, None)


def _end(report: ComparisonReport) -> Iterator[str]:
    yield ""
    changes = changed_rows(report)
    yield shorten(f"what changed: {code_sentence(report)}", _SENTENCE_CHARS)
    if len(changes) > 1:
        shown = [tuple(shorten(cell, _VALUE_CHARS) for cell in row) for row in changes[: _MOST_CHANGES + 1]]
        yield from (f"  {line}" for line in _blocks(shown, 1, _COLUMNS_AT_ONCE))
        if (more := len(changes) - 1 - _MOST_CHANGES) > 0:
            yield f"  and {count_text(more, 'more setting')} in comparison_results.json"
    yield from effort_texts(report)
    yield shorten(decision_sentence(report), _SENTENCE_CHARS)


def _run(report: ComparisonReport, variant: Variant) -> str:
    kind = "prompt" if variant.prompt_path else "run"
    return f"{kind} {variant.label}: {shorten(report.title(variant), _NAME_CHARS)}"


def _cases(report: ComparisonReport, pair: PairComparison) -> str:
    one = pair.metric(report.comparison.primary)
    return f"{one.n_pairs:,} paired ({joined_text(pair, one)})"


def _least_cases(report: ComparisonReport) -> str:
    counts = [pair.metric(report.comparison.primary).n_pairs for pair in report.comparison.pairs]
    low, high = min(counts), max(counts)
    paired = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    test = report.comparison.omnibus.get(report.comparison.primary)
    return f"{paired} paired in each two runs" + ("" if test is None else f", {test.n:,} in every run")


def _footnote(report: ComparisonReport, pair: PairComparison) -> list[str]:
    """Return which test each metric had, and in how many cases either run is better."""
    parts = []
    for one in report.shown(pair):
        name = "* primary metric" if one.is_primary else shorten(one.metric, _NAME_CHARS)
        if "as_primary" in one.notes:
            parts.append(f"{name}: all values are those of the primary metric")
            continue
        said = f"{name}: {method_text(report, one)} ({counts_text(one, pair.a, pair.b)})"
        parts.append(said if one.is_primary else f"{said}, exploratory, {adjustment_text(report)}")
    return textwrap.wrap(shorten("; ".join(parts), None), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _flipped(report: ComparisonReport, pair: PairComparison, *, blank: bool = True) -> Iterator[str]:
    count = differing_count(report, pair)
    if not count:
        return
    if blank:
        yield ""
    shown = flipped_cases(report, pair)[:_MOST_FLIPPED]
    which = f"{len(shown)} of {count:,}" if count > len(shown) else f"{count:,}"
    yield f"cases that came out differently, worst for {pair.b} first ({which}):"
    rows = []
    for case in shown:
        case_id, category, metric, a, b = flipped_row(report, pair, case)
        rows.append(
            (shorten(case_id, _NAME_CHARS), shorten(category, _NAME_CHARS), metric, f"{pair.a} {a}", f"{pair.b} {b}")
        )
    yield from (f"  {line}" for line in columns(rows, _VALUE_CHARS))


def _blocks(rows: Sequence[tuple[str, ...]], kept: int, size: int) -> Iterator[str]:
    """Yield a table in blocks of so many columns, each of which begins with the first columns."""
    for start in range(kept, len(rows[0]), size):
        yield from columns([row[:kept] + row[start : start + size] for row in rows], _VALUE_CHARS)
