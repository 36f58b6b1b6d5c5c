"""The HTML report: one file that asks for nothing, shows every run, and runs nothing of what a run holds."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import re
import tracemalloc
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.reports.report_documents import (
    HOSTILE,
    agent_error,
    document,
    ends,
    failed,
    gate,
    interrupted,
    metric,
    row,
    score,
    written,
)

from assay.reports.document.report import Report, lines_of_file, report_of_file
from assay.reports.folder import ReportFolder
from assay.reports.formats.html.html_report import write
from assay.reports.formats.html.page_rows import PageRows
from assay.reports.formats.html.row_data import MAX_TEXT_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GROUP = {
    "name": "refunds",
    "row_count": 2,
    "passed_count": 1,
    "failed_count": 1,
    "pass_rate": 0.5,
    "metrics": {"similarity": 0.6},
}
TURN = {"turn_index": 0, "question": "a", "answer": None, "references": [], "status": None, "scores": {}}
DATA_TYPES = ("application/json", "application/gzip")


class Page(HTMLParser):
    """What a browser finds in the file: elements with their attributes, visible texts, and what scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self._open: tuple[str, dict[str, str | None]] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element."""
        self.elements.append((tag, dict(attrs)))
        self._open = (tag, dict(attrs)) if tag in ("script", "style") else None

    def handle_data(self, data: str) -> None:
        """Take a text."""
        if self._open is None:
            self.texts.append(data)
        else:
            self.raw.append((*self._open, data))

    def handle_endtag(self, tag: str) -> None:
        """Leave a script or style."""
        self._open = None

    def data(self, kind: str) -> list[Any]:
        """Return what the data elements of one class hold, in one list."""
        found: list[Any] = []
        for tag, attributes, text in self.raw:
            if tag == "script" and attributes.get("class") == kind:
                packed = attributes.get("data-encoding") == "gzip"
                found += json.loads(gzip.decompress(base64.b64decode(text)) if packed else text)
        return found

    def said(self) -> str:
        """Return all visible texts as one line."""
        return " ".join(" ".join(self.texts).split())


def text_of(folder: Path, found: Mapping[str, Any]) -> str:
    """Return the report of a document."""
    (path,) = written(folder, found, "html")
    assert path.name == "report.html"
    return path.read_bytes().decode()


def test_the_page_allows_its_own_script_and_style_alone(tmp_path: Path) -> None:
    """The policy names the hashes of one script and one style; no attribute holds either, no address another."""
    page = Page(text_of(tmp_path, document([row(), failed("c2"), agent_error("c3")], categories=[GROUP])))
    code = [text for tag, attributes, text in page.raw if tag == "script" and attributes.get("type") not in DATA_TYPES]
    styles = [text for tag, _, text in page.raw if tag == "style"]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (*code, *styles)]
    (policy,) = [each["content"] for _, each in page.elements if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert len(hashes) == 2
    assert "unsafe" not in policy
    for _, attributes in page.elements:
        assert "style" not in attributes
        assert [name for name in attributes if name.startswith("on")] == []
        assert (attributes.get("href") or "#")[:6] in ("#", "#cases", "data:,")
        assert "src" not in attributes


def test_the_verdict_comes_first_with_its_figures(tmp_path: Path) -> None:
    """Sentence, pass rate, gates, metrics with interval and threshold, groups, latency and provenance are in words."""
    report = document(
        [row(category="refunds"), failed("c2", category="refunds")],
        {"similarity": metric(0.7995, threshold=0.7505, meets_threshold=True, error_count=3, unanswered_count=2)},
        categories=[GROUP],
        gates=[gate(), gate("similarity >= 0.9", "fail", actual=0.7995, message="too low")],
        overall_status="FAIL",
        reasons=["similarity >= 0.9 does not hold: 0.7995"],
        recommendations=["Look at refunds first."],
    )
    page_text = Page(text_of(tmp_path, report)).said()
    for part in (
        "FAIL: similarity >= 0.9 does not hold: 0.7995", "50.0% (1 of 2 decided)", "similarity >= 0.9 ✕".rstrip(" ✕"),
        "does not hold 0.7995 too low", "0.7000 to 0.9000", "≥ 0.7505",
        "3 errors, 2 of them agent errors", "Look at refunds first.",
        "refunds 50.0%", "P95 1.50 s", "manual-20261123-164111-0c86e8", "76ed26d1df2b6aff", "python agent:answer",
    ):  # fmt: skip
        assert part in page_text, part


def test_agents_that_wait_are_counted_apart(tmp_path: Path) -> None:
    """The legend and the list of cases name them, and the page has what they wait for."""
    text = text_of(tmp_path, document([row(), agent_error("c2"), interrupted("c3")]))
    page_text = Page(text).said()
    assert "agent error 2 (1 interrupted)" in page_text
    assert re.search(r'"kind": "approval", "tool": "refund"', text)


def test_an_unfinished_run_says_so_first(tmp_path: Path) -> None:
    """Title and banner begin with the share of the rows that is there."""
    page = Page(text_of(tmp_path, document([row()], partial=True, finished_count=1, total_count=5)))
    texts = [text.strip() for text in page.texts if text.strip()]
    assert texts[0].startswith("PARTIAL: 1 of 5 rows: PASS")
    assert texts[1:3] == ["Skip to the cases", "PARTIAL: 1 of 5 rows"]


ODD = {
    "no rows": document([], pass_rate=None, overall_status="NO_DATA", gates=[], reasons=[]),
    "one row": document([row()]),
    "agent errors alone": document(
        [agent_error("c1"), agent_error("c2")],
        {"similarity": metric(None, interval=None, meets_threshold=None)},
        latency={"answer_count": 0, "mean_ms": None, "p50_ms": None, "p95_ms": None, "max_ms": None},
    ),
    "equal values": document([row(f"c{index}") for index in range(5)], {"similarity": metric(interval=ends(0.8, 0.8))}),
    "zero everywhere": document(
        [row(latency_ms=0.0, scores={"cost": score(0.0)})],
        {"cost": metric(0.0, unit="USD", kind="cost", interval=ends(0, 0), threshold=None, meets_threshold=None)},
        latency={"answer_count": 1, "mean_ms": 0.0, "p50_ms": 0.0, "p95_ms": 0.0, "max_ms": 0.0},
    ),
    "below zero": document([row()], {"mine": metric(-3.0, kind="formula", interval=ends(-4, -2), threshold=-1)}),
    "no metrics": document([row(scores={}, passed=None)], {}),
    "no references": document([failed("c1", references=[], answer="")]),
    "a conversation": document([row(turns=[TURN])]),
}  # fmt: skip


@pytest.mark.parametrize("found", ODD.values(), ids=list(ODD))
def test_every_run_has_a_page(tmp_path: Path, found: dict[str, Any]) -> None:
    """Runs without rows, values or verdicts have a page that lists each row."""
    page = Page(text_of(tmp_path, found))
    assert "nan" not in page.said().lower().split()
    assert len(page.data("entries")) == len(page.data("details")) == len(found["rows"])


def hostile(value: Any) -> Any:
    """Return a document whose every text for people is hostile."""
    kept = ("schema", "run_id", "created_at", "started_at", "ended_at", "status", "overall_status", "outcome", "source",
            "rule", "timestamp", "state")  # fmt: skip
    if isinstance(value, dict):
        return {key: one if key in kept else hostile(one) for key, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return value + HOSTILE + "</script><img src=x><!--<script>\ud800" if isinstance(value, str) and value else value


def test_texts_become_neither_elements_nor_orders(tmp_path: Path) -> None:
    """Hostile texts leave the page's elements unchanged and no control character in it."""
    harmless = document(
        [row(category="a", tags=["b"]), failed("c2")], categories=[GROUP], notes=["n"], labels={"a": "b"}
    )
    (tmp_path / "other").mkdir()
    text = text_of(tmp_path, hostile(harmless))
    one, other = Page(text), Page(text_of(tmp_path / "other", harmless))
    assert [tag for tag, _ in one.elements] == [tag for tag, _ in other.elements]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert "\\u001b[31mred\\u0000 \\u202ecba <b>&" in one.said()


def test_data_is_what_it_was(tmp_path: Path) -> None:
    """The texts of a row survive, whatever they hold; none of them is written with a sign that ends its element."""
    report = document([failed("c1", question=HOSTILE, answer="</script> \U0001f600 \u2028", references=[HOSTILE])])
    page = Page(text_of(tmp_path, report))
    (entry,), (detail,) = page.data("entries"), page.data("details")
    assert entry[:7] == ["c1", 1, 1, None, [], 1234.5, [0.5]]
    assert (detail["question"], detail["answer"], detail["references"]) == (
        HOSTILE,
        "</script> \U0001f600 \u2028",
        [HOSTILE],
    )
    assert [text for tag, each, text in page.raw if each.get("type") in DATA_TYPES and "<" in text] == []


def test_large_reports_are_compressed(tmp_path: Path) -> None:
    """Above 8 MB of rows the texts are compressed, and the same as in a small report."""
    rows = [row(f"c{index}", answer=f"{index} " * 5_000) for index in range(600)]
    page = Page(text_of(tmp_path, document(rows)))
    kinds = {each.get("type") for _, each, _ in page.raw if each.get("class") == "details"}
    assert kinds == {"application/gzip"}
    assert [detail["answer"] for detail in page.data("details")] == [
        each["answer"]
        if len(each["answer"]) <= MAX_TEXT_CHARS
        else [each["answer"][:MAX_TEXT_CHARS], len(each["answer"])]
        for each in rows
    ]
    assert [entry[0] for entry in page.data("entries")] == [each["case_id"] for each in rows]


def test_repeats_are_one_line_without_script_too(tmp_path: Path) -> None:
    """Without JavaScript the first 100 cases are there, repeats folded to k of n and means of their values."""
    rows = [one for index in range(120) for one in (row(f"c{index}"), failed(f"c{index}", 0.5, repeat=2))]
    page = Page(text_of(tmp_path, document(rows)))
    page_text = page.said()
    assert "c0 What is it? 1 of 2 passed 0.6500 1.23 s" in page_text
    assert "c99 What is it?" in page_text
    assert "c100 What is it?" not in page_text
    assert "shows the first 100 of 120 cases" in page_text


def test_all_texts_share_the_room_of_a_page(tmp_path: Path) -> None:
    """Room that short rows leave goes to later ones, and the whole stays within the limit."""
    rows = [row(f"c{number}", answer="a" * (10 if number < 10 else 15_000)) for number in range(20)]
    source = tmp_path / "source.json"
    source.write_text(json.dumps(document(rows)), encoding="utf-8")
    with report_of_file(source) as report, contextlib.closing(PageRows([], tmp_path)) as page_rows:
        page_rows.read(report)
        sizes = [len(text) for text in page_rows.details(report, 100_000)]
        assert max(map(len, page_rows.details(report))) > 15_000
    assert sum(sizes) <= 100_000
    assert sizes[0] < 600
    assert 4_096 < sizes[10] < sizes[0] + 15_000


def test_rows_are_not_held(tmp_path: Path) -> None:
    """Writing 20 MB of rows needs a few MB of memory."""
    report = document([row(f"c{index}", answer="word " * 2_000) for index in range(2_000)])
    source = tmp_path / "source.json"
    source.write_text(json.dumps(report), encoding="utf-8")
    (tmp_path / "small").mkdir()
    written(tmp_path / "small", document([row()]), "html")  # compiles the templates
    del report
    lines = source.read_bytes()
    rows = json.loads(lines)["rows"]
    head = {key: value for key, value in json.loads(lines).items() if key != "rows"}
    flat = tmp_path / "rows.jsonl"
    flat.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    count, size = len(rows), flat.stat().st_size
    del lines, rows
    with flat.open("rb") as file:
        tracemalloc.start()
        write(Report(head, count, lines_of_file(file, 0, size)), ReportFolder(tmp_path / "large", "r1"), {})
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 16_000_000
