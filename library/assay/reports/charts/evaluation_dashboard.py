"""Dashboard of a run on one sheet: verdict, metrics, outcomes, latency and the worst categories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.reports.charts.category_breakdown import draw_groups, groups_of
from assay.reports.charts.frame import CONTENT, draw_frame, draw_heading
from assay.reports.charts.latency_analysis import draw_histogram
from assay.reports.charts.metrics_overview import draw_metrics
from assay.reports.charts.pass_fail_distribution import draw_outcomes, rate_text
from assay.reports.charts.sheet import Area

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.reports.charts.row_figures import LatencyFigures
    from assay.reports.charts.sheet import Sheet

_MOST_METRICS = 5
_MOST_GROUPS = 7
_GAP = 28.0


def draw(sheet: Sheet, head: Mapping[str, Any], figures: LatencyFigures) -> None:
    """Draw the chart."""
    reasons = " · ".join([rate_text(head["summary"]), *head["summary"]["reasons"][:1]])
    draw_frame(sheet, head, "Evaluation", reasons, _note(head))
    x, y = (CONTENT.left + CONTENT.right) / 2, (CONTENT.top + CONTENT.bottom) / 2
    top, bottom = (CONTENT.top, y - _GAP / 2), (y + _GAP / 2, CONTENT.bottom)
    left, right = (CONTENT.left, x - _GAP), (x + _GAP, CONTENT.right)
    draw_metrics(sheet, _panel(sheet, left, top, "Metrics"), head["results"], _MOST_METRICS)
    draw_outcomes(sheet, _panel(sheet, right, top, "Rows"), head["summary"])
    draw_histogram(sheet, _panel(sheet, left, bottom, "Rows by latency"), head, figures)
    (kind, groups) = groups_of(head)
    subtitle = ", the worst first, with 95 % intervals" if groups else ""
    draw_groups(sheet, _panel(sheet, right, bottom, f"Pass rate by {kind}{subtitle}"), head, _MOST_GROUPS)


def _panel(sheet: Sheet, across: tuple[float, float], down: tuple[float, float], heading: str) -> Area:
    return draw_heading(sheet, Area(across[0], down[0], across[1], down[1]), heading)


def _note(head: Mapping[str, Any]) -> str:
    hidden = []
    if (metrics := len(head["results"]) - _MOST_METRICS) > 0:
        hidden.append(f"{metrics:,} of {len(head['results']):,} metrics")
    (kind, groups) = groups_of(head)
    if (more := len(groups) - _MOST_GROUPS) > 0:
        hidden.append(f"{more:,} of {len(groups):,} {'categories' if kind == 'category' else 'tags'}")
    return f"not shown: {' and '.join(hidden)}" if hidden else ""
