"""What a notebook shows of a comparison: the verdict, a table of metrics, and the cases that came out differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.reports.comparison.words.headline import Naming, verdict_sentence
from assay.reports.comparison.words.sentences import banners, cautions, decision_sentence
from assay.reports.comparison.words.tables import (
    changes_sentence,
    differing_count,
    flipped_cases,
    flipped_row,
    metrics_of_pair,
    metrics_of_runs,
)
from assay.reports.formats.notebook import html_table, html_text
from assay.reports.words.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.comparison.model import PairComparison
    from assay.reports.comparison.document.comparison_report import ComparisonReport

_MOST_CASES = 10
_MOST_RUNS = 8


def comparison_html(report: ComparisonReport) -> str:
    """Return a comparison as HTML without scripts, which many notebooks remove."""
    said = [*banners(report), *cautions(report)]
    parts = [
        f'<p style="margin:0 0 4px"><strong>{html_text(verdict_sentence(report, Naming.NAME))}</strong></p>',
        *(f'<p style="margin:0 0 4px">{html_text(sentence)}</p>' for sentence in said),
        *_tables(report),
    ]
    if changed := changes_sentence(report):
        parts.append(f'<p style="margin:0 0 4px">{html_text(f"what changed: {changed}")}</p>')
    return f"<div>{''.join(parts)}<p>{html_text(decision_sentence(report))}</p></div>"


def _tables(report: ComparisonReport) -> Iterator[str]:
    pairs = [pair for pair in report.baseline_pairs if pair.n_common > pair.n_changed]
    if not pairs:
        return
    if len(report.comparison.variants) == 2:
        (name, _, _, difference, *others), *rows = metrics_of_pair(report, pairs[0])
        a, b = report.names[pairs[0].a], report.names[pairs[0].b]
        yield html_table((name, a, b, difference, *others), rows)
    else:
        heading, *rows = metrics_of_runs(report)
        yield html_table(heading, [(report.names[label], *cells) for label, *cells in rows])
    for pair in pairs[:_MOST_RUNS]:
        yield from _cases(report, pair)


def _cases(report: ComparisonReport, pair: PairComparison) -> Iterator[str]:
    count, a, b = differing_count(report, pair), report.names[pair.a], report.names[pair.b]
    if not count:
        return
    rows = []
    for case in flipped_cases(report, pair)[:_MOST_CASES]:
        case_id, category, metric, *values = flipped_row(report, pair, case)
        rows.append((case_id, case.question or category, metric, *values))
    first = f"; {len(rows)} of {count:,}" if count > len(rows) else ""
    said = f"{b} lost {count_text(pair.n_lost, 'case')} and won {pair.n_won:,}{first}, the worst first:"
    yield f'<p style="margin:0 0 4px">{html_text(said)}</p>'
    yield html_table(("case", "question", "differs in", a, b), rows)
