"""Charts can be read: no text lies on another or leaves the sheet, whatever the run is like."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.reports.charts import NAMES, drawn_document, layout_problems, summed, texts
from tests.support.reports.report_documents import HOSTILE, agent_error, ends, failed, gate, metric, row, score

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

ARABIC = "كم عدد المناقصات المطروحة حالياً في جميع المناطق؟"
FORMULA = r"$\frac{a}{b}$ x^2 a_b \alpha {}"
LONG = "a name of 500 characters without an end " * 13
MANY_METRICS: Mapping[str, Mapping[str, Any]] = {
    "exact_match": metric(0.7, unit="%", kind="exact_match", skipped_count=3),
    "quality": metric(4.2, kind="quality", threshold=4.0, interval=ends(4.0, 4.4)),
    "semantic_similarity": metric(-0.1, meets_threshold=False, goal=0.9, interval=ends(-0.3, 0.1)),
    "latency": metric(12.5, unit="s", kind="latency", threshold=30, rule="at_most", interval=ends(11.0, 14.0)),
    "tokens": metric(1_234_567.0, unit="tokens", kind="tokens", threshold=None, interval=None),
    "cost": metric(0.000012, unit="USD", kind="cost", threshold=None, interval=ends(0.00001, 0.00002)),
    "a_formula_with_a_very_long_name_that_a_person_wrote": metric(1e12, kind="formula", threshold=1e-9),
    "nothing": metric(None, scored_count=0, skipped_count=9, interval=None, meets_threshold=None, passed_count=0),
    **{f"judge_{index}": metric(index / 9, goal=0.5, meets_goal=True) for index in range(9)},
}


def rows_of(count: int, category: Callable[[int], str | None] = lambda _: None) -> list[dict[str, Any]]:
    """Rows of every outcome with latencies that have a long tail."""
    draw = random.Random(4)
    found = []
    for index in range(count):
        name = f"case-{index}"
        latency: dict[str, Any] = {"latency_ms": draw.lognormvariate(7, 1), "category": category(index)}
        match index % 7:
            case 0 | 1:
                found.append(failed(name, **latency))
            case 2:
                found.append(agent_error(name, category=category(index)))
            case 3:
                found.append(row(name, passed=None, scores={"similarity": score(None)}, **latency))
            case _:
                found.append(row(name, **latency))
    return found


def hostile() -> dict[str, Any]:
    """A run whose every name is made to break a chart."""
    names = [
        HOSTILE,
        FORMULA,
        LONG,
        ARABIC,
        "Z" + "\u0301\u0335" * 200,
        "\u202egnp.exe",
        "👩‍👩‍👧 東京 ไทย",
        "a\ud800b",
        "",
    ]
    rows = [
        failed(
            name or "-", category=name or None, question=name * 3, message=name, scores={LONG: score(0.1, passed=False)}
        )
        for name in names
    ]
    report = summed(
        rows,
        {LONG: metric(0.5), FORMULA: metric(0.4, meets_threshold=False), ARABIC: metric(), HOSTILE: metric()},
        gates=[gate(f"{name} >= 0.5", "fail") for name in names],
        reasons=[LONG],
    )
    report["run"]["name"] = LONG
    return report


def equal_rows() -> dict[str, Any]:
    """A run in which all values are equal, and the latency is 0."""
    return summed([row(f"c{index}", latency_ms=0.0, category="all") for index in range(50)])


def repeated() -> dict[str, Any]:
    """A run of each case three times."""
    rows = [row(f"c{index}", repeat=repeat, category="x") for index in range(20) for repeat in (1, 2, 3)]
    return summed(rows, pass_rate_interval=None)


RUNS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "no row": lambda: summed([], {}, overall_status="NO_DATA", gates=[], reasons=[]),
    "one row": lambda: summed([row()]),
    "all agent errors": lambda: summed([agent_error(f"c{index}") for index in range(30)], overall_status="INCOMPLETE"),
    "all equal": equal_rows,
    "nothing decided": lambda: summed([row(passed=None, latency_ms=None, scores={})] * 5, {}),
    "every outcome": lambda: summed(rows_of(300, lambda index: "abc"[index % 3])),
    "a category each": lambda: summed(rows_of(1000, lambda index: f"category {index} of a thousand")),
    "tags": lambda: summed(rows_of(20), tags=summed(rows_of(20, lambda _: "tagged"))["summary"]["categories"]),
    "repeats": repeated,
    "many metrics": lambda: summed(
        rows_of(40), MANY_METRICS, gates=[gate(f"{'g' * index} > 1") for index in range(30)]
    ),
    "hostile names": hostile,
    "unfinished": lambda: summed(rows_of(12), partial=True, total_count=40_000, overall_status="INCOMPLETE"),
    "great numbers": lambda: summed(
        rows_of(9), total_count=98_765_432, finished_count=98_765_432, passed_count=1_234_567, decided_count=98_765_432,
        agent_error_count=1_000_000
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_texts_keep_apart_and_stay_on_the_sheet(name: str, tmp_path: Path) -> None:
    """On all six charts, for runs that are empty, long, hostile or without verdicts."""
    charts = drawn_document(tmp_path, RUNS[name]())
    assert tuple(charts) == NAMES
    assert {chart: found for chart, sheet in charts.items() if (found := layout_problems(sheet))} == {}


def test_an_unfinished_run_says_so_in_the_first_line(tmp_path: Path) -> None:
    """On every chart, with how many of its rows there are."""
    for sheet in drawn_document(
        tmp_path, summed(rows_of(12), partial=True, total_count=40, finished_count=12)
    ).values():
        assert "PARTIAL: 12 of 40 rows" in texts(sheet)[:4]


def test_a_selection_stands_beside_the_verdict(tmp_path: Path) -> None:
    """A chart is shown without its report: each says over which part of the dataset the run is."""
    selection = {"selected_count": 10, "total_count": 40, "sentence": "10 of 40 cases: only the first 10"}
    for sheet in drawn_document(tmp_path, summed(rows_of(10), selection=selection)).values():
        assert selection["sentence"] in texts(sheet)[:4]


def test_a_thousand_categories_become_the_worst_twenty(tmp_path: Path) -> None:
    """The chart says how many there are beside them, and how they did."""
    rows = [(failed if index < 5 else row)(f"c{index}", category=f"k{index:04}") for index in range(1000)]
    shown = texts(drawn_document(tmp_path, summed(rows))["category_breakdown"])
    assert [name for name in shown if name.startswith("k")] == [f"k{index:04}" for index in range(20)]
    assert "and 980 more categories, with pass rates from 100.0% to 100.0%" in shown


def test_the_table_shows_failures_first_and_counts_the_rest(tmp_path: Path) -> None:
    """Failed rows, agent errors, rows without a verdict, passed rows; the chart names what it leaves out."""
    rows = [row(f"p{index}") for index in range(30)]
    rows[20:20] = [agent_error("e1"), row("n1", passed=None), failed("f1"), failed("f2")]
    shown = texts(drawn_document(tmp_path, summed(rows))["detailed_results"])
    assert [name for name in shown if name in ("f1", "f2", "e1", "n1", "p0", "p1")] == [
        "f1",
        "f2",
        "e1",
        "n1",
        "p0",
        "p1",
    ]
    note = "20 of 34 rows shown (30 passed, 2 failed, 1 agent error, 1 no verdict); results.json has all of them"
    assert note in shown
