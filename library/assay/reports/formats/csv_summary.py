"""Summary of the CSV report: a name and a value per line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.reports.formats.csv_columns import SQL_METRICS, metric_kinds
from assay.reports.words.selected_cases import selection_sentence
from assay.statistics.thresholds import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.reports.document.report import Report


def summary_lines(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the lines: nine that every run has, agent errors, rows without a verdict, one for each further metric.

    Agent errors that wait for a person have a further line, where there are some. A run over a part of its dataset, one
    that is partial, and one of dependent cases say so at the end.
    """
    summary, results = report.head["summary"], report.head["results"]
    kinds = metric_kinds(report.head)
    yield "Total Queries", str(report.row_count)
    yield "Passed", str(summary["passed"])
    yield "Failed", str(summary["decided"] - summary["passed"])
    yield "Pass Rate", _share(summary["pass_rate"])
    for kind in SQL_METRICS:
        name = next((name for name, kind_of_metric in kinds.items() if kind_of_metric == kind), None)
        yield f"Avg {kind.replace('_', ' ').title()}", _share(results[name]["value"] if name else None)
    for name, key in (("Avg", "mean_s"), ("P50", "p50_s"), ("P95", "p95_s")):
        yield f"{name} Latency (s)", _seconds(summary["latency"].get(key))
    yield "Agent Errors", str(summary["agent_errors"])
    if interrupted := summary.get("interrupted"):
        yield "Interrupted", str(interrupted)
    yield "No Verdict", str(report.row_count - summary["decided"])
    for name, result in results.items():
        if kinds[name] not in (*SQL_METRICS, "latency"):
            yield name, _value(result.get("unit", ""), result["value"])
    if dependent := summary.get("dependent"):
        low, high = summary.get("pass_rate_interval") or (None, None)
        yield "Pass Rate 95% Low", _share(low)
        yield "Pass Rate 95% High", _share(high)
        yield "Effective Cases", "" if dependent["effective_cases"] is None else _number(dependent["effective_cases"])
    if selection := selection_sentence(report.head):
        yield "Selection", selection
    if summary.get("partial"):
        yield "Partial", f"{report.row_count} of {summary['total']} rows"


def _value(unit: str, value: float | None) -> str:
    match unit:
        case "%":
            return _share(value)
        case "s":
            return _seconds(value)
    return "" if value is None else _number(value)


def _number(value: float) -> str:
    """Return a value with four decimals, or four digits where it is too small or too large for them."""
    if 0.00005 <= abs(value) < 1e15 or abs(value) <= TOLERANCE:
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return f"{value:.4g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
