"""Chart of latencies: their distribution, and their course over the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.reports.charts.frame import CONTENT, draw_frame, draw_heading, draw_message
from assay.reports.charts.palette import BLUE, GRID, INK, MUTED, SKY, VERMILION, Fill
from assay.reports.charts.row_figures import BIN_COUNT
from assay.reports.charts.scales import Numbers, Scale, axis_end, ticks, time_text
from assay.reports.charts.sheet import Area
from assay.reports.words.metric_text import count_text, latency_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.reports.charts.row_figures import LatencyFigures
    from assay.reports.charts.sheet import Sheet

_LABELS = 52.0
"""The room for the labels of an axis."""


def draw(sheet: Sheet, head: Mapping[str, Any], figures: LatencyFigures, row_count: int) -> None:
    """Draw the chart."""
    latency = head["summary"]["latency"]
    draw_frame(sheet, head, "Latency", _said(latency, figures), _note(head, figures))
    if not latency["answer_count"]:
        draw_message(sheet, CONTENT, "No answer has a latency.")
        return
    middle = (CONTENT.left + CONTENT.right) / 2
    left = Area(CONTENT.left, CONTENT.top, middle - 25, CONTENT.bottom)
    draw_histogram(sheet, draw_heading(sheet, left, "Rows by latency"), head, figures)
    right = Area(middle + 25, CONTENT.top, CONTENT.right, CONTENT.bottom)
    _trend(sheet, draw_heading(sheet, right, "Latency by row, in the order of the dataset"), head, figures, row_count)


def _said(latency: Mapping[str, Any], figures: LatencyFigures) -> str:
    named = (("P50", "p50"), ("P95", "p95"), ("mean", "mean"), ("longest", "max"))
    times = " · ".join(f"{name} {time_text(latency_s(latency, figure), figures.upper_s)}" for name, figure in named)
    late = latency.get("timeout_count", 0)
    return f"{times} · {count_text(latency['answer_count'], 'answer')}" + (
        f" · {count_text(late, 'time-out')}" if late else ""
    )


def _note(head: Mapping[str, Any], figures: LatencyFigures) -> str:
    latency = head["summary"]["latency"]
    parts = [f"thick line: threshold {time_text(value, figures.upper_s)}" for value in _thresholds(head, figures)]
    if figures.above:
        end, longest = (
            time_text(figures.upper_s, figures.upper_s),
            time_text(latency_s(latency, "max"), figures.upper_s),
        )
        parts.append(f"{count_text(figures.above, 'row')} above {end}, up to {longest}: at the edge")
    parts.append("dots: every row" if figures.dot_step == 1 else f"dots: one row in {figures.dot_step:,}")
    if figures.windows:
        parts.append(f"line: median of {figures.window_rows:,} rows each")
    return " · ".join(parts) if latency["answer_count"] else ""


def draw_histogram(sheet: Sheet, area: Area, head: Mapping[str, Any], figures: LatencyFigures) -> None:
    """Draw the histogram of latencies, with percentiles and the thresholds of latency metrics."""
    latency = head["summary"]["latency"]
    if not latency["answer_count"]:
        draw_message(sheet, area, "No answer has a latency.")
        return
    plot = Area(area.left + _LABELS, area.top + 44, area.right - 12, area.bottom - 28)
    most = axis_end(max(*figures.bins, figures.above, 1))
    counts, times = Scale(0, most, plot.bottom, plot.top), Scale(0, figures.upper_s, plot.left, plot.right)
    for tick in ticks(0, most, 6):
        if tick == int(tick):
            sheet.line([plot.left, plot.right], [counts.at(tick)] * 2, GRID)
            sheet.text((plot.left - 8, counts.at(tick)), f"{tick:,.0f}", colour=MUTED, align="right")
    width = plot.width / BIN_COUNT
    for index, count in enumerate(figures.bins):
        if count:
            left = plot.left + index * width
            sheet.rectangle(Area(left + 0.5, counts.at(count), left + width - 0.5, plot.bottom), Fill(BLUE))
    if figures.above:
        edge = Area(plot.right + 2, counts.at(figures.above), plot.right + 12, plot.bottom)
        sheet.rectangle(edge, Fill(SKY, "//"))
    _time_axis(sheet, plot, times, figures.upper_s)
    marks = [("P50", latency["p50_ms"] / 1000), ("P95", latency["p95_ms"] / 1000)]
    for row, (name, value) in enumerate(marks):
        _mark(sheet, plot, times, f"{name} {time_text(value, figures.upper_s)}", value, row)
    for threshold in _thresholds(head, figures):
        sheet.line([times.at(threshold)] * 2, [plot.top, plot.bottom], VERMILION, width=4)


def _mark(sheet: Sheet, plot: Area, times: Scale, label: str, value: float, row: int) -> None:
    """Draw a percentile as a line through the plot, with its name in a separate row above."""
    x, y = times.at(value), plot.top - 38 + row * 19
    sheet.line([x, x], [y + 9, plot.bottom], INK, width=1.5, dashed=row > 0)
    half = sheet.width_of(label) / 2
    sheet.text((min(max(x, plot.left + half), plot.right - half), y), label, align="center")


def _time_axis(sheet: Sheet, plot: Area, times: Scale, upper_s: float) -> None:
    numbers = Numbers("s", upper_s)
    sheet.line([plot.left, plot.right], [plot.bottom, plot.bottom], INK)
    for tick in ticks(0, upper_s, 6):
        sheet.line([times.at(tick)] * 2, [plot.bottom, plot.bottom + 4], INK)
        sheet.text((times.at(tick), plot.bottom + 17), numbers.tick(tick), colour=MUTED, align="center")


def _thresholds(head: Mapping[str, Any], figures: LatencyFigures) -> list[float]:
    """Return the thresholds of latency metrics within the axis."""
    return [
        float(result["threshold"])
        for result in head["results"].values()
        if result.get("kind") == "latency"
        and result["threshold"] is not None
        and result["threshold"] <= figures.upper_s
    ]


def _trend(sheet: Sheet, area: Area, head: Mapping[str, Any], figures: LatencyFigures, row_count: int) -> None:
    latency = head["summary"]["latency"]
    plot = Area(area.left + _LABELS + 12, area.top + 44, area.right - 70, area.bottom - 28)
    times = Scale(0, figures.upper_s, plot.bottom, plot.top)
    rows = Scale(1, max(row_count, 2), plot.left + 6, plot.right - 6)
    numbers = Numbers("s", figures.upper_s)
    for tick in ticks(0, figures.upper_s, 6):
        sheet.line([plot.left, plot.right], [times.at(tick)] * 2, GRID)
        sheet.text((plot.left - 8, times.at(tick)), numbers.tick(tick), colour=MUTED, align="right")
    inside = [(number, value) for number, value in figures.dots if value <= figures.upper_s]
    beyond = [number for number, value in figures.dots if value > figures.upper_s]
    size = 7.0 if len(figures.dots) <= 60 else 4.0 if len(figures.dots) <= 300 else 2.4
    sheet.dots([rows.at(n) for n, _ in inside], [times.at(v) for _, v in inside], SKY, size=size)
    sheet.dots([rows.at(n) for n in beyond], [plot.top] * len(beyond), VERMILION, size=6, marker="^")
    if figures.windows:
        xs = [rows.at((first + last) / 2) for first, last, _ in figures.windows]
        sheet.line(xs, [times.at(median) for *_, median in figures.windows], BLUE, width=2.2)
    _percentiles(sheet, plot, times, latency)
    sheet.line([plot.left, plot.right], [plot.bottom, plot.bottom], INK)
    for tick in ticks(1, max(row_count, 2), 6):
        if tick >= 1 and tick == int(tick):
            sheet.text((rows.at(tick), plot.bottom + 17), f"{tick:,.0f}", colour=MUTED, align="center")


def _percentiles(sheet: Sheet, plot: Area, times: Scale, latency: Mapping[str, Any]) -> None:
    """Draw P50 and P95 as lines; their names never overlap."""
    low, high = times.at(latency["p50_ms"] / 1000), times.at(latency["p95_ms"] / 1000)
    gap = max(0.0, 19 - (low - high)) / 2
    for name, place, label, dashed in (("P50", low, low + gap, False), ("P95", high, high - gap, True)):
        sheet.line([plot.left, plot.right], [place, place], INK, width=1.5, dashed=dashed)
        sheet.text((plot.right + 8, label), name)
