"""What charts say is what the document says; of many rows they show a sample, and name it."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.reports.charts import drawn_document, summed, texts
from tests.support.reports.report_documents import agent_error, ends, failed, gate, metric, row

from assay.reports.charts.row_figures import BIN_COUNT, row_figures
from assay.reports.charts.scales import Numbers, Scale, axis_end, round_up, ticks
from assay.reports.document.report import report_of_file

if TYPE_CHECKING:
    from pathlib import Path

    from assay.reports.charts.row_figures import RowFigures


def figures_of(folder: Path, rows: list[dict[str, Any]]) -> RowFigures:
    """What charts need of some rows."""
    path = folder / "results.json"
    path.write_text(json.dumps(summed(rows)), encoding="utf-8")
    with report_of_file(path) as report:
        return row_figures(report)


def test_every_latency_is_counted_once_and_little_is_kept(tmp_path: Path) -> None:
    """Of 20,000 rows: each in a part of the histogram or beyond it, a sample of dots, medians of equal windows."""
    values = [float(100 + index % 700 + (50_000 if index % 400 == 0 else 0)) for index in range(20_000)]
    figures = figures_of(tmp_path, [row(f"c{index}", latency_ms=value) for index, value in enumerate(values)]).latency
    assert (sum(figures.bins) + figures.above, figures.above) == (20_000, 50)
    assert figures.upper_s == pytest.approx(1.25)
    first_bin = [value for value in values if value / 1000 < figures.upper_s / BIN_COUNT * 3]
    assert sum(figures.bins[:3]) == len(first_bin)
    assert (figures.dot_step, len(figures.dots)) == (20, 1000)
    assert figures.dots[1] == (21, values[20] / 1000)
    assert (figures.window_rows, len(figures.windows)) == (500, 40)
    assert figures.windows[1][:2] == (501, 1000)
    assert figures.windows[1][2] == pytest.approx(statistics.median(values[500:1000]) / 1000)


def test_agent_errors_have_no_latency(tmp_path: Path) -> None:
    """The time of a call that failed says nothing about answers, and the report's percentiles leave it out, too."""
    figures = figures_of(tmp_path, [row("a"), agent_error("b", latency_ms=9000.0), row("c", latency_ms=None)])
    assert (sum(figures.latency.bins), figures.latency.above, len(figures.latency.dots)) == (1, 0, 1)
    assert [one.latency_s for one in figures.table] == [None, 1.2345, None]


def test_charts_say_the_numbers_of_the_document(tmp_path: Path) -> None:
    """Values, intervals, thresholds, percentiles, counts: as the document has them, in their units."""
    rows = [row("a", category="x"), failed("b", category="x"), agent_error("c"), row("d", passed=None)]
    results = {
        "similarity": metric(0.81, meets_threshold=True, goal=0.9, meets_goal=False),
        "hits": metric(0.5, unit="%", kind="hit_rate", threshold=0.8, meets_threshold=False, interval=ends(0.25, 0.75)),
    }
    summary = {"gates": [gate("hits > 0.8", "fail", actual=0.5)], "pass_rate_interval": ends(0.1, 0.8)}
    charts = drawn_document(tmp_path, summed(rows, results, **summary))
    overview = texts(charts["metrics_overview"])
    assert {"0.8100", "0.7000 – 0.9000", "≥ 0.75 met", "goal ≥ 0.9 missed"} <= set(overview)
    assert {"50.0%", "25.0% – 75.0%", "≥ 80% missed", "0%", "100%"} <= set(overview)
    counts = texts(charts["pass_fail_distribution"])
    assert "33.3% passed (95 % interval 10.0% to 80.0%): 1 of 3 rows with a verdict" in counts
    assert [counts[counts.index(name) + 1] for name in ("passed", "failed", "agent error", "no verdict")] == ["1"] * 4
    assert {"FAIL", "hits > 0.8", "actual 0.5"} <= set(counts)
    assert "P50 1.23 s · P95 1.23 s · mean 1.23 s · longest 1.23 s · 3 answers" in texts(charts["latency_analysis"])
    groups = texts(charts["category_breakdown"])
    assert groups[groups.index("x") + 1 :][:3] == ["50.0%", "9.5% – 90.5%", "1 of 2"]


def test_groups_without_intervals_have_none_drawn(tmp_path: Path) -> None:
    """The chart draws those of the document, which knows which rows are not independent."""
    document = summed([row("a", category="x")])
    del document["summary"]["categories"][0]["pass_rate_interval"]
    shown = texts(drawn_document(tmp_path, document)["category_breakdown"])
    assert shown[shown.index("x") + 1 :][:2] == ["100.0%", "1 of 1"]


@pytest.mark.parametrize(
    ("low", "high", "hits"),
    [(0, 1, [0, 0.25, 0.5, 0.75, 1]), (0, 7, [0, 2, 4, 6]), (1, 5, [1, 2, 3, 4, 5]), (-1, 1, [-1, -0.5, 0, 0.5, 1])],
)
def test_ticks_are_round_values_inside(low: float, high: float, hits: list[float]) -> None:
    """At most as many as are wanted."""
    assert list(ticks(low, high, 5)) == pytest.approx(hits)


@pytest.mark.parametrize(("value", "end"), [(1.47, 1.5), (5.1, 6), (0.0019, 0.002), (100, 100), (1e-9, 1e-9)])
def test_an_axis_ends_a_little_above_what_is_shown(value: float, end: float) -> None:
    """At a round value, with little left empty."""
    assert axis_end(value) == pytest.approx(end)
    assert axis_end(value) >= value * (1 - 1e-9)
    assert round_up(value) >= value * (1 - 1e-9)


def test_values_beyond_an_axis_are_at_its_end() -> None:
    """Nothing is drawn outside its place."""
    scale = Scale(0.0, 1.0, 100.0, 200.0)
    assert [scale.at(value) for value in (-5, 0, 0.5, 1, 5)] == [100, 100, 150, 200, 200]


def test_short_times_are_milliseconds() -> None:
    """Where all of a chart are below 0.1 s; otherwise seconds with two decimals, as in other reports."""
    assert Numbers("s", 0.09).text(0.0019) == "1.90 ms"
    assert Numbers("s", 0.09).text(2.108) == "2.11 s"
    assert Numbers("s", 0.2).text(0.0019) == "0.00 s"
