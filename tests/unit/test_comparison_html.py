"""The page of a comparison: one file that asks for nothing, has the worst cases, and runs nothing of what they hold."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING, Any

from tests.support.reports.comparison_reports import A, B, compared, run_document, three, two
from tests.support.reports.report_documents import HOSTILE
from tests.unit.test_report_html import DATA_TYPES, Page

from assay.reports.comparison.writing import write_comparison
from assay.reports.formats.html.row_data import MAX_TEXT_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def page_of(folder: Path, documents: Sequence[Mapping[str, Any]], **settings: Any) -> tuple[str, Page]:
    """Return the text of a comparison's page, and what a browser finds in it."""
    folder.mkdir(exist_ok=True)
    with compared(folder, documents, **settings) as report:
        (path,) = write_comparison(report, folder / "out", ["html"]).written
    text = path.read_bytes().decode()
    return text, Page(text)


def test_the_page_says_what_the_other_reports_say(tmp_path: Path) -> None:
    """Verdict, difference, counts, 2 x 2 table, cases, changes and decision stand there without JavaScript, too."""
    page_text = page_of(tmp_path, two(), margin=0.05)[1].said()
    for part in (
        "B (candidate) is better than A (baseline) on accuracy: +0.30 [+0.05, +0.50] over 20 cases, p 0.0312.",
        "paired cases: 20 (0 only A, 0 only B, 0 dropped); B won 6, A won 0, 14 same",
        "noise floor (A/A): not measured",
        "accuracy B right B wrong A right 14 0 A wrong 6 0",
        "c12 count Question 12? pass_rate 0.00 1.00",
        "agent.options.prompt_file baseline.md candidate.md",
        "decision: no regression (exit status 0)",
        "The page lists all 20 cases and has the answers of 20, the worst first",
    ):
        assert part in page_text, part


def test_the_page_allows_its_own_script_and_style_alone(tmp_path: Path) -> None:
    """The policy names the hashes of one script and one style; no element has a handler, a style or an address."""
    _, page = page_of(tmp_path, three())
    code = [text for tag, each, text in page.raw if tag == "script" and each.get("type") not in DATA_TYPES]
    styles = [text for tag, _, text in page.raw if tag == "style"]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (*code, *styles)]
    (policy,) = [each["content"] for _, each in page.elements if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "unsafe" not in policy
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src")]
        assert (attributes.get("href") or "#cases") in ("#cases", "data:,")


def test_texts_become_neither_elements_nor_orders(tmp_path: Path) -> None:
    """Hostile texts in every field leave the page's elements unchanged."""
    payload = HOSTILE + "</script><img src=x><!--<script>\ud800"
    documents = two()
    for document in documents:
        document["prompt_path"] += payload
        document["config"]["agent"]["options"]["prompt_file"] += payload
        document["results"][f"quality{payload}"] = document["results"].pop("quality")
        for row in document["rows"]:
            for name in ("case_id", "category", "question"):
                row[name] += payload
            row["answer"] += payload
            row["references"] = [payload]
            row["message"] = row["message"] and row["message"] + payload
            row["scores"][f"quality{payload}"] = row["scores"].pop("quality")
    text, one = page_of(tmp_path / "hostile", documents)
    _, other = page_of(tmp_path / "harmless", two())
    assert [tag for tag, _ in one.elements] == [tag for tag, _ in other.elements]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert [data for _, each, data in one.raw if each.get("type") in DATA_TYPES and "<" in data] == []
    details = dict(one.data("texts"))
    assert details[f"c0{payload}"]["references"] == [payload]


def test_the_worst_cases_have_their_answers(tmp_path: Path) -> None:
    """Of many cases the 300 worst have texts with their differences, cut where they are long, and the page says so."""
    worse = "2" * 310 + B
    documents = [run_document("baseline", "5" * 310 + A), run_document("candidate", worse)]
    documents[1]["rows"][309]["answer"] = "word " * 5_000
    _, page = page_of(tmp_path, documents)
    details = dict(page.data("texts"))
    assert len(details) == 300
    assert set(details) < {f"c{index}" for index in range(310)}
    assert len(page.data("entries")) == 330
    assert "The page lists all 330 cases and has the answers of 300" in page.said()
    entry = page.data("entries")[5]
    assert entry == ["c5", "list", [1.0, 0.0], [1.0, 0.0], [True]]
    first, second = details["c5"]["answers"]
    assert [second["answer"][start:end] for start, end in second["differences"][1]] == ["2", "9"]
    assert [first["answer"][start:end] for start, end in second["differences"][0]] == ["5", "8"]
    assert second["message"] == "accuracy 0 < 1"
    start, length = details["c309"]["answers"][1]["answer"]
    assert (len(start), length) == (MAX_TEXT_CHARS, 25_000)
