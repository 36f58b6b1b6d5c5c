"""The HTML report in a browser: finding, sorting and opening cases, by mouse, keyboard and address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver.common.keys import Keys
from tests.browser.report_pages import ReportPage
from tests.support.reports.report_documents import agent_error, document, failed, metric, row, score, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser
ERROR = {"kind": "raised", "message": "no route", "traceback": "Traceback 1"}
ODD_ID = 'a b,c/é#&"=%'


def group(name: str) -> dict[str, Any]:
    """Return a category or tag."""
    return {"name": name, "row_count": 1, "passed_count": 1, "failed_count": 0, "pass_rate": 1.0, "metrics": {}}


def rows() -> list[dict[str, Any]]:
    """Return 250 cases: each fifth failed, each tenth is about refunds, four are odd."""
    found = [
        failed(f"case-{number:03d}", number / 1000) if number % 5 == 0
        else row(f"case-{number:03d}", scores={"similarity": score(0.75 + number / 1000, passed=True)})
        for number in range(246)
    ]  # fmt: skip
    for number, one in enumerate(found):
        one["latency_ms"] = 100.0 + number
        if number % 10 == 0:
            one |= {"category": "refunds", "tags": ["hard"]}
    return [
        *found,
        agent_error("broken", "no route", response={"error": ERROR}),
        row(ODD_ID, passed=None, scores={"similarity": score(None, reason="no_reference")}),
        row("arabic", question="كم أنفقنا على إنارة الشوارع؟", answer="عذراً"),
        row("talk", turns=[
            {"turn_index": index, "question": f"turn {index}", "answer": "well", "references": [], "status": "success",
             "latency_ms": 5.0, "scores": {}, "response": {}} for index in range(2)
        ]),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of these rows."""
    found = document(rows(), {"similarity": metric()}, categories=[group("refunds"), group("")], tags=[group("hard")])
    (made,) = written(tmp_path_factory.mktemp("report"), found, "html")
    return made


@pytest.fixture
def page(browser: Chrome, path: Path) -> Iterator[ReportPage]:
    """Open the report; at the end it has asked for nothing, violated nothing and logged nothing."""
    opened = ReportPage(browser, path)
    yield opened
    opened.close()


def test_cases_are_filtered_sorted_and_paged(page: ReportPage) -> None:
    """Controls find, columns sort, pages turn; counts are those of all that was found."""
    assert page.counter == "250 cases: 198 passed, 50 failed, 1 agent error, 1 no verdict"
    assert len(page.cases) == 100
    page.choose("#filter-outcome", "failed")
    assert page.counter == "50 of 250 cases: 50 failed"
    page.choose("#filter-category", "refunds")
    assert page.counter == "25 of 250 cases: 25 failed"
    assert page.one("#filter-expression").get_attribute("value") == "failed category:refunds"
    page.click("#filter-clear")
    page.click("#case-head th:nth-child(5) button")
    assert page.one("#case-head th:nth-child(5)").get_attribute("aria-sort") == "ascending"
    assert page.cases[:2] == ["case-000", "case-001"]
    page.click("#case-head th:nth-child(5) button")
    assert page.one("#case-head th:nth-child(5)").get_attribute("aria-sort") == "descending"
    assert page.cases[0] == ODD_ID
    page.click("#pager a:last-child")
    assert page.one("#pager .here").text == "Page 3 of 3"
    assert page.cases[-1] == "broken"  # without a latency: last in both directions


def test_expressions_find_what_the_grammar_says(page: ReportPage) -> None:
    """The box takes the whole grammar, and says what is wrong with its position."""
    page.enter("#filter-expression", "similarity<0.5 latency>0.3s tag:hard")
    assert page.cases == ["case-210", "case-220", "case-230", "case-240"]
    page.enter("#filter-expression", "faild and")
    assert page.cases == []
    assert page.counter == "no cases: the filter cannot be read"
    said = page.one("#filter-problem").text
    assert said.startswith("character 1: unknown word 'faild'")
    assert said.endswith("character 7: a condition is missing after 'and'")
    page.enter("#filter-expression", "other<1")
    assert page.one("#filter-problem").text == "unknown metric 'other'; known: similarity"


def test_texts_are_searched_in_questions_and_answers(page: ReportPage) -> None:
    """A text is found in any case of its letters, in any script, in any turn."""
    page.enter("#filter-text", "أنفقنا")
    assert page.cases == ["arabic"]
    assert page.one("#filter-expression").get_attribute("value") == "text~أنفقنا"
    page.enter("#filter-text", "TURN 1")
    assert page.cases == ["talk"]
    page.enter("#filter-text", "no such text")
    assert page.counter == "0 of 250 cases"


def test_the_address_holds_all_that_is_seen(page: ReportPage) -> None:
    """A link to a state opens that state; back and forward move between states."""
    page.choose("#filter-outcome", "failed")
    page.click("#case-head th:nth-child(4) button")
    page.click("#case-lines tr:nth-child(3) a")
    assert page.opened == "case-010"
    link = page.state
    page.do(page.browser.back)
    assert page.opened == ""
    assert page.cases[:3] == ["case-000", "case-005", "case-010"]
    page.do(page.browser.back)
    page.do(page.browser.back)
    assert page.counter.startswith("250 cases")
    page.do(page.browser.forward)
    assert page.counter == "50 of 250 cases: 50 failed"
    page.open(link)
    assert page.opened == "case-010"
    assert page.one("#case .here").text == "3 of 50"
    page.click("#next")
    assert page.opened == "case-015"
    page.click("#back")
    assert page.counter == "50 of 250 cases: 50 failed"


def test_a_case_has_a_permalink_by_its_id(page: ReportPage) -> None:
    """Ids of any characters survive; an id that is not there is said to be missing."""
    page.enter("#filter-expression", "no_verdict")
    page.click("#case-lines a")
    link = page.state
    page.open(link)
    assert page.opened == ODD_ID
    page.open("case=nothing")
    assert page.opened == "Unknown case"
    assert "nothing" in page.one("#case").text
    page.click("#back")
    assert page.counter.startswith("250 cases")


def test_a_case_shows_what_was_said_and_scored(page: ReportPage) -> None:
    """Question, answer beside its reference with differences, scores, errors with traceback, and turns."""
    page.open("case=case-005")
    text = page.one("#case").text
    for part in ("similarity 0.005 < 0.75", "What is it?", "It is that.", "That.", "0.0050", "0.10 s"):
        assert part in text, part
    assert page.one("#case ins").text == "It is that"
    assert page.one("#case del").text == "That"
    page.open("case=broken")
    assert "Traceback 1" in page.one("#case").text
    page.open("case=talk")
    assert page.one("#case").text.count("Turn ") == 2
    page.open("case=arabic")
    assert page.run("return getComputedStyle(document.querySelector('#case .text')).direction") == "rtl"


def test_the_page_is_walked_by_keyboard_alone(page: ReportPage) -> None:
    """Every step, from the list to a case, its neighbours, back, and to the filter, needs no mouse; focus follows."""
    page.open("order_by=dataset")
    page.press("j", "j", Keys.ARROW_DOWN, "k")
    assert page.focused == "case-001"
    page.do(lambda: page.press(Keys.ENTER))
    assert (page.opened, page.focused) == ("case-001", "case-001")
    page.do(lambda: page.press("j"))
    page.do(lambda: page.press(Keys.ARROW_RIGHT))
    page.do(lambda: page.press("k"))
    assert page.opened == "case-002"
    page.do(lambda: page.press(Keys.ESCAPE))
    assert (page.opened, page.focused) == ("", "case-002")
    page.press("/")
    page.do(lambda: page.press("agent_error", Keys.ENTER))
    assert page.cases == ["broken"]
    page.press(Keys.ESCAPE)
    assert page.focused == "broken"
    page.open()
    page.press(Keys.TAB)
    assert page.focused == "Skip to the cases"
    page.press(Keys.ENTER)
    assert page.run("return document.activeElement.id") == "cases"
    assert page.state == ""


def test_the_last_case_of_a_page_leads_to_the_next_page(page: ReportPage) -> None:
    """Moving down turns the page, and the first case there has the focus."""
    page.open("order_by=dataset")
    page.run("[...document.querySelectorAll('.case-link')].at(-1).focus()")
    page.do(lambda: page.press("j"))
    assert (page.state, page.focused) == ("order_by=dataset&page=2", "case-100")
    page.open("order_by=dataset&case=case-099")
    page.click("#next")
    page.click("#back")
    assert (page.state, page.focused) == ("order_by=dataset&page=2", "case-100")


def test_cases_to_look_at_come_first(page: ReportPage) -> None:
    """Failed cases, then agent errors, then the rest, each in dataset order, until a reader sorts by something."""
    lines = "[...document.querySelectorAll('#case-lines tr')]"
    outcomes = page.run(f"return {lines}.map((row) => row.cells[1].textContent)")
    assert outcomes == sorted(outcomes, key=["failed", "agent error", "no verdict", "passed"].index)
    assert outcomes[0] == "failed"
    page.open("order_by=dataset")
    assert page.cases[0] == "case-000"


def test_letters_can_be_switched_off(page: ReportPage) -> None:
    """People who speak to their computer, or type by accident, need no letters that act."""
    page.one("#footer summary").click()
    page.click("#keys")
    page.press("j")
    assert page.focused != "case-000"
    assert page.state == "keys=off"


def test_names_in_the_summary_lead_to_their_cases(page: ReportPage) -> None:
    """Outcomes, categories and tags are links to what they count."""
    page.click(".legend li:nth-child(3) a")
    assert page.cases == ["broken"]
    page.open()
    page.click('[data-filter="categories"] a')
    assert page.counter == "25 of 250 cases: 25 failed"


def test_repeats_are_one_case_with_a_switch(browser: Chrome, tmp_path: Path) -> None:
    """A case of three repeats is one line with k of n; each repeat can be opened and linked."""
    repeats = [
        row("c1"),
        failed("c1", 0.25, repeat=2, answer="No."),
        row("c1", repeat=3),
        row("c2"),
        row("c2", repeat=2),
    ]
    (made,) = written(tmp_path, document(repeats), "html")
    page = ReportPage(browser, made)
    assert page.counter == "2 cases; rows: 4 passed, 1 failed"
    assert "2 of 3 passed" in page.one("#case-lines tr").text
    page.enter("#filter-expression", "failed")
    assert page.counter == "1 of 2 cases; rows: 1 failed"
    page.click("#case-lines a")
    assert "2 of 3 passed, 2 different answers" in page.one(".repeats").text
    assert page.one(".repeat[aria-current]").text.startswith("Repeat 2")
    assert "0.2500 to 0.8000" in page.one("#case").text
    page.click(".repeat:last-child")
    assert page.state == "case=c1&repeat=3&filter=failed"
    assert "It is that." in page.one("#case").text
    page.close()


def test_compressed_texts_are_read_like_others(browser: Chrome, tmp_path: Path) -> None:
    """In a large report cases open, and texts are found, as in a small one."""
    large = [row(f"c{number}", answer=f"answer {number} " + "word " * 4_000) for number in range(450)]
    (made,) = written(tmp_path, document(large), "html")
    page = ReportPage(browser, made, "case=c449")
    assert "answer 449 word" in page.one("#case").text
    assert "Cut: the text has" in page.one("#case").text
    page.open()
    page.enter("#filter-expression", 'answer~"answer 44"')
    assert page.cases == ["c44", *(f"c{number}" for number in range(440, 450))]
    page.close()


def test_narrow_screens_scroll_in_one_direction(page: ReportPage) -> None:
    """At 360 pixels nothing but tables is wider than the screen, in the list and in a case."""
    page.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    widths: Sequence[int] = []
    for state in ("", "case=broken"):
        page.open(state)
        widths = [*widths, page.run("return document.documentElement.scrollWidth")]
    page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert widths == [360, 360]


def test_without_script_the_first_cases_are_readable(browser: Chrome, path: Path) -> None:
    """The note says what is shown; controls that would do nothing are not."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(path.as_uri())
        text = browser.find_element("tag name", "body").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "Without JavaScript this page shows the first 100 of 250 cases" in text
    assert "case-099" in text
    assert "case-100" not in text
    assert "Apply" not in text
