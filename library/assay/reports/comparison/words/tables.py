"""Tables of a comparison as cells, shared by all formats; names are untrusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.comparison.model import PASS_RATE
from assay.comparison.what_changed import CODE
from assay.reports.comparison.document.comparison_report import setting_text
from assay.reports.comparison.words.figures import (
    figures_of,
    level_text,
    metric_text,
    p_text,
    raw_p_text,
    run_value,
    tested_text,
    verdict_text,
)
from assay.reports.words.code_text import code_change
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.comparison.model import MetricComparison, PairComparison
    from assay.reports.comparison.document.comparison_report import ComparisonReport

    Row = tuple[str, ...]

_MOST_PATHS = 4


def metrics_of_pair(report: ComparisonReport, pair: PairComparison) -> list[Row]:
    """Return the metrics of two runs, heading first, then the primary metric, with raw and adjusted p-values.

    Where missing values decide, the figures with the worst of them have a line above those of the complete cases.
    """
    alpha = report.comparison.settings.alpha
    heading = (
        "metric",
        pair.a.label,
        pair.b.label,
        f"{pair.b.label} - {pair.a.label} [{level_text(alpha)}]",
        "p",
        "p adjusted",
        "verdict",
    )
    rows: list[Row] = [heading]
    for metric in report.shown(pair):
        figures, name, verdict = (
            figures_of(report, metric.metric),
            metric_text(report, metric.metric),
            _verdict(metric, pair),
        )
        values = figures.estimate(metric.a), figures.estimate(metric.b), figures.change(metric)
        if (worst := metric.worst_case) is not None:
            rows.append((f"{name}, worst case", "", "", figures.change(worst), p_text(worst.p), "", verdict))
            name, verdict = f"{name}, complete cases", ""
        rows.append((name, *values, raw_p_text(metric, alpha), p_text(metric.p_adjusted), verdict))
    return rows


def _verdict(metric: MetricComparison, pair: PairComparison) -> str:
    return verdict_text(metric, pair.a.label, pair.b.label)


def metrics_of_runs(report: ComparisonReport) -> list[Row]:
    """Return the metrics of every run over all its cases, heading first; the primary metric is the third column."""
    comparison = report.comparison
    names = [metric.metric for metric in report.shown(comparison.pairs[0])]
    rows: list[Row] = [("", "cases", *(metric_text(report, name) for name in names))]
    for variant in comparison.variants:
        values = (run_value(report, name, variant.metrics[name]) for name in names)
        rows.append((variant.label, f"{variant.case_count:,}", *values))
    return rows


def matrix(report: ComparisonReport) -> list[Row]:
    """Return the differences of the primary metric between all runs, column - row, with raw and adjusted p-values.

    Pairs that decide nothing have a raw p-value alone.
    """
    comparison = report.comparison
    labels = [variant.label for variant in comparison.variants]
    metrics = {(pair.a.label, pair.b.label): pair.metric(comparison.primary) for pair in comparison.pairs}
    figures = figures_of(report, comparison.primary)

    def cell(row: str, column: str) -> str:
        metric = metrics.get((row, column))
        if metric is None:
            return ""
        tested = tested_text(metric, comparison.settings.alpha)
        return f"{figures.difference(metric.difference)} ({tested if metric.decides else f'raw {tested}'})"

    return [("", *labels[1:]), *((row, *(cell(row, column) for column in labels[1:])) for row in labels[:-1])]


def table_metric(report: ComparisonReport, pair: PairComparison) -> MetricComparison | None:
    """Return the metric whose 2 x 2 table is shown: the primary one, else the pass rate; None if neither has one."""
    wanted = (report.comparison.primary, PASS_RATE)
    return next((metric for name in wanted if (metric := pair.metric(name)).table is not None), None)


def two_by_two(metric: MetricComparison, a: str, b: str) -> list[Row]:
    """Return the 2 x 2 table of a metric, heading first."""
    assert metric.table is not None, "only metrics of 0 and 1 have a table"
    table = metric.table
    return [
        (metric.metric, f"{b} right", f"{b} wrong"),
        (f"{a} right", f"{table.both_count:,}", f"{table.a_only_count:,}"),
        (f"{a} wrong", f"{table.b_only_count:,}", f"{table.neither_count:,}"),
    ]


def changed_rows(report: ComparisonReport) -> list[Row]:
    """Return the settings in which the runs differ, one per line, heading first."""
    heading = ("setting", *(variant.label for variant in report.comparison.variants))
    return [heading, *((change.path, *map(setting_text, change.values)) for change in report.comparison.changes)]


def changes_sentence(report: ComparisonReport) -> str:
    """Return the differences between the runs in a few words; empty if none are known."""
    paths = [change.path for change in report.comparison.changes if not change.path.startswith(f"{CODE}.")]
    code = code_change(_codes(report))
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    return "; ".join(filter(None, [code, f"{', '.join(paths[:_MOST_PATHS])}{more}"]))


def code_sentence(report: ComparisonReport) -> str:
    """Return a sentence on the difference of the agent's code; empty if only settings are known to differ."""
    if report.comparison.changes:
        return code_change(_codes(report))
    is_known = all(code.get("agent_sha256") for code in _codes(report))
    return "no setting, and not the agent's code" if is_known else "no setting; the agent's code is not known"


def _codes(report: ComparisonReport) -> list[Mapping[str, Any]]:
    return [facts.code for facts in report.facts]


def columns(rows: Sequence[Row], width: int) -> list[str]:
    """Return rows as columns of clean text that begin at one place.

    Args:
        rows: Their cells.
        width: Most characters of a cell.
    """
    cells = [[shorten(cell, width) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) if cells else 0)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
