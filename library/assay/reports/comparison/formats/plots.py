"""comparison_plots.png or .svg: a sheet with values, a radar chart and differences, with intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.reports.charts.fonts import Fonts
from assay.reports.charts.frame import CONTENT, LEFT, RIGHT, draw_heading, draw_interval
from assay.reports.charts.palette import BAD, GOOD, GRID, INK, MUTED, PLAIN, SERIES, TRACK, VERMILION, Fill
from assay.reports.charts.scales import Scale, axis_end
from assay.reports.charts.sheet import LARGE, NORMAL, SMALL, TITLE, Area, Sheet
from assay.reports.comparison.words.figures import (
    figures_of,
    level_text,
    metric_text,
    p_phrase,
    run_value,
    tested_text,
    verdict_text,
)
from assay.reports.comparison.words.headline import Naming, verdict_sentence
from assay.reports.comparison.words.sentences import banners
from assay.reports.words.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.model import Estimate, MetricComparison, PairComparison
    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.folder import ReportFolder

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINE = 20.0
"""From one line of text to the next."""
_MOST_METRICS = 5
_LEAST_AXES, _MOST_AXES = 3, 8
_VALUE_ROOM = 270.0
"""Of a value with its interval, such as 0.02156 [0.02126, 0.02187]."""
_MOST_DIFFERENCES = 10
_MIDDLE = 600.0
_SPLIT = 360.0


def write(report: ComparisonReport, folder: ReportFolder, plot_format: str) -> None:
    """Write comparison_plots.png or .svg."""
    fonts = Fonts(drawn_text(report))
    sheet = draw(report, fonts)
    with folder.binary(f"comparison_plots.{plot_format}") as file:
        if plot_format == "svg":
            sheet.write_svg(
                file, f"comparison of {' and '.join(variant.run_id for variant in report.comparison.variants)}"
            )
        else:
            sheet.write_png(file)
    if fonts.missing is not None:
        folder.notes.append(fonts.missing)


def drawn_text(report: ComparisonReport) -> str:
    """Return a text that contains every character that may be drawn."""
    comparison = report.comparison
    words = ["≥≤·–…±", verdict_sentence(report), *banners(report)]
    words += [report.title(variant) for variant in comparison.variants]
    words += [metric.metric for metric in comparison.pairs[0].metrics]
    return " ".join(words)


def draw(report: ComparisonReport, fonts: Fonts) -> Sheet:
    """Return the sheet.

    Args:
        report: The comparison.
        fonts: Those of all its texts.
    """
    sheet = Sheet(fonts)
    notes = [*_frame(sheet, report)]
    axes = _axes(report)
    heading = f"Value and {level_text(report.comparison.settings.alpha)} interval over all cases of each run"
    notes += _bars(sheet, draw_heading(sheet, Area(LEFT, CONTENT.top, _MIDDLE - 40, CONTENT.bottom), heading), report)
    if len(axes) >= _LEAST_AXES:
        notes += _radar(sheet, Area(_MIDDLE, CONTENT.top, 960, _SPLIT), report, axes)
        notes += _legend(sheet, Area(1000, CONTENT.top + 10, RIGHT, _SPLIT), report)
        below = _SPLIT + 30
    else:  # the differences take the place of the radar
        notes += _legend(sheet, Area(_MIDDLE, CONTENT.top - 18, RIGHT, _SPLIT), report)
        below = CONTENT.top + 30 + _LINE * len(report.comparison.variants[: len(SERIES)])
    notes += _differences(sheet, Area(_MIDDLE, below, RIGHT, CONTENT.bottom), report)
    if notes:
        sheet.text((LEFT, 664), f"not shown: {'; '.join(notes)}", size=SMALL, colour=MUTED, width=RIGHT - LEFT)
    return sheet


def _frame(sheet: Sheet, report: ComparisonReport) -> Sequence[str]:
    comparison = report.comparison
    width = sheet.text((LEFT, 34), "Comparison", size=TITLE, bold=True)
    notes = banners(report)
    if notes:
        sheet.text(
            (LEFT + width + 16, 34), notes[0], size=NORMAL, bold=True, colour=VERMILION, width=RIGHT - LEFT - width - 16
        )
    sheet.text((LEFT, 66), verdict_sentence(report, Naming.LETTER), size=LARGE, width=RIGHT - LEFT)
    sheet.line([LEFT, RIGHT], [682, 682], GRID)
    facts = f"{report.timestamp[:10]} · Assay {comparison.assay_version} · seed {comparison.settings.seed}"
    sheet.text((RIGHT, 700), facts, colour=MUTED, align="right", width=500)
    cases = count_text(comparison.pairs[0].metric(comparison.primary).pair_count, "paired case")
    sheet.text((LEFT, 700), f"{cases} of A and B · primary metric: {comparison.primary}", colour=MUTED, width=640)
    return [f"{len(notes) - 1} more warnings"] if len(notes) > 1 else []


def _bars(sheet: Sheet, area: Area, report: ComparisonReport) -> list[str]:
    """Draw the values of each metric, one bar per run, with thresholds as lines; return the metrics without room."""
    variants = report.comparison.variants
    names = [item.metric for item in report.distinct(report.comparison.pairs[0])]
    fits = max(int(area.height / (_LINE * (len(variants) + 1.4))), 1)
    shown = names[: min(fits, _MOST_METRICS)]
    top = area.top
    for name in shown:
        estimates = [item.metrics[name] for item in variants]
        _metric_bars(sheet, Area(area.left, top, area.right, area.bottom), report, name, estimates)
        top += _LINE * (len(variants) + 1.4)
    more = len(names) - len(shown)
    return [count_text(more, "metric")] if more else []


def _metric_bars(sheet: Sheet, area: Area, report: ComparisonReport, name: str, estimates: Sequence[Estimate]) -> None:
    figures, threshold = figures_of(report, name), _threshold(report, name)
    low, high = _range(report, name, estimates, threshold)
    scale = Scale(low, high, area.left + 28, area.right - _VALUE_ROOM - 10)
    title = metric_text(report, name) + (" *" if name == report.comparison.primary else "")
    ends = f"{figures.value(low)} to {figures.value(high)}"
    taken = sheet.text((area.right - _VALUE_ROOM - 10, area.top), ends, colour=MUTED, align="right", width=200)
    sheet.text((area.left, area.top), title, bold=True, width=area.width - _VALUE_ROOM - 20 - taken)
    if threshold is not None:
        label = f"| threshold {figures.value(threshold)}"
        sheet.text((area.right - _VALUE_ROOM, area.top), label, colour=MUTED, width=_VALUE_ROOM)
    for index, (variant, estimate) in enumerate(zip(report.comparison.variants, estimates, strict=True)):
        middle = area.top + _LINE * (index + 1)
        sheet.text((area.left, middle), variant.label, bold=True, width=24)
        _bar(sheet, scale, middle, estimate, SERIES[index % len(SERIES)])
        sheet.text((area.right - _VALUE_ROOM, middle), run_value(report, name, estimate), width=_VALUE_ROOM)
    if threshold is not None:
        place = scale.at(threshold)
        bottom = area.top + _LINE * (len(estimates) + 0.4)
        sheet.line([place, place], [area.top + _LINE * 0.6, bottom], INK, width=1.8)


def _bar(sheet: Sheet, scale: Scale, middle: float, estimate: Estimate, colour: str) -> None:
    top, bottom = middle - 6, middle + 6
    sheet.rectangle(Area(scale.start, top, scale.end, bottom), Fill(TRACK))
    if estimate.value is None:
        return
    left, right = sorted((scale.at(max(scale.low, 0.0) if scale.low >= 0 else 0.0), scale.at(estimate.value)))
    sheet.rectangle(Area(left, top, right, bottom), Fill(colour))
    if estimate.interval is not None:
        draw_interval(sheet, scale, middle, estimate.interval)


def _threshold(report: ComparisonReport, name: str) -> float | None:
    """Return the threshold of a metric if all runs have the same one."""
    thresholds = {head["results"].get(name, {}).get("threshold") for head in report.heads}
    return thresholds.pop() if len(thresholds) == 1 else None


def _range(
    report: ComparisonReport, name: str, estimates: Sequence[Estimate], threshold: float | None
) -> tuple[float, float]:
    """Return the ends of a metric's axis: its bounds, or else from 0 to slightly above the shown values."""
    if (bounds := _bounds(report, name)) is not None:
        return bounds
    shown = [
        threshold,
        *(estimate.value for estimate in estimates),
        *(end for estimate in estimates for end in estimate.interval or ()),
    ]
    known = [value for value in shown if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    return (-axis_end(-low) if low < 0 else 0.0), (axis_end(high) if high > 0 else 1.0)


def _bounds(report: ComparisonReport, name: str) -> tuple[float, float] | None:
    """Return the bounds of a metric; None without bounds."""
    facts = report.facts[0].metrics.get(name)
    if facts is None or facts.unit == "%":
        return 0.0, 1.0
    if facts.scale is None:
        return None
    return (0.0 if facts.scale[0] == -1 else facts.scale[0]), facts.scale[1]


def _axes(report: ComparisonReport) -> list[str]:
    """Return the bounded metrics that every run has."""
    variants = report.comparison.variants[: len(SERIES)]
    bounded = [
        metric.metric
        for metric in report.distinct(report.comparison.pairs[0])
        if _bounds(report, metric.metric) is not None
    ]
    # Without a value in one of the runs, a metric has no point there: 0 would be one.
    return [name for name in bounded if all(variant.metrics[name].value is not None for variant in variants)]


def _radar(sheet: Sheet, area: Area, report: ComparisonReport, names: Sequence[str]) -> list[str]:
    """Draw metrics as axes, each from its least to its greatest value.

    Returns:
        What has no room.
    """
    variants = report.comparison.variants[: len(SERIES)]
    shown = names[:_MOST_AXES]
    inner = draw_heading(sheet, area, "Metrics with a bounded scale")
    across, down = (inner.left + inner.right) / 2, (inner.top + inner.bottom) / 2 + 6
    radius = min(inner.width / 2 - 60, inner.height / 2 - 26)
    angles = [2 * math.pi * index / len(shown) for index in range(len(shown))]

    def place(angle: float, share: float) -> tuple[float, float]:
        return across + radius * share * math.sin(angle), down - radius * share * math.cos(angle)

    for share in (0.5, 1.0):
        xs, ys = zip(*(place(angle, share) for angle in [*angles, 0.0]), strict=True)
        sheet.line(xs, ys, GRID)
    for angle, name in zip(angles, shown, strict=True):
        x, y = place(angle, 1.0)
        sheet.line([across, x], [down, y], GRID)
        side = "center" if abs(math.sin(angle)) < 0.3 else "left" if x > across else "right"
        room = 200.0 if side == "center" else (area.right + 34 - x if side == "left" else x - area.left)
        lower = y + (-11 if y < down else 12 if side == "center" else 0)
        sheet.text((x + {"left": 6, "right": -6, "center": 0}[side], lower), name, align=side, colour=MUTED, width=room)  # type: ignore[arg-type]
    for index, variant in enumerate(variants):
        points = []
        for angle, name in zip(angles, shown, strict=True):
            low, high = _bounds(report, name) or (0.0, 1.0)
            value = variant.metrics[name].value
            assert value is not None, "metrics without a value have no axis"
            points.append(place(angle, min(max((value - low) / (high - low), 0.0), 1.0)))
        xs, ys = zip(*[*points, points[0]], strict=True)
        sheet.line(xs, ys, SERIES[index], width=1.6)
        sheet.dots(xs[:-1], ys[:-1], SERIES[index], size=5, marker=_MARKERS[index])
    return [f"{len(names) - len(shown)} axes"] if len(names) > len(shown) else []


def _legend(sheet: Sheet, area: Area, report: ComparisonReport) -> list[str]:
    """Draw the sign, letter and name of each run; return the runs without room."""
    variants = report.comparison.variants
    for index, variant in enumerate(variants[: len(SERIES)]):
        middle = area.top + 28 + _LINE * index
        sheet.dots([area.left + 6], [middle], SERIES[index], size=6, marker=_MARKERS[index])
        sheet.text((area.left + 20, middle), variant.label, bold=True, width=24)
        sheet.text((area.left + 44, middle), report.title(variant), width=area.width - 44)
    more = len(variants) - len(SERIES)
    return [f"{count_text(more, 'run')} in the radar"] if more > 0 else []


def _differences(sheet: Sheet, area: Area, report: ComparisonReport) -> list[str]:
    """Draw differences: of two runs every metric on its own scale, of more the primary metric against the first."""
    pairs, primary = report.baseline_pairs, report.comparison.primary
    if len(pairs) == 1:
        rows = [(metric_text(report, metric.metric), pairs[0], metric) for metric in report.distinct(pairs[0])]
        heading = "Differences B - A, each on its own scale"
        ranges = [_reach([metric]) for _, _, metric in rows]
    else:
        rows = [(f"{pair.b.label} - {pair.a.label}", pair, pair.metric(primary)) for pair in pairs]
        heading = f"Differences of {primary} from A"
        ranges = [_reach([metric for *_, metric in rows])] * len(rows)
    inner = draw_heading(sheet, area, heading)
    shown = rows[:_MOST_DIFFERENCES]
    for index, (name, pair, metric) in enumerate(shown):
        middle = inner.top + 6 + _LINE * index
        _difference(sheet, inner, middle, report, name, pair, metric, ranges[index])
    more = len(rows) - len(shown)
    return [count_text(more, "difference")] if more > 0 else []


def _reach(ones: Sequence[MetricComparison]) -> float:
    """Return the length of an axis on either side of 0."""
    shown = [metric.worst_case or metric for metric in ones]
    ends = [abs(end) for metric in shown for end in (*(metric.interval or ()), metric.difference or 0.0)]
    return axis_end(max(ends)) if any(ends) else 1.0


def _difference(
    sheet: Sheet,
    area: Area,
    middle: float,
    report: ComparisonReport,
    name: str,
    pair: PairComparison,
    metric: MetricComparison,
    reach: float,
) -> None:
    figures, start, shown = figures_of(report, metric.metric), area.left + 140, metric.worst_case or metric
    scale = Scale(-reach, reach, start, start + 100)
    name = name if metric.worst_case is None else f"{name}, worst"
    sheet.text((area.left, middle), name, bold=metric.is_primary, width=132)
    sheet.rectangle(Area(scale.start, middle - 7, scale.end, middle + 7), Fill(TRACK))
    margin = report.comparison.settings.margin
    if margin is not None and metric.is_primary:
        sheet.rectangle(Area(scale.at(-margin), middle - 7, scale.at(margin), middle + 7), Fill(GRID))
    sheet.line([scale.at(0.0)] * 2, [middle - 9, middle + 9], MUTED)
    if shown.difference is None:
        sheet.text((scale.end + 10, middle), "no data", colour=MUTED, width=area.right - scale.end - 10)
        return
    if shown.interval is not None:
        draw_interval(sheet, scale, middle, shown.interval)
    sheet.dots([scale.at(shown.difference)], [middle], _fill(metric).colour, size=7, marker="D")
    alpha = report.comparison.settings.alpha
    tested = p_phrase(metric.worst_case.p) if metric.worst_case is not None else tested_text(metric, alpha)
    label = f"{figures.change(shown)}, {verdict_text(metric, pair.a.label, pair.b.label)}, {tested}"
    sheet.text((scale.end + 10, middle), label, width=area.right - scale.end - 10)


def _fill(metric: MetricComparison) -> Fill:
    return {"b_better": GOOD, "a_better": BAD}.get(metric.verdict.value, PLAIN)
