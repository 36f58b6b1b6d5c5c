"""Charts for tests: drawn from a report document, read back as texts, and checked for legibility."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from tests.support.reports.report_documents import document

from assay.metrics.latency import TimesFold
from assay.model.interval import Interval
from assay.model.plain import plain
from assay.reports.charts.fonts import Fonts
from assay.reports.charts.row_figures import row_figures
from assay.reports.document.report import report_of_file
from assay.reports.formats.charts_report import drawn_text, sheets
from assay.statistics.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.reports.charts.sheet import Sheet

NAMES = (
    "metrics_overview",
    "pass_fail_distribution",
    "latency_analysis",
    "category_breakdown",
    "detailed_results",
    "evaluation_dashboard",
)
_TOUCHING = 1.0  # a pixel that two boxes share is no overlap


def summed(
    rows: Sequence[Mapping[str, Any]], results: Mapping[str, Any] | None = None, **summary: Any
) -> dict[str, Any]:
    """Return the report document of some rows, with latency and categories computed from them."""
    fold, names = TimesFold(), sorted({row["category"] for row in rows if row["category"]})
    for row in rows:
        if row["status"] != "error" and row["latency_ms"] is not None:
            fold.add(row["latency_ms"])
    times = fold.result()
    latency = {
        "answer_count": times.time_count,
        "mean_ms": times.mean,
        "p50_ms": times.p50,
        "p95_ms": times.p95,
        "max_ms": times.max,
        "timeout_count": 0,
    }
    categories = [group(name, [row for row in rows if row["category"] == name]) for name in names]
    return document(rows, results, **{"latency": latency, "categories": categories, **summary})


def group(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of the rows of a category."""
    passed, failed = (sum(row["passed"] is verdict for row in rows) for verdict in (True, False))
    rate = passed / (passed + failed) if passed + failed else None
    counts = {
        "name": name,
        "row_count": len(rows),
        "passed_count": passed,
        "failed_count": failed,
        "pass_rate": rate,
        "metrics": {},
    }
    return {**counts, "pass_rate_interval": plain(Interval.of(wilson(passed, passed + failed)))}


def drawn(path: Path) -> dict[str, Sheet]:
    """Return the charts of a results.json by name."""
    with report_of_file(path) as report:
        figures = row_figures(report)
        return dict(sheets(report, figures, Fonts(drawn_text(report.head, figures))))


def drawn_document(folder: Path, found: Mapping[str, Any]) -> dict[str, Sheet]:
    """Return the charts of a document by name."""
    path = folder / "drawn.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    return drawn(path)


def texts(sheet: Sheet) -> list[str]:
    """Return the texts of a sheet in drawing order."""
    return [artist.get_text() for artist in _texts(sheet)]


def _texts(sheet: Sheet) -> list[Text]:
    return [artist for artist in sheet.figure.get_children() if isinstance(artist, Text)]


def layout_problems(sheet: Sheet) -> list[str]:
    """Return the texts that leave the sheet or overlap; empty if all are legible."""
    canvas = FigureCanvasAgg(sheet.figure)
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]  # as matplotlib declares it
    (width, height) = sheet.figure.bbox.size
    boxes = [(artist.get_text(), artist.get_window_extent(renderer)) for artist in _texts(sheet)]
    problems = [
        f"{text!r} leaves the sheet: {box.extents}"
        for text, box in boxes
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]
    for (first, one), (second, other) in itertools.combinations(boxes, 2):
        across = min(one.x1, other.x1) - max(one.x0, other.x0)
        down = min(one.y1, other.y1) - max(one.y0, other.y0)
        if across > _TOUCHING and down > _TOUCHING:
            problems.append(f"{first!r} lies on {second!r}")
    return problems
