"""The JUnit report: a schema that CI servers share, and what each of four readers makes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.reports.report_documents import (
    HOSTILE,
    agent_error,
    document,
    failed,
    gate,
    metric,
    row,
    score,
    written,
)

from assay.reports.document.report import report_of_file
from assay.reports.formats.junit_document import write_junit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from xml.etree.ElementTree import Element

COUNTS = {"tests", "failures", "errors", "time"}
SCHEMA = {
    "testsuites": ({"name"} | COUNTS, ("testsuite",)),
    "testsuite": ({"name", "skipped", "timestamp"} | COUNTS, ("properties", "testcase")),
    "properties": (set[str](), ("property",)),
    "property": ({"name", "value"}, ()),
    "testcase": ({"name", "classname", "file", "time"}, ("skipped", "error", "failure", "system-out")),
    "failure": ({"message", "type"}, ()),
    "error": ({"message", "type"}, ()),
    "skipped": ({"message"}, ()),
    "system-out": (set[str](), ()),
}
"""By element: its attributes, and its children in their order."""


def check(element: Element) -> None:
    """Compare a tree with the schema, and counts with what is there."""
    attributes, children = SCHEMA[element.tag]
    assert set(element.keys()) <= attributes, element.attrib
    assert set(element.keys()) >= attributes - {"file"}
    order = [children.index(child.tag) for child in element]
    assert order == sorted(order)
    if element.tag == "testcase":
        assert len(element) <= 1
    if "tests" in attributes:
        assert int(element.get("tests", "")) == len(list(element.iter("testcase")))
        assert int(element.get("failures", "")) == len(list(element.iter("failure")))
        assert int(element.get("errors", "")) == len(list(element.iter("error")))
    if "timestamp" in attributes:
        assert int(element.get("skipped", "")) == len(list(element.iter("skipped")))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.get("timestamp", ""))
    if "time" in attributes:
        assert re.fullmatch(r"\d+\.\d{3}", element.get("time", ""))
    for child in element:
        check(child)


def tree_of(folder: Path, found: Mapping[str, Any]) -> Element:
    """The file, checked."""
    (path,) = written(folder, found, "junit")
    assert path.name == "junit.xml"
    tree = ElementTree.fromstring(path.read_bytes())
    check(tree)
    return tree


def gitlab(tree: Element) -> dict[str, tuple[str, str, str]]:
    """By name: class, status and output. Of two cases with one name the first counts."""
    found: dict[str, tuple[str, str, str]] = {}
    for case in [case for suite in tree.findall("testsuite") for case in suite.findall("testcase")]:
        states = [(tag, case.find(tag)) for tag in ("failure", "error", "skipped")]
        status, element = next(((tag, found) for tag, found in states if found is not None), ("success", None))
        said = (element.text or "") if element is not None else ""
        assert re.search(r"\[\[ATTACHMENT\|.+?\]\]", said + (case.findtext("system-out") or "")) is None
        found.setdefault(case.get("name", ""), (case.get("classname", ""), status, said))
    return found


def jenkins(tree: Element) -> list[tuple[str, str, str, str, str]]:
    """Package, class, name, message and text of each case; a case has a class, or its name would be cut at a dot."""
    found = []
    for case in tree.iter("testcase"):
        package, dot, name = case.attrib["classname"].rpartition(".")
        assert dot
        one = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
        message, text = (one.get("message", ""), one.text or "") if one is not None else ("", "")
        found.append((package, name, case.get("name", ""), message, text))
    return found


def publisher(tree: Element) -> list[tuple[str, str, str, float]]:
    """File, class, name and seconds, as the action publish-unit-test-result compares runs by them."""
    cases = tree.iter("testcase")
    return [(c.get("file", ""), c.get("classname", ""), c.get("name", ""), float(c.get("time", ""))) for c in cases]


def flaky(tree: Element) -> set[tuple[str, str, str]]:
    """What action-junit-report takes for one flaky test: name, class and file that come twice."""
    seen = [(case.get("name", ""), case.get("classname", ""), case.get("file", "")) for case in tree.iter("testcase")]
    return {each for each in seen if seen.count(each) > 1}


def every_outcome() -> dict[str, Any]:
    """Cases of every outcome, one with several runs."""
    broken = {"similarity": score(None, status="error", reason="embedder_down")}
    rows = [
        row("a.b", category="x.y"),
        failed("f", category="x"),
        agent_error("e"),
        row("m", passed=None, scores=broken, message="similarity could not be computed: embedder_down"),
        row("n", passed=None, scores={"similarity": score(None, reason="no_reference")}),
        row("r"),
        failed("r", repeat=2),
        failed("r", repeat=3),
    ]
    gates = [
        gate(),
        gate("mrr > 0.5", "fail", actual=0.25),
        gate("cost < 1", "incomplete", actual=None, message="none"),
    ]
    return document(rows, gates=gates)


def test_each_reader_gets_every_case_once(tmp_path: Path) -> None:
    """Four outcomes, gates beside cases, repeats folded, names whole, nothing flaky."""
    tree = tree_of(tmp_path, every_outcome())
    seen = gitlab(tree)
    assert {name: status for name, (_, status, _) in seen.items()} == {
        "a.b": "success", "f": "failure", "e": "error", "m": "error", "n": "skipped", "r": "failure",
        "pass_rate >= 0.5": "success", "mrr > 0.5": "failure", "cost < 1": "error",
    }  # fmt: skip
    assert seen["n"][2].splitlines()[0] == "similarity: the case has no reference"
    assert seen["cost < 1"][2] == "cost < 1: not computed; none"
    assert len(jenkins(tree)) == len(seen)
    assert ("assay.manual", "x_y", "a.b", "", "") in jenkins(tree)
    message = "1 of 3 runs passed: similarity 0.5 < 0.75"
    text = f"{message}\nquestion: What is it?\nanswer: It is that.\nreference: That."
    assert ("assay", "manual", "r", message, text) in jenkins(tree)
    assert ("assay.manual", "gates", "mrr > 0.5", "mrr > 0.5: actual 0.25", "mrr > 0.5: actual 0.25") in jenkins(tree)
    assert ("data/cases.json", "assay.manual", "r", 3.704) in publisher(tree)
    assert ("assay.yaml", "assay.manual.gates", "mrr > 0.5", 0.0) in publisher(tree)
    assert flaky(tree) == set()


@pytest.mark.parametrize(
    ("verdict", "source"), [("FAIL", "threshold"), ("INCOMPLETE", "threshold"), ("INCOMPLETE", "gate")]
)
def test_a_criterion_without_data_is_an_error(tmp_path: Path, verdict: str, source: str) -> None:
    """The file agrees with the verdict: what was asked for and not computed is no evidence."""
    none = gate("judge_score > 0.75", "incomplete", actual=None, message="computed on no row", source=source)
    results = {"similarity": metric(), "judge_score": metric()}
    report = document([row()], results, gates=[gate(source=source), none], overall_status=verdict)
    assert gitlab(tree_of(tmp_path, report))["judge_score > 0.75"][1] == "error"


def test_a_run_without_a_verdict_is_an_error_although_its_gates_hold(tmp_path: Path) -> None:
    """As after failed canaries, or where no row was decided: the reasons stand in a test case of their own."""
    report = document([row()], gates=[gate()], overall_status="INCOMPLETE", exit_status=3, reasons=["do not trust"])
    assert gitlab(tree_of(tmp_path, report))["verdict"][1] == "error"
    assert "verdict" not in gitlab(tree_of(tmp_path, document([row()], gates=[gate()])))


def test_suites_and_their_properties(tmp_path: Path) -> None:
    """The cases' suite is named like the spec and says which run it is; a part of a run says so."""
    tree = tree_of(tmp_path, every_outcome())
    assert [suite.get("name") for suite in tree] == ["manual", "assay.manual.gates"]
    assert tree[0].get("time") == "1.500"
    assert {one.get("name"): one.get("value") for one in tree.iter("property")} == {
        "run_id": "manual-20261123-164111-0c86e8", "dataset_id": "76ed26d1df2b6aff", "assay_version": "0.1.0",
        "verdict": "PASS",
    }  # fmt: skip
    partial = tree_of(tmp_path, document([row()], partial=True, total_count=5))
    assert [p.get("value") for p in partial.iter("property") if p.get("name") == "partial"] == ["PARTIAL: 1 of 5 rows"]


def test_a_run_without_rows_and_gates(tmp_path: Path) -> None:
    """The file is valid, and the suite of gates is absent."""
    tree = tree_of(tmp_path, document([], gates=[]))
    assert [suite.get("tests") for suite in tree] == ["0"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), min_size=1, max_size=40) | st.just(HOSTILE) | st.just("]]><!--\ufffe\x0b[["))
def test_any_text_is_read_back(tmp_path: Path, text: str) -> None:
    """Whatever characters a text has, the file is XML, and readers get it but for those that XML forbids."""
    report = document([failed(text, question=text, answer=text, message=text, category=text, references=[text])])
    report["run"] |= {"name": text, "assay_version": text}
    report["test_cases_path"] = text
    tree = tree_of(tmp_path, report)
    (case,) = tree[0].findall("testcase")
    legal = re.sub(
        "[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]", "\ufffd", text
    )
    assert case[0].get("message") == legal
    assert (case[0].text or "").startswith(legal + "\nquestion: " + legal.replace("[[", "[\u200b["))
    assert str(case.get("name")).startswith(legal)


def test_names_that_xml_would_make_alike_stay_apart(tmp_path: Path) -> None:
    """Cases whose ids differ in forbidden characters alone, and very long ids, are not taken for one."""
    tree = tree_of(tmp_path, document([row("a\x01"), row("a\x02"), row("l" * 5000 + "1"), row("l" * 5000 + "2")]))
    assert len(gitlab(tree)) == 5
    assert flaky(tree) == set()


@pytest.mark.parametrize(
    ("max_bytes", "left_out", "names"),
    [
        (3000, "texts of cases that passed", {"p0", "p1", "f"}),
        (1500, "texts of all cases", {"p0", "p1", "f"}),
        (400, "texts of all cases, and cases that passed (2 cases)", {"f"}),
    ],
)
def test_a_large_file_loses_the_texts_of_passing_cases_first(
    tmp_path: Path, max_bytes: int, left_out: str, names: set[str]
) -> None:
    """Above the limit texts go, then cases that passed; what is left agrees with its counts, and the file says so."""
    text = "x" * 900
    rows = [row("p0", answer=text), failed("f", answer=text), row("p1", answer=text)]
    source = tmp_path / "source.json"
    (whole,) = written(tmp_path, document(rows, gates=[]), "junit")
    assert "left_out" not in whole.read_text("utf-8")
    target = tmp_path / "limited.xml"
    with report_of_file(source) as report, target.open("w", encoding="utf-8") as file:
        write_junit(report, file, max_bytes=max_bytes)
    tree = ElementTree.fromstring(target.read_bytes())
    check(tree)
    assert {case.get("name") for case in tree.iter("testcase")} == names
    (said,) = [one.get("value") for one in tree.iter("property") if one.get("name") == "left_out"]
    assert said == f"{left_out}: the file would be too large"
