"""The report's own reader of filters finds what docs/filters.md says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
VECTORS: dict[str, Any] = json.loads((ROOT / "tests" / "data" / "row_filters.json").read_text(encoding="utf-8"))
SCRIPT = (ROOT / "library" / "assay" / "reports" / "formats" / "html" / "filter.js").read_text(encoding="utf-8")
ROWS = """
const open = row => row.message ? "undecided" : "no_verdict"
const verdict = row => ({true: "passed", false: "failed"}[row.passed] ?? open(row))
const outcome = row => ["error", "interrupted"].includes(row.status) ? "agent_error" : verdict(row)
const rows = arguments[1].map(row => ({
  caseId: row.case_id, repeat: row.repeat, outcome: outcome(row), status: row.status,
  category: row.category, tags: row.tags,
  latencyMs: row.latency_ms, value: metric => row.scores[metric] ?? null,
  questions: [row.question], answers: [row.answer],
}))
"""
FIND = """
const {filter, problems} = assayFilter.parse(arguments[0])
if (filter === null) return [problems, null, null]
const matches = assayFilter.matcher(filter), again = assayFilter.parse(assayFilter.format(filter)).filter
const found = rows.flatMap((row, index) => matches(row) ? [index] : [])
return [problems, found, JSON.stringify(again) === JSON.stringify(filter)]
"""
SORT = """
const order = assayFilter.parseOrder(arguments[0])
const values = {
  dataset: row => arguments[1][rows.indexOf(row)].case_index, case: row => row.caseId, latency: row => row.latencyMs
}
const value = values[order.key] ?? (row => row.value(order.key))
return assayFilter.sorted(rows, value, order.descending).map(row => rows.indexOf(row))
"""


def run(browser: Chrome, code: str, text: str) -> Any:
    """Run code of the reader on one text."""
    return browser.execute_script(SCRIPT + ROWS + code, text, VECTORS["rows"])


@pytest.mark.parametrize("vector", VECTORS["filters"], ids=lambda vector: ascii(vector["filter"]))
def test_filters_find_the_rows_of_the_vectors(browser: Chrome, vector: dict[str, Any]) -> None:
    """Each filter finds exactly its rows, and is the same after it was written."""
    assert run(browser, FIND, vector["filter"]) == [[], vector["rows"], True]


@pytest.mark.parametrize(
    ("text", "found"),
    [("rouge<=0.3", [3]), ("rouge<0.3000000005", []), ("rouge>0.2999999995", [0, 4]), ("rouge!=0.3", [0, 4])],
)
def test_values_compare_with_the_tolerance_of_thresholds(browser: Chrome, text: str, found: list[int]) -> None:
    """0.30000000000000004 is 0.3, neither below nor above a number that differs by less than 1e-9."""
    assert run(browser, FIND, text)[1] == found


@pytest.mark.parametrize("vector", VECTORS["orders"], ids=lambda vector: ascii(vector["order"]))
def test_orders_sort_the_rows_of_the_vectors(browser: Chrome, vector: dict[str, Any]) -> None:
    """Rows without a value come last in either direction, equal ones in dataset order."""
    assert run(browser, SORT, vector["order"]) == vector["rows"]


@pytest.mark.parametrize("text", VECTORS["wrong"], ids=ascii)
def test_what_is_no_filter_is_refused(browser: Chrome, text: str) -> None:
    """Each text has problems, with positions in it."""
    problems, found, _ = run(browser, FIND, text)
    assert found is None
    assert problems
    assert [problem for problem in problems if not 1 <= problem["position"] <= len(text) + 1] == []
