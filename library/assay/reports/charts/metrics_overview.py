"""Chart of metrics: value, 95 % interval, threshold and goal, each metric on its own scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.metrics import METRICS
from assay.model.interval import Interval
from assay.reports.charts.frame import CONTENT, draw_frame, draw_interval, draw_message
from assay.reports.charts.palette import BAD, GOOD, GRID, INK, MUTED, PLAIN, TRACK, VERMILION, Fill
from assay.reports.charts.scales import Numbers, Scale, axis_end
from assay.reports.charts.sheet import Area
from assay.reports.words.metric_text import RULES, count_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.reports.charts.sheet import Sheet

_MOST = 12
_HEIGHT = 76.0

SUBTITLE = (
    "Bar: value · whisker: 95 % interval · solid line: threshold · dashed line: goal · each metric on its own scale"
)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Positions of the parts of a metric's line; the rule is omitted without room for it."""

    name: float
    track: float
    track_end: float
    value: float
    rule: float | None
    end: float


def draw(sheet: Sheet, head: Mapping[str, Any]) -> None:
    """Draw the chart."""
    count = len(head["results"])
    more = count - _MOST
    note = (
        f"{count_text(more, 'more metric')} in the report; shown first: those that miss their threshold"
        if more > 0
        else ""
    )
    draw_frame(sheet, head, "Metrics overview", SUBTITLE, note)
    draw_metrics(sheet, CONTENT, head["results"], _MOST)


def draw_metrics(sheet: Sheet, area: Area, results: Mapping[str, Any], most: int) -> None:
    """Draw metrics below each other.

    Args:
        sheet: Where to.
        area: The available area.
        results: Results from the report's head.
        most: Maximum number of metrics; those that miss their threshold take precedence.
    """
    if not results:
        draw_message(sheet, area, "The run has no metric.")
        return
    shown = list(results)
    if len(shown) > most:
        shown = sorted(shown, key=lambda name: results[name]["meets_threshold"] is not False)[:most]
    for index, name in enumerate(shown):
        middle = area.top + (index + 0.5) * min(_HEIGHT, area.height / len(shown))
        _metric(sheet, _columns(area), middle, name, results[name])


def _columns(area: Area) -> _Columns:
    if area.width > 1000:
        left = area.left
        return _Columns(left, left + 310, left + 745, left + 825, left + 1000, area.right)
    left, width = area.left, area.width
    return _Columns(left, left + width * 0.35, left + width * 0.6, left + width * 0.71, None, area.right)


def _metric(sheet: Sheet, columns: _Columns, middle: float, name: str, result: Mapping[str, Any]) -> None:
    upper, lower = middle - 9, middle + 10
    (low, high) = _range_of(result)
    numbers = Numbers(result.get("unit", ""), high)
    value, interval = result["value"], Interval.of_document(result.get("interval"))
    scale = Scale(low, high, columns.track, columns.track_end)
    taken = sheet.text((columns.track - 8, middle), numbers.tick(low), colour=MUTED, align="right")
    room = columns.track - columns.name - taken - 16
    sheet.text((columns.name, upper), name, width=room)
    sheet.text((columns.name, lower), _rows_text(result), colour=MUTED, width=room)
    room = columns.value - columns.track_end - 12
    sheet.text((columns.track_end + 8, middle), numbers.tick(high), colour=MUTED, width=room)
    _bar(sheet, scale, middle, result)
    if value is None:
        sheet.text((columns.value, middle), "not computed", colour=MUTED, width=columns.end - columns.value)
        return
    end = columns.end if columns.rule is None else columns.rule - 10
    sheet.text((columns.value, upper), numbers.text(value), bold=True, width=end - columns.value)
    if interval:
        interval_text = f"{numbers.text(interval[0])} – {numbers.text(interval[1])}"
        sheet.text((columns.value, lower), interval_text, colour=MUTED, width=end - columns.value)
    if columns.rule is not None:
        _rules(sheet, (columns.rule, upper, lower, columns.end), result, numbers)


def _rows_text(result: Mapping[str, Any]) -> str:
    asked = result["scored_count"] + result["skipped_count"] + result["error_count"]
    return f"n = {result['scored_count']:,}" + (f" of {asked:,}" if asked > result["scored_count"] else "")


def _bar(sheet: Sheet, scale: Scale, middle: float, result: Mapping[str, Any]) -> None:
    top, bottom = middle - 10, middle + 10
    sheet.rectangle(Area(scale.start, top, scale.end, bottom), Fill(TRACK))
    base = scale.at(0.0)
    if scale.low < 0:
        sheet.line([base, base], [top - 3, bottom + 3], GRID)
    if result["value"] is not None:
        left, right = sorted((base, scale.at(result["value"])))
        sheet.rectangle(Area(left, top, right, bottom), _fill(result))
    if interval := Interval.of_document(result.get("interval")):
        draw_interval(sheet, scale, middle, interval)
    for name, dashed in (("threshold", False), ("goal", True)):
        if result[name] is not None:
            place = scale.at(result[name])
            sheet.line([place, place], [top - 5, bottom + 5], INK, width=2.2, dashed=dashed)


def _fill(result: Mapping[str, Any]) -> Fill:
    return {True: GOOD, False: BAD, None: PLAIN}[result["meets_threshold"]]


def _rules(
    sheet: Sheet, places: tuple[float, float, float, float], result: Mapping[str, Any], numbers: Numbers
) -> None:
    (left, upper, lower, end) = places
    sign = RULES[result["rule"]]
    lines = []
    if result["threshold"] is not None:
        met = {True: "met", False: "missed", None: "no verdict"}[result["meets_threshold"]]
        lines.append((f"{sign} {numbers.tick(result['threshold'])} {met}", result["meets_threshold"]))
    if result["goal"] is not None:
        met = {True: "reached", False: "missed", None: "no data"}[result["meets_goal"]]
        lines.append((f"goal {sign} {numbers.tick(result['goal'])} {met}", None))
    for (line, meets), y in zip(lines, (upper, lower), strict=False):
        sheet.text((left, y), line, bold=meets is False, colour=VERMILION if meets is False else INK, width=end - left)


def _range_of(result: Mapping[str, Any]) -> tuple[float, float]:
    """Return the scale of a metric: its bounds, or else from 0 to slightly above the shown values."""
    shown = [
        result["value"],
        *(Interval.of_document(result.get("interval")) or ()),
        result["threshold"],
        result["goal"],
    ]
    values = [float(value) for value in shown if value is not None]
    least, greatest = min(values, default=0.0), max(values, default=1.0)
    (low, high) = _bounds(result) or (0.0, axis_end(greatest) if greatest > 0 else 1.0)
    if low < 0 <= least:
        low = 0.0
    return (low if least >= low else -axis_end(-least)), (high if greatest <= high else axis_end(greatest))


def _bounds(result: Mapping[str, Any]) -> tuple[float, float] | None:
    if result.get("unit") == "%":
        return 0.0, 1.0
    kind = METRICS.get(result.get("kind", ""))
    return kind.info.scale if kind is not None else None
