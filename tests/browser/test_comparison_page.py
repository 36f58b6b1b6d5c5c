"""The page of a comparison in a browser: counts lead to their cases, a case has both answers, and nothing else runs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.report_pages import ReportPage
from tests.browser.test_html_report_safety import AXE, PAYLOADS, RUN_AXE, VISIT
from tests.support.reports.comparison_reports import A, B, compared, run_document, three

from assay.reports.comparison.writing import write_comparison

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser
LINES = "return [...document.querySelectorAll('#case-lines th > :first-child')].map(one => one.textContent)"
MARKED = "return [...document.querySelectorAll('#case ' + arguments[0])].map(one => one.textContent)"


def page_of(browser: Chrome, folder: Path, documents: Sequence[Mapping[str, Any]]) -> ReportPage:
    """Return the open page of a comparison."""
    with compared(folder, documents) as report:
        (path,) = write_comparison(report, folder / "out", ["html"]).written
    return ReportPage(browser, path)


def test_counts_lead_to_cases_and_cases_to_both_answers(browser: Chrome, tmp_path: Path) -> None:
    """Each count of the 2 x 2 table is a link to as many cases, worst first; a case shows the words that differ."""
    page = page_of(browser, tmp_path, three())
    assert page.counter.startswith("6 of 20 compared cases: came out differently")
    assert page.run(LINES) == ["c12", "c17", "c19", "c3", "c5", "c8"]
    for pair, show, count in ((0, "both", 14), (0, "b_only", 6), (1, "a_only", 1), (1, "neither", 6), (1, "same", 19)):
        page.click(f"[data-pair='{pair}'][data-show='{show}'] a")
        assert len(page.run(LINES)) == count
        assert page.counter.startswith(f"{count} of 20 compared cases")
    page.open("show=b_only")
    page.click("#case-lines a.case-link")
    assert page.opened == "c12"
    assert (page.run(MARKED, "del"), page.run(MARKED, "ins")) == (["2", "8"], ["4", "9"])
    page.click("#next")
    assert page.opened == "c17"
    page.do(page.browser.back)
    page.click("#back")
    assert page.opened == ""
    assert page.focused == "c12"
    page.open("case=unknown&pair=77&show=nothing")
    assert page.opened == "Unknown case"
    page.close()


def test_payloads_in_every_field_run_nothing(browser: Chrome, tmp_path: Path) -> None:
    """Each payload, in every text of a case of its own and of the runs, stays text in the list and in the case."""
    marks = "51" * (len(PAYLOADS) // 2)
    documents = [run_document("baseline", marks), run_document("candidate", marks[::-1])]
    for found in documents:
        found["prompt_path"] = found["config"]["agent"]["options"]["prompt_file"] = f"p{'.'.join(PAYLOADS)}"
        found["results"][PAYLOADS[0]] = found["results"].pop("quality")
        for row, payload in zip(found["rows"], PAYLOADS, strict=False):
            for name in ("case_id", "category", "question", "answer"):
                row[name] += payload
            row["references"] = [payload]
            row["message"] = payload if row["message"] else None
            row["scores"][PAYLOADS[0]] = row["scores"].pop("quality")
    page = page_of(browser, tmp_path, documents)
    visited = browser.execute_async_script(VISIT, [row["case_id"] for row in documents[0]["rows"]])
    assert isinstance(visited, list), visited
    assert len(visited) == len(documents[0]["rows"])
    assert [heading for heading, made_count in visited if heading == "Unknown case" or made_count] == []
    assert page.run("return window.hit ?? null") is None
    page.close()


def test_a_long_id_leaves_the_other_columns_in_sight(browser: Chrome, tmp_path: Path) -> None:
    """An id and a category without a space break, so that neither is wider than half the page."""
    documents = three()
    for found in documents:
        named = next(row for row in found["rows"] if row["case_id"] == "c12")
        named |= {"case_id": "c" * 190, "category": "k" * 190}
    page = page_of(browser, tmp_path, documents)
    width = "return Math.max(...[...document.querySelectorAll('.flipped :is(th, td)')].map(one => one.offsetWidth))"
    assert "c" * 190 in page.run("return document.querySelector('.flipped').textContent")
    assert page.run(width) < page.run("return innerWidth / 2")
    page.close()


def test_pages_meet_the_rules_of_accessibility(browser: Chrome, tmp_path: Path) -> None:
    """No rule of axe is broken by figures, list and case, in light or dark, with Arabic names."""
    arabic = "مناقصة إنارة الشوارع"
    runs = [run_document(name, marks, prefix=arabic) for name, marks in (("baseline", A), (arabic, B), ("third", A))]
    page = page_of(browser, tmp_path, runs)
    for scheme, state in itertools.product(("light", "dark"), ("", f"case={arabic}c12", "case=unknown")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        page.open(state)
        page.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
        page.run(AXE.read_text("utf-8"))
        found = browser.execute_async_script(RUN_AXE)
        assert found == [], (scheme, state, *found)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    page.close()
