"""Chart of outcomes: counts of rows, the metrics that failed them, and the criteria of the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.gates.gates import actual_text
from assay.model.interval import Interval
from assay.reports.charts.frame import CONTENT, draw_frame, draw_heading, draw_interval, draw_message
from assay.reports.charts.outcomes import FILLS, outcome_counts
from assay.reports.charts.palette import BAD, GRID, INK, MUTED, TRACK, VERMILION, Fill
from assay.reports.charts.scales import Scale
from assay.reports.charts.sheet import LARGE, Area
from assay.reports.words.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.reports.charts.sheet import Sheet

_BAR = 34.0
_MOST_METRICS = 6
_MOST_CRITERIA = 8
_COUNTS_WIDTH = 150.0
_THINNEST = 3.0


def draw(sheet: Sheet, head: Mapping[str, Any]) -> None:
    """Draw the chart."""
    summary = head["summary"]
    draw_frame(sheet, head, "Pass and fail", rate_text(summary))
    middle = (CONTENT.left + CONTENT.right) / 2
    left = Area(CONTENT.left, CONTENT.top, middle - 30, CONTENT.bottom)
    half = (CONTENT.top + CONTENT.bottom) / 2 + 10
    draw_pass_rate(sheet, Area(left.left, left.top, left.right, left.top + 150), summary)
    draw_outcomes(sheet, draw_heading(sheet, Area(left.left, left.top + 170, left.right, left.bottom), "Rows"), summary)
    right = Area(middle + 30, CONTENT.top, CONTENT.right, half - 20)
    _failing_metrics(sheet, draw_heading(sheet, right, "Rows that each metric failed"), head["results"])
    right = Area(middle + 30, half, CONTENT.right, CONTENT.bottom)
    _criteria(sheet, draw_heading(sheet, right, "Criteria of the verdict"), summary["gates"])


def rate_text(summary: Mapping[str, Any]) -> str:
    """Return a sentence with the pass rate, its interval and its denominator."""
    if summary["pass_rate"] is None:
        return "No row has a verdict."
    interval = Interval.of_document(summary.get("pass_rate_interval"))
    between = f" (95 % interval {interval[0]:.1%} to {interval[1]:.1%})" if interval else ""
    return (
        f"{summary['pass_rate']:.1%} passed{between}: {summary['passed_count']:,} of "
        f"{count_text(summary['decided_count'], 'row')} with a verdict"
    )


def draw_pass_rate(sheet: Sheet, area: Area, summary: Mapping[str, Any]) -> None:
    """Draw the pass rate on an axis from 0 to 100 %, with its interval if there is one."""
    area = draw_heading(sheet, area, "Pass rate")
    if summary["pass_rate"] is None:
        draw_message(sheet, area, "No row has a verdict.")
        return
    scale, middle = Scale(0.0, 1.0, area.left + 12, area.right - _COUNTS_WIDTH), area.top + 26
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        sheet.line([scale.at(tick)] * 2, [area.top + 6, area.top + 50], GRID)
        sheet.text((scale.at(tick), area.top + 64), f"{tick:.0%}", colour=MUTED, align="center")
    sheet.rectangle(Area(scale.start, middle - 10, scale.end, middle + 10), Fill(TRACK))
    sheet.rectangle(Area(scale.start, middle - 10, scale.at(summary["pass_rate"]), middle + 10), FILLS["passed"])
    if interval := Interval.of_document(summary.get("pass_rate_interval")):
        draw_interval(sheet, scale, middle, interval)
    sheet.text((scale.end + 20, middle), f"{summary['pass_rate']:.1%}", size=LARGE, bold=True)


def draw_outcomes(sheet: Sheet, area: Area, summary: Mapping[str, Any]) -> None:
    """Draw a bar per outcome, with count and share."""
    if not summary["total_count"]:
        draw_message(sheet, area, "The run has no row.")
        return
    counts = outcome_counts(summary)
    bars = [(entry.outcome, entry.count, FILLS[entry.outcome], _share_text(entry.share or 0.0)) for entry in counts]
    _bars(sheet, area, bars, summary["total_count"])


def _share_text(share: float) -> str:
    return "< 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def _bars(sheet: Sheet, area: Area, bars: Sequence[tuple[str, int, Fill, str]], total: int) -> None:
    """Draw bars of counts: name, count, fill, and the text beside the count."""
    height = min(_BAR + 16, area.height / len(bars))
    names = min(max(sheet.width_of(name) for name, *_ in bars), area.width / 3)
    scale = Scale(0, max(total, 1), area.left + names + 12, area.right - _COUNTS_WIDTH)
    for index, (name, count, fill, share) in enumerate(bars):
        middle = area.top + (index + 0.5) * height
        half = min(_BAR, height * 0.7) / 2
        sheet.text((area.left, middle), name, width=names + 4)
        sheet.rectangle(Area(scale.start, middle - half, scale.end, middle + half), Fill(TRACK))
        end = max(scale.at(count), scale.start + _THINNEST) if count else scale.start
        sheet.rectangle(Area(scale.start, middle - half, end, middle + half), fill)
        taken = sheet.text((scale.end + 14, middle), f"{count:,}", bold=True)
        sheet.text((scale.end + 24 + taken, middle), share, colour=MUTED, width=area.right - scale.end - 24 - taken)


def _failing_metrics(sheet: Sheet, area: Area, results: Mapping[str, Any]) -> None:
    judging = {name: result for name, result in results.items() if result["passed_count"] + result["failed_count"]}
    if not judging:
        draw_message(sheet, area, "No metric decides rows.")
        return
    worst = sorted(judging, key=lambda name: -judging[name]["failed_count"])
    bars = [
        (
            name,
            judging[name]["failed_count"],
            BAD,
            f"of {judging[name]['passed_count'] + judging[name]['failed_count']:,}",
        )
        for name in worst[:_MOST_METRICS]
    ]
    if (more := len(worst) - _MOST_METRICS) > 0:
        sheet.text((area.left, area.bottom - 10), f"and {more:,} more", colour=MUTED)
        area = Area(area.left, area.top, area.right, area.bottom - 24)
    _bars(sheet, area, bars, max(result["passed_count"] + result["failed_count"] for result in judging.values()))


def _criteria(sheet: Sheet, area: Area, gates: Sequence[Mapping[str, Any]]) -> None:
    if not gates:
        draw_message(sheet, area, "Nothing decides this run.")
        return
    order = {"fail": 0, "incomplete": 1, "pass": 2}
    shown = sorted(gates, key=lambda gate: order[gate["outcome"]])
    for index, gate in enumerate(shown[:_MOST_CRITERIA]):
        y = area.top + 14 + index * 26
        bad = gate["outcome"] != "pass"
        sheet.text((area.left, y), gate["outcome"].upper(), bold=True, colour=VERMILION if bad else INK)
        text = "not computed" if gate["actual"] is None else f"actual {actual_text(gate['expression'], gate['actual'])}"
        taken = sheet.text((area.right, y), text, colour=MUTED, align="right", width=170)
        sheet.text((area.left + 120, y), gate["expression"], width=area.width - 135 - taken)
    if (more := len(gates) - _MOST_CRITERIA) > 0:
        sheet.text((area.left, area.top + 14 + _MOST_CRITERIA * 26), f"and {more:,} more", colour=MUTED)
