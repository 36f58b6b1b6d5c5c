"""The HTML report runs nothing of what it shows, asks for nothing, and is usable by everyone."""

from __future__ import annotations

import hashlib
import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.report_pages import ReportPage
from tests.support.reports.report_documents import agent_error, document, failed, gate, metric, row, score, written

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"  # axe-core 4.14.1, MPL-2.0
RUN_AXE = """
const done = arguments[arguments.length - 1]
axe.run(document, {resultTypes: ["violations"]}).then(found => done(found.violations.map(
  one => `${one.id}: ${one.nodes.map(node => node.target.join(" ") + " " + node.failureSummary).join("; ")}`
)), problem => done([String(problem)]))
"""
VISIT = """
const [ids, done] = arguments
const made = "img, iframe, base, meta[http-equiv=refresh], [onerror], [onload], [ontoggle], [href^=javascript]"
const drawn = () => new Promise(resolve => new MutationObserver((_, observer) => { observer.disconnect(); resolve() })
  .observe(document.documentElement, {attributeFilter: ["data-ready"]}))
const visit = async () => {
  const found = []
  for (const id of ids) {
    const drawing = drawn()
    location.hash = new URLSearchParams({case: id}).toString()
    await drawing
    const heading = document.querySelector("#case:not([hidden]) h2").textContent
    found.push([heading, document.querySelectorAll(made).length])
  }
  return found
}
visit().then(done, problem => done(String(problem)))
"""
STARTS = ("", '">', "'>", "</script>", "</style>", "</title>", "<!--", "]]>", "</textarea>", "\u202e")
ATTACKS = (
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "<svg onload='window.hit = 1'></svg>",
    "<iframe srcdoc='<script>parent.hit = 1</script>'></iframe>",
    "<a href='javascript:window.hit = 1'>here</a>",
    "<details open ontoggle='window.hit = 1'>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "{{ 7 * 7 }}{% raw %}${window.hit = 1}",
    '" onfocus="window.hit = 1" autofocus x="',
    "<body onpageshow='window.hit = 1'><base href=http://127.0.0.1:9/>",
)
PAYLOADS = ["".join(parts) for parts in itertools.product(STARTS, ATTACKS)]
KEPT = ("schema", "run_id", "created_at", "started_at", "ended_at", "status", "overall_status", "outcome", "source",
        "rule", "unit", "timestamp", "kind")  # fmt: skip


def filled(value: Any, payload: str) -> Any:
    """Return a value whose every text ends with a payload."""
    if isinstance(value, dict):
        return {key: one if key in KEPT else filled(one, payload) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, payload) for one in value]
    return value + payload if isinstance(value, str) else value


def rich_row(number: int, language: str = "") -> dict[str, Any]:
    """Return a row that has something of everything."""
    error = {"kind": "raised", "message": "no", "type": "ValueError", "traceback": "Traceback"}
    response = {
        "error": error, "attempts": [{"latency_ms": 5.0, "error": error}], "sql": "SELECT 1", "output": {"a": "b"},
        "tool_calls": [{"name": "search", "id": "1", "arguments_json": "{}", "result_json": "[]", "duration_ms": 5.0}],
        "sources": [{"title": "t", "uri": "http://x.invalid/", "content": "c", "score": 1.0, "metadata": {"a": "b"}}],
        "retrieved": [{"id": "i"}], "usage": {"input_tokens": 5}, "metadata": {"a": "b"}, "model": "m",
    }  # fmt: skip
    detail = {"reasoning": "because", "producer": "j"}
    texts = {"question": f"q{language}", "answer": f"a b{language}", "references": [f"a c{language}", "d"]}
    turn = {**texts, "turn_index": 0, "status": "success", "latency_ms": 5.0, "response": response,
            "scores": {"similarity": score(0.5, passed=False, detail=detail)}}  # fmt: skip
    scores = {"similarity": score(0.5, passed=False, reason="too_low", detail=detail)}
    common: dict[str, Any] = {
        **texts,
        "category": f"g{language}",
        "tags": [f"t{language}"],
        "response": response,
        "scores": scores,
    }
    turns: dict[str, Any] = {"turns": [turn]} if number % 2 else {}
    return failed(f"c{number}", **common, **turns)


def rich_document(rows: list[dict[str, Any]], language: str = "") -> dict[str, Any]:
    """Return a document that has something of everything."""
    group = {"row_count": 2, "passed_count": 1, "failed_count": 1, "pass_rate": 0.5, "metrics": {"similarity": 0.5}}
    found = document(
        rows,
        {"similarity": metric(goal=0.9, meets_goal=False), "latency": metric(unit="s", kind="latency")},
        categories=[{**group, "name": f"g{language}"}],
        tags=[{**group, "name": f"t{language}"}],
        gates=[gate(), gate("similarity > 1", "fail", meets_goal=False), gate("x > 1", "incomplete", actual=None)],
        overall_status="FAIL",
        reasons=[f"similarity is low{language}"],
        notes=[f"a note{language}"],
        recommendations=[f"look at this{language}"],
        partial=True,
        finished=2,
        repeats={
            "runs_per_case": 1,
            "case_count": 1,
            "undecided_count": 0,
            "rates": [
                {"k": 1, "pass_at_k": 0.5, "pass_at_k_interval": None, "pass_hat_k": 0.5, "pass_hat_k_interval": None}
            ],
            "variance": {"advice": "more"},
        },
        weighted={"pass_rate": 0.5, "metrics": {"similarity": 0.5}},
        judging={"verdict_count": 2, "asked_count": 2, "cached_count": 1,
                 "failed_count": 1, "cost_usd": 0.5, "flag_counts": {"empty": 1},
                 "fingerprints": ["f"], "jurors": [{"judge": "j", "verdict_count": 2, "means": {"similarity": 0.5}}],
                 "agreement": [{"metric": "similarity", "alpha": 0.5, "row_count": 2, "too_few_count": 0}],
                 "canaries": [{"judge": "j", "sentence": "fine", "untrusted": True}]},
    )  # fmt: skip
    found["run"] |= {"labels": {"a": "b"}, "note": f"note{language}", "name": f"run{language}"}
    return found


def assert_shown_as_text(browser: Chrome, case_ids: list[str]) -> None:
    """Open each case of the page, and check that nothing of its texts became an element that acts."""
    visited = browser.execute_async_script(VISIT, case_ids)
    assert isinstance(visited, list), visited
    assert len(visited) == len(case_ids)
    assert [heading for heading, _ in visited if heading == "Unknown case"] == []
    assert [made_count for _, made_count in visited if made_count] == []


def test_payloads_in_every_field_run_nothing(browser: Chrome, tmp_path: Path) -> None:
    """A hundred payloads, each in every text of its own row and of the run, stay text in the list and in every case."""
    assert len(PAYLOADS) >= 100
    rows = [filled(rich_row(number), payload) for number, payload in enumerate(PAYLOADS)]
    head = filled(rich_document([row()]), "".join(PAYLOADS))
    found = {**rich_document(rows), **{key: value for key, value in head.items() if key != "rows"}, "rows": rows}
    (made,) = written(tmp_path, found, "html")
    page = ReportPage(browser, made)
    assert_shown_as_text(browser, [each["case_id"] for each in rows])
    assert page.run("return window.hit ?? null") is None
    page.close()


@pytest.mark.parametrize("language", ["", " مناقصة إنارة الشوارع"], ids=["latin", "arabic"])
def test_pages_meet_the_rules_of_accessibility(browser: Chrome, tmp_path: Path, language: str) -> None:
    """No rule of axe is broken by the list, an open case or a refused filter, in light or dark, in either direction."""
    source = AXE.read_bytes()
    assert hashlib.sha256(source).hexdigest() == AXE_SHA256
    rows = [
        rich_row(0, language),
        rich_row(1, language),
        agent_error("c2"),
        row("c3", passed=None),
        row("c3", repeat=2),
    ]
    (made,) = written(tmp_path, rich_document(rows, language), "html")
    page = ReportPage(browser, made)
    page.run(source.decode())
    for state in ("case=c0", "case=c1", "case=c3", "filter=faild", ""):
        page.do(partial(page.run, "location.hash = arguments[0]", state))
        page.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")
            found = browser.execute_async_script(RUN_AXE)
            assert found == [], (state, scheme, *found)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    page.close()
