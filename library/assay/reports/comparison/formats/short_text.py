"""A comparison in a few lines: verdict, three metrics, lost and won cases, decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.comparison.model import PASS_RATE, ComparisonVerdict
from assay.reports.comparison.words.figures import figures_of, metric_text, run_value
from assay.reports.comparison.words.headline import Naming, pair_sentence, verdict_sentence
from assay.reports.comparison.words.sentences import banners, cautions, decision_sentence
from assay.reports.comparison.words.tables import changes_sentence, columns
from assay.reports.words.run_commands import case_command
from assay.text.unsafe_text import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.comparison.model import FlippedCase, PairComparison
    from assay.reports.comparison.document.comparison_report import ComparisonReport

_MOST_METRICS = 3
_MOST_CASES = 3
_MOST_RUNS = 8
_ID_CHARS, _QUESTION_CHARS, _NAME_CHARS = 30, 40, 40
_SENTENCE_CHARS = 600
_WORDS = {
    ComparisonVerdict.B_BETTER: "better",
    ComparisonVerdict.A_BETTER: "worse",
    ComparisonVerdict.EQUIVALENT: "equivalent",
    ComparisonVerdict.INCONCLUSIVE: "inconclusive",
    ComparisonVerdict.NO_DATA: "no data",
    ComparisonVerdict.WITHHELD: "no verdict",
}


def short_lines(report: ComparisonReport) -> list[str]:
    """Return a comparison as a few lines of clean text; the first is its verdict, the last its decision."""
    sentences_above = [verdict_sentence(report, Naming.NAME), *banners(report, Naming.NAME), *cautions(report)]
    pairs = [pair for pair in report.baseline_pairs if pair.common_case_count > pair.changed_case_count][:_MOST_RUNS]
    lines = [shorten(sentence, _SENTENCE_CHARS) for sentence in sentences_above]
    if len(report.comparison.variants) > 2:
        lines += [f"  {shorten(pair_sentence(report, pair, Naming.NAME), _SENTENCE_CHARS)}" for pair in pairs]
    if pairs:
        lines += _metrics(report, pairs[0]) if len(report.comparison.variants) == 2 else _runs(report)
        lines += [line for pair in pairs for line in _cases(report, pair)]
    if changed := changes_sentence(report):
        lines.append(shorten(f"what changed: {changed}", _SENTENCE_CHARS))
    return [*lines, shorten(decision_sentence(report), _SENTENCE_CHARS)]


def _metrics(report: ComparisonReport, pair: PairComparison) -> list[str]:
    rows = []
    for metric in report.distinct(pair)[:_MOST_METRICS]:
        figures = figures_of(report, metric.metric)
        values = " -> ".join(
            figures.value(estimate.value if estimate is not None else None) for estimate in (metric.a, metric.b)
        )
        name, verdict = metric_text(report, metric.metric), _WORDS[metric.verdict]
        if metric.worst_case is not None:
            rows.append((f"{name}, worst case", "", figures.change(metric.worst_case), verdict))
            name, verdict = f"{name}, complete cases", ""
        rows.append((name, values, figures.change(metric), verdict))
    return [f"  {line}" for line in columns(rows, _NAME_CHARS)]


def _runs(report: ComparisonReport) -> list[str]:
    comparison = report.comparison
    metrics = [metric.metric for metric in report.distinct(comparison.pairs[0])[:_MOST_METRICS]]
    rows = [("", *(metric_text(report, name) for name in metrics))]
    for variant in comparison.variants[:_MOST_RUNS]:
        values = (run_value(report, name, variant.metrics[name]) for name in metrics)
        rows.append((report.names[variant.label], *values))
    more = len(comparison.variants) - _MOST_RUNS
    lines = [*columns(rows, _NAME_CHARS), *([f"and {more} more"] if more > 0 else [])]
    return [f"  {line}" for line in lines]


def _cases(report: ComparisonReport, pair: PairComparison) -> Iterator[str]:
    """Yield a line of lost cases and a line of won cases, if there are any."""
    better = pair.metric(report.comparison.primary).higher_is_better
    lost = [case for case in pair.flipped_cases if _is_lost(case, higher_is_better=better)]
    won = [case for case in pair.flipped_cases if not _is_lost(case, higher_is_better=better)]
    won.sort(key=lambda case: -abs(case.b - case.a))
    name = f"{shorten(report.names[pair.b.label], _NAME_CHARS)} " if len(report.baseline_pairs) > 1 else ""
    for word, count, cases in (("lost", pair.lost_case_count, lost), ("won", pair.won_case_count, won)):
        if count:
            yield f"  {name}{word} {count:,}{_named(report, pair, cases, count)}"


def _is_lost(case: FlippedCase, *, higher_is_better: bool) -> bool:
    return (case.b < case.a) is (higher_is_better or case.metric == PASS_RATE)


def _named(report: ComparisonReport, pair: PairComparison, cases: Sequence[FlippedCase], count: int) -> str:
    """Return the first few of some cases with their questions, and the command that shows one of them."""
    shown = cases[:_MOST_CASES]
    if not shown:
        return ""
    names = ", ".join(_case(case) for case in shown)
    more = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return f": {names}{more}{_command(report, pair, shown)}"


def _command(report: ComparisonReport, pair: PairComparison, cases: Sequence[FlippedCase]) -> str:
    """Return the command that shows one of some cases; empty if the runs are files, or no id is fit for a terminal."""
    ids = (case.case_id_b or case.case_id for case in cases)
    usable = next((case_id for case_id in ids if clean(case_id) == case_id), None)
    if report.server is None or usable is None:
        return ""
    return f"; {case_command(report.comparison.variant(pair.b.label).run_id, usable, server=report.server)}"


def _case(case: FlippedCase) -> str:
    case_id = shorten(case.case_id_b or case.case_id, _ID_CHARS)
    return f'{case_id} "{shorten(case.question, _QUESTION_CHARS)}"' if case.question else case_id
