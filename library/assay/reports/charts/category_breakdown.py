"""Chart of pass rates by category, or by tag without categories: worst first, with 95 % intervals and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.interval import Interval
from assay.reports.charts.frame import CONTENT, draw_frame, draw_interval, draw_message
from assay.reports.charts.palette import BLUE, GRID, INK, MUTED, SKY, TRACK, Fill
from assay.reports.charts.scales import Scale
from assay.reports.charts.sheet import Area

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.reports.charts.sheet import Sheet

_MOST = 20
_HIGHEST = 52.0
_AXIS = 26.0


def draw(sheet: Sheet, head: Mapping[str, Any]) -> None:
    """Draw the chart."""
    kind, groups = groups_of(head)
    subtitle = "Bar: pass rate · whisker: its 95 % interval · dashed line: all rows · the worst first" if groups else ""
    draw_frame(sheet, head, f"Pass rate by {kind}", subtitle, _more_text(kind, groups[_MOST:]))
    draw_groups(sheet, CONTENT, head, _MOST)


def groups_of(head: Mapping[str, Any]) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """Return the grouping, "category" or "tag", and the groups, worst first."""
    summary = head["summary"]
    kind, groups = (
        ("tag", summary["tags"])
        if summary["tags"] and not summary["categories"]
        else ("category", summary["categories"])
    )
    return kind, sorted(groups, key=_badness)


def _badness(group: Mapping[str, Any]) -> tuple[bool, float, int, str]:
    rate = group["pass_rate"]
    return rate is None, rate or 0.0, -group["row_count"], group["name"]


def _more_text(kind: str, hidden: Sequence[Mapping[str, Any]]) -> str:
    if not hidden:
        return ""
    plural = {"category": "categories", "tag": "tags"}[kind] if len(hidden) > 1 else kind
    rates = [group["pass_rate"] for group in hidden if group["pass_rate"] is not None]
    between = f", with pass rates from {min(rates):.1%} to {max(rates):.1%}" if rates else ", without verdicts"
    return f"and {len(hidden):,} more {plural}{between}"


def draw_groups(sheet: Sheet, area: Area, head: Mapping[str, Any], most: int) -> None:
    """Draw a line per group, worst first.

    Args:
        sheet: The sheet.
        area: The available area.
        head: Head of the report.
        most: Maximum number of groups.
    """
    (_, groups) = groups_of(head)
    if not groups:
        draw_message(sheet, area, "No case has a category or a tag.")
        return
    wide = area.width > 800
    names, counts = (260.0, 330.0) if wide else (area.width * 0.28, 185.0)
    scale = Scale(0.0, 1.0, area.left + names + 16, area.right - counts)
    shown = groups[:most]
    height = min(_HIGHEST, (area.height - _AXIS) / len(shown))
    bottom = area.top + height * len(shown)
    for tick in (0.0, 0.5, 1.0) if not wide else (0.0, 0.25, 0.5, 0.75, 1.0):
        sheet.line([scale.at(tick)] * 2, [area.top, bottom + 4], GRID)
        sheet.text((scale.at(tick), bottom + 15), f"{tick:.0%}", colour=MUTED, align="center")
    for index, group in enumerate(shown):
        middle = area.top + (index + 0.5) * height
        sheet.text((area.left, middle), group["name"], width=names)
        _group(sheet, scale, middle, min(height * 0.6, 20) / 2, group)
        _counts(sheet, Area(scale.end + 16, middle, area.right, middle), group, wide=wide)
    if head["summary"]["pass_rate"] is not None:
        sheet.line([scale.at(head["summary"]["pass_rate"])] * 2, [area.top, bottom + 4], INK, width=1.5, dashed=True)


def _group(sheet: Sheet, scale: Scale, middle: float, half: float, group: Mapping[str, Any]) -> None:
    if group["pass_rate"] is None:
        return
    place = scale.at(group["pass_rate"])
    sheet.rectangle(Area(scale.start, middle - half, scale.end, middle + half), Fill(TRACK))
    sheet.rectangle(Area(scale.start, middle - half, place, middle + half), Fill(SKY))
    interval = Interval.of_document(group.get("pass_rate_interval"))
    if interval is not None:
        draw_interval(sheet, scale, middle, interval)
    sheet.dots([place], [middle], BLUE, size=6)


def _counts(sheet: Sheet, place: Area, group: Mapping[str, Any], *, wide: bool) -> None:
    """Write pass rate, interval and counts."""
    decided = group["passed_count"] + group["failed_count"]
    if group["pass_rate"] is None:
        sheet.text((place.left, place.top), f"no verdict, n = {group['row_count']:,}", colour=MUTED, width=place.width)
        return
    sheet.text((place.left, place.top), f"{group['pass_rate']:.1%}", bold=True)
    interval = Interval.of_document(group.get("pass_rate_interval")) if wide else None
    if interval is not None:
        sheet.text((place.left + 72, place.top), f"{interval[0]:.1%} – {interval[1]:.1%}", colour=MUTED)
    undecided = group["row_count"] - decided
    text = f"{group['passed_count']:,} of {decided:,}" + (f" (+{undecided:,})" if undecided else "")
    left = place.left + (215 if interval is not None else 72)
    sheet.text((left, place.top), text, colour=MUTED, width=place.right - left)
