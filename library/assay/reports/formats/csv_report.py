"""evaluation_results_<time>.csv, one row per row of the run, and evaluation_summary_<time>.csv."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError
from assay.model.interval import Interval
from assay.reports.formats.csv_columns import SQL_METRICS, metric_kinds, name_of_kind, row_columns
from assay.reports.words.metric_text import latency_s
from assay.reports.words.selected_cases import selection_sentence
from assay.statistics.thresholds import TOLERANCE
from assay.text.csv_text import write_csv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write both files; with the option `bom`, each begins with a byte order mark, so that spreadsheets read UTF-8."""
    start = "\ufeff" if options.get("bom") else ""
    stamp = _stamp(str(report.head["timestamp"]))
    columns = row_columns(report.head)
    with folder.text(f"evaluation_results_{stamp}.csv") as file:
        file.write(start)
        rows = ([column.cell(row) for column in columns] for row in report.rows())
        write_csv(file, [column.name for column in columns], rows)
    with folder.text(f"evaluation_summary_{stamp}.csv") as file:
        file.write(start)
        write_csv(file, ["Metric", "Value"], summary_lines(report))


def _stamp(timestamp: str) -> str:
    """Return a time in UTC as in the names of the files."""
    try:
        return datetime.fromisoformat(timestamp).astimezone(UTC).strftime("%Y%m%d_%H%M%S")
    except ValueError:
        raise InvalidInputError(
            f"the report's timestamp is {timestamp!r}, and the names of CSV files need a time as 2026-11-23T16:41:11Z"
        ) from None


def summary_lines(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the lines: nine common ones, agent errors, rows without a verdict, and one per further metric.

    Agent errors that wait for a person have a further line, where there are some. A run over a part of its dataset, one
    that is partial, and one of dependent cases say so at the end.
    """
    summary, results = report.head["summary"], report.head["results"]
    kinds = metric_kinds(report.head)
    yield "Total Queries", str(report.row_count)
    yield "Passed", str(summary["passed_count"])
    yield "Failed", str(summary["decided_count"] - summary["passed_count"])
    yield "Pass Rate", _share(summary["pass_rate"])
    for kind in SQL_METRICS:
        result = results.get(name_of_kind(kind, kinds))
        yield f"Avg {kind.replace('_', ' ').title()}", _share(result["value"] if result else None)
    for name, key in (("Avg", "mean"), ("P50", "p50"), ("P95", "p95")):
        yield f"{name} Latency (s)", _seconds(latency_s(summary["latency"], key))
    yield "Agent Errors", str(summary["agent_error_count"])
    if interrupted := summary.get("interrupted_count"):
        yield "Interrupted", str(interrupted)
    yield "No Verdict", str(report.row_count - summary["decided_count"])
    for name, result in results.items():
        if kinds[name] not in (*SQL_METRICS, "latency"):
            yield name, _value(result.get("unit", ""), result["value"])
    if dependent := summary.get("dependent"):
        low, high = Interval.of_document(summary.get("pass_rate_interval")) or (None, None)
        yield "Pass Rate 95% Low", _share(low)
        yield "Pass Rate 95% High", _share(high)
        yield "Effective Cases", "" if dependent["effective_cases"] is None else _number(dependent["effective_cases"])
    if selection := selection_sentence(report.head):
        yield "Selection", selection
    if summary.get("partial"):
        yield "Partial", f"{report.row_count} of {summary['total_count']} rows"


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
