"""Frame of every chart: title, verdict, and a caption with the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.reports.charts.palette import BLUE, GRID, INK, MUTED, VERMILION, Fill
from assay.reports.charts.sheet import LARGE, NORMAL, SMALL, TITLE, WIDTH, Area
from assay.reports.words.metric_text import count_text, partial_text
from assay.reports.words.selected_cases import selection_sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.reports.charts.scales import Scale
    from assay.reports.charts.sheet import Sheet

LEFT, RIGHT = 40.0, WIDTH - 40
CONTENT = Area(LEFT, 92, RIGHT, 648)
"""The area that a frame leaves for its chart."""

_VERDICTS = {"PASS": BLUE, "FAIL": VERMILION}


def draw_frame(sheet: Sheet, head: Mapping[str, Any], title: str, subtitle: str, note: str = "") -> None:
    """Draw title, verdict and caption.

    Args:
        sheet: An empty sheet.
        head: Head of the report.
        title: What the chart shows.
        subtitle: How to read the chart.
        note: What the chart omits or samples; empty for nothing.
    """
    summary = head["summary"]
    right = _verdict(sheet, summary)
    width = sheet.text((LEFT, 34), title, size=TITLE, bold=True)
    partial = partial_text(summary.get("finished_count", 0), summary["total_count"]) if summary.get("partial") else ""
    if scope := ", ".join(filter(None, (partial, selection_sentence(head)))):
        sheet.text((LEFT + width + 16, 34), scope, size=LARGE, bold=True, colour=VERMILION, width=right - width - 72)
    sheet.text((LEFT, 66), subtitle, size=NORMAL, colour=MUTED, width=RIGHT - LEFT)
    if note:
        sheet.text((LEFT, 664), note, size=SMALL, colour=MUTED, width=RIGHT - LEFT)
    _caption(sheet, head)


def _verdict(sheet: Sheet, summary: Mapping[str, Any]) -> float:
    """Draw the verdict at the top right; return its left end."""
    word = summary["overall_status"].replace("_", " ")
    width = sheet.width_of(word, size=LARGE, bold=True) + 28
    sheet.rectangle(Area(RIGHT - width, 18, RIGHT, 50), Fill(_VERDICTS.get(summary["overall_status"], MUTED)))
    sheet.text((RIGHT - width / 2, 34), word, size=LARGE, bold=True, colour="white", align="center")
    return RIGHT - width


def _caption(sheet: Sheet, head: Mapping[str, Any]) -> None:
    """Draw the run's name and facts; the name is drawn separately, so that right-to-left text reorders nothing else."""
    sheet.line([LEFT, RIGHT], [682, 682], GRID)
    run, summary = head["run"], head["summary"]
    facts = f"{count_text(summary['total_count'], 'row')} · {run['created_at'][:10]} · Assay {run['assay_version']}"
    taken = sheet.text((RIGHT, 700), facts, colour=MUTED, align="right", width=500)
    room = RIGHT - LEFT - taken - 40
    named = sheet.text((LEFT, 700), run["name"], colour=INK, width=room / 2)
    sheet.text((LEFT + named + 16, 700), run["run_id"], colour=MUTED, width=room - named - 16)


def draw_interval(sheet: Sheet, scale: Scale, middle: float, interval: Sequence[float]) -> None:
    """Draw an interval as a whisker, with a light edge that keeps it visible on a bar."""
    left, right = scale.at(interval[0]), scale.at(interval[1])
    sheet.line([left, right], [middle, middle], "white", width=3.5)
    sheet.line([left, right], [middle, middle], INK, width=1.5)
    for end in (left, right):
        sheet.line([end, end], [middle - 5, middle + 5], INK, width=1.5)


def draw_message(sheet: Sheet, area: Area, message: str) -> None:
    """Write the reason for an empty area."""
    middle = ((area.left + area.right) / 2, (area.top + area.bottom) / 2)
    sheet.text(middle, message, size=LARGE, colour=MUTED, align="center", width=area.width)


def draw_heading(sheet: Sheet, area: Area, heading: str) -> Area:
    """Write a heading at the top of an area; return the remaining area."""
    sheet.text((area.left, area.top + 10), heading, size=NORMAL, bold=True, width=area.width)
    return Area(area.left, area.top + 30, area.right, area.bottom)
