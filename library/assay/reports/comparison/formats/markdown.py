"""comparison_report.md: a comparison for pull requests and summaries of CI jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.reports.comparison.words.headline import pair_sentence, verdict_sentence
from assay.reports.comparison.words.sentences import (
    adjustment_text,
    agent_errors_text,
    banners,
    cautions,
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
    differing_count,
    flipped_cases,
    flipped_row,
    matrix,
    metrics_of_pair,
    metrics_of_runs,
    table_metric,
    two_by_two,
)
from assay.reports.formats.markdown_document import MAX_CHARS
from assay.text.markdown_text import markdown_code, markdown_prose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.comparison.model import MetricComparison, PairComparison
    from assay.reports.comparison.document.comparison_report import ComparisonReport

    Rows = Sequence[tuple[str, ...]]

_STAR = "\\*"
_NAME_CHARS = 80
_TEXT_CHARS = 160
_SENTENCE_CHARS = 600
_MOST_FLIPPED = 20
_MOST_CHANGES = 20
_MOST_METRICS = 12
_MOST_RUNS = 8
_SECTION_FLIPPED = 5
_MOST_BANNERS = 10


def comparison_markdown(report: ComparisonReport) -> str:
    """Return a comparison as Markdown of at most 60,000 characters, which a comment of GitHub takes."""
    for most in range(_MOST_FLIPPED, -1, -1):
        text = "\n".join(_lines(report, most)) + "\n"
        if len(text) <= MAX_CHARS:
            return text
    return "\n".join([*_opening(report), "", "The tables have no room here: see comparison_results.json."]) + "\n"


def comparison_section(report: ComparisonReport) -> str:
    """Return a comparison as a part of another Markdown text: the verdict, the table and the worst flipped cases."""
    lines = [f"#{line}" if line.startswith("## ") else line for line in _opening(report)]
    lines += _two(report) if len(report.comparison.variants) == 2 else _many(report)
    for pair in report.baseline_pairs[:_MOST_RUNS]:
        lines += _cases(report, pair, _SECTION_FLIPPED)
    return "\n".join(lines) + "\n"


def _lines(report: ComparisonReport, most_flipped: int) -> Iterator[str]:
    yield from _opening(report)
    yield from _runs(report)
    yield from _two(report) if len(report.comparison.variants) == 2 else _many(report)
    for pair in report.baseline_pairs[:_MOST_RUNS]:
        yield from _cases(report, pair, most_flipped)
    yield from _changes(report)
    yield from _details(report)


def _opening(report: ComparisonReport) -> Iterator[str]:
    yield f"## {markdown_prose(verdict_sentence(report), _SENTENCE_CHARS)}"
    said = [*banners(report), *cautions(report)]
    if said:
        yield ""
    for sentence in said[:_MOST_BANNERS]:
        yield f"- {markdown_prose(sentence, _SENTENCE_CHARS)}"
    if len(said) > _MOST_BANNERS:
        yield f"- and {len(said) - _MOST_BANNERS} more"
    yield ""
    yield markdown_prose(decision_sentence(report), _SENTENCE_CHARS)


def _runs(report: ComparisonReport) -> list[str]:
    heading = ("", "prompt", "run", "cases", "agent errors")
    rows = [
        (
            one.label,
            markdown_code(report.title(one), _NAME_CHARS),
            markdown_code(one.run_id, _NAME_CHARS),
            f"{one.cases:,}",
            agent_errors_text(one),
        )
        for one in report.comparison.variants
    ]
    return _table([heading, *rows])


def _two(report: ComparisonReport) -> Iterator[str]:
    pair = report.comparison.pairs[0]
    if pair.n_common == pair.n_changed:
        return
    one = pair.metric(report.comparison.primary)
    rows = metrics_of_pair(report, pair)
    heading, *others = rows[: _MOST_METRICS + 1]
    names = [markdown_code(name, _NAME_CHARS) for name, *_ in others]
    names[0] += f" {_STAR}"
    yield from _table([heading, *((name, *row[1:]) for name, row in zip(names, others, strict=True))])
    if (more := len(rows) - 1 - _MOST_METRICS) > 0:
        yield from ("", f"and {more} more metrics")
    yield ""
    yield _method(report, pair, one)
    if one.noise_floor is not None:
        yield from ("", markdown_prose(floor_sentence(report, one)))


def _method(report: ComparisonReport, pair: PairComparison, one: MetricComparison) -> str:
    cases = f"{one.n_pairs:,} paired cases ({joined_text(pair, one)})"
    parts = [
        f"primary metric: {method_text(report, one)}, {cases}, {counts_text(one, pair.a, pair.b)}",
        f"all other metrics are exploratory, {adjustment_text(report)}-adjusted",
        detectable_sentence(report, one),
    ]
    return f"{_STAR} {markdown_prose('; '.join(filter(None, parts)))}"


def _many(report: ComparisonReport) -> Iterator[str]:
    (label, cases, *names), *rows = [row[: _MOST_METRICS + 2] for row in metrics_of_runs(report)]
    first, *others = (markdown_code(name, _NAME_CHARS) for name in names)
    yield from _table([(label, cases, f"{first} {_STAR}", *others), *rows])
    one = report.baseline_pairs[0].metric(report.comparison.primary)
    said = f"{omnibus_sentence(report, one.metric)}; {method_text(report, one)}, {adjustment_text(report)}-adjusted"
    yield from ("", f"{_STAR} {markdown_prose(f'primary metric; {said}')}")
    yield from ("", f"### Differences of {markdown_code(one.metric, _NAME_CHARS)}", "")
    for pair in report.baseline_pairs[:_MOST_RUNS]:
        yield f"- {markdown_prose(pair_sentence(report, pair), _SENTENCE_CHARS)}"
    yield from ("", markdown_prose(matrix_heading(report, one.metric)))
    yield from _table(matrix(report))
    if one.noise_floor is not None:
        yield from ("", markdown_prose(floor_sentence(report, one)))


def _cases(report: ComparisonReport, pair: PairComparison, most: int) -> Iterator[str]:
    one = table_metric(report, pair)
    count = differing_count(report, pair)
    if one is None and not count:
        return
    yield from ("", f"### Cases of {pair.a} and {pair.b}")
    if one is not None:
        first, *others = two_by_two(one, pair.a, pair.b)
        yield from _table([(markdown_code(first[0], _NAME_CHARS), *first[1:]), *others])
    shown = flipped_cases(report, pair)[:most]
    if shown:
        rows = [_flipped(flipped_row(report, pair, case)) for case in shown]
        yield from ("", f"{count:,} came out differently, worst for {pair.b} first:")
        yield from _table([("case", "category", "differs in", pair.a, pair.b), *rows])
    if count > len(shown):
        yield from ("", f"and {count - len(shown):,} more")


def _flipped(row: tuple[str, ...]) -> tuple[str, ...]:
    case_id, category, metric, *values = row
    return (
        markdown_code(case_id, _NAME_CHARS),
        markdown_code(category, _NAME_CHARS),
        markdown_code(metric, _NAME_CHARS),
        *values,
    )


def _changes(report: ComparisonReport) -> Iterator[str]:
    rows = changed_rows(report)
    yield from ("", "### What changed")
    if changed := code_sentence(report):
        yield from ("", markdown_prose(changed, _SENTENCE_CHARS))
    if len(rows) == 1:
        return
    width = max(_TEXT_CHARS // max(1, len(rows[0]) // 3), 20)
    code: Callable[[str], str] = lambda text: markdown_code(text, width)  # noqa: E731 - one width for all cells
    yield from _table([rows[0], *(tuple(map(code, row)) for row in rows[1 : _MOST_CHANGES + 1])])
    if (more := len(rows) - 1 - _MOST_CHANGES) > 0:
        yield from ("", f"and {more} more")


def _details(report: ComparisonReport) -> Iterator[str]:
    settings = report.comparison.settings
    said = [
        *effort_texts(report),
        f"ranking: {', '.join(ranking_texts(report))}",
        judge_sentence(report),
        meaning_sentence(report),
        f"Assay {report.comparison.assay_version}, seed {settings.seed}, level {settings.alpha:g}",
    ]
    yield from ("", "<details><summary>Cost, latency, judge and provenance</summary>", "")
    yield from (f"- {markdown_prose(sentence, _SENTENCE_CHARS)}" for sentence in said)
    yield from ("", "</details>")


def _table(rows: Rows) -> list[str]:
    """Return a table of safe cells, heading first, with a blank line before it."""
    heading, *others = rows
    lines = [f"| {' | '.join(row)} |" for row in (heading, tuple("---" for _ in heading), *others)]
    return ["", *lines]
