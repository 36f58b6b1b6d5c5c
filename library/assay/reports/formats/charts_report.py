"""charts/: six charts of a run, of slide size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.reports.charts import (
    category_breakdown,
    detailed_results,
    evaluation_dashboard,
    latency_analysis,
    metrics_overview,
    pass_fail_distribution,
)
from assay.reports.charts.fonts import Fonts
from assay.reports.charts.row_figures import row_figures
from assay.reports.charts.sheet import Sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from assay.reports.charts.row_figures import RowFigures
    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write charts/NAME.png or .svg, as the option `plot_format` says."""
    suffix = options.get("plot_format", "png")
    figures = row_figures(report)
    fonts = Fonts(drawn_text(report.head, figures))
    for name, sheet in sheets(report, figures, fonts):
        with folder.binary(f"charts/{name}.{suffix}") as file:
            if suffix == "svg":
                sheet.write_svg(file, f"{name.replace('_', ' ')} of {report.run_id}")
            else:
                sheet.write_png(file)
    if fonts.missing is not None:
        folder.notes.append(fonts.missing)


def sheets(report: Report, figures: RowFigures, fonts: Fonts) -> Iterator[tuple[str, Sheet]]:
    """Draw the charts one by one; yield the name and the sheet of each.

    Args:
        report: Of the run.
        figures: What its rows come to.
        fonts: Those of all its texts.
    """
    head = report.head
    charts: Mapping[str, Callable[[Sheet], None]] = {
        "metrics_overview": lambda sheet: metrics_overview.draw(sheet, head),
        "pass_fail_distribution": lambda sheet: pass_fail_distribution.draw(sheet, head),
        "latency_analysis": lambda sheet: latency_analysis.draw(sheet, head, figures.latency, report.row_count),
        "category_breakdown": lambda sheet: category_breakdown.draw(sheet, head),
        "detailed_results": lambda sheet: detailed_results.draw(sheet, head, figures, report.row_count),
        "evaluation_dashboard": lambda sheet: evaluation_dashboard.draw(sheet, head, figures.latency),
    }
    for name, draw in charts.items():
        sheet = Sheet(fonts)
        draw(sheet)
        yield name, sheet


def drawn_text(head: Mapping[str, Any], figures: RowFigures) -> str:
    """Return a text that contains every character that may be drawn."""
    summary = head["summary"]
    words = ["✗≥≤·–…", head["run"]["name"], head["run"]["run_id"], *head["results"], *summary["reasons"]]
    words += [group["name"] for kind in ("categories", "tags") for group in summary[kind]]
    words += [gate["expression"] for gate in summary["gates"]]
    for row in figures.table:
        words += [row.name, row.category, row.question, row.message]
    return " ".join(words)
