"""A run as a JUnit file: a test case per case, and a suite for the gates.

The format has no standard; this file relies on what its readers have in common. CI servers identify a test by class
and name, count only the first of two tests with the same name, and refuse large files.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import IO, TYPE_CHECKING, Any

from assay.gates.gates import compared_text
from assay.model.answers.agent_response import AgentStatus
from assay.model.interval import Interval
from assay.reports.document.case_outcomes import CaseOutcome, Outcome, case_outcomes, gate_outcome, shown_exchange
from assay.reports.document.run_times import run_time_s
from assay.reports.words.expected_text import expected_parts
from assay.reports.words.metric_text import count_text, partial_text
from assay.reports.words.selected_cases import selection_sentence
from assay.text.xml_text import legal_xml, xml_attribute, xml_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder

    Head = Mapping[str, Any]

MAX_BYTES = 25_000_000
"""The largest size of a file; GitLab reads up to 30 MB."""
_HEAD_BYTES = 1 << 20  # reserved for the suites themselves
_TEXT_CHARS = 2_000
_MESSAGE_CHARS = 1_000
_NAME_CHARS = 1_000
_ELEMENTS = {Outcome.FAILED: "failure", Outcome.ERROR: "error", Outcome.NO_VERDICT: "skipped"}


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write junit.xml."""
    del options
    with folder.text("junit.xml") as file:
        write_junit(report, file)


class Detail(IntEnum):
    """How much of each case a file contains, in decreasing order."""

    ALL = 0
    PASSED_WITHOUT_TEXT = 1
    WITHOUT_TEXT = 2
    WITHOUT_PASSED = 3


_LEFT_OUT = {
    Detail.PASSED_WITHOUT_TEXT: "texts of cases that passed",
    Detail.WITHOUT_TEXT: "texts of all cases",
    Detail.WITHOUT_PASSED: "texts of all cases, and cases that passed",
}


@dataclass(frozen=True, slots=True)
class ComparedWithBaseline:
    """The result of a run's comparison with its baseline, as a test case.

    Args:
        name: The baseline.
        outcome: The outcome of the test case.
        message: The verdict as a sentence.
    """

    name: str
    outcome: Outcome
    message: str


def write_junit(
    report: Report, file: IO[str], compared: ComparedWithBaseline | None = None, *, max_bytes: int = MAX_BYTES
) -> None:
    """Write a report as JUnit XML.

    Args:
        report: The report.
        file: The file to write to.
        compared: The run's comparison with its baseline; None without one.
        max_bytes: The largest size of the file. Texts of passing cases are left out first, and the file says so.
    """
    plan = _plan(report, max_bytes - min(_HEAD_BYTES, max_bytes // 4))
    head = report.head
    gates = _gate_cases(head)
    suites = [("gates", gates), ("comparison", _comparison_cases(head, compared))]
    totals = plan.counts + Counter(outcome for _, cases in suites for outcome, _ in cases)
    time = f"{_run_time_s(head, plan):.3f}"
    file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    file.write(f'<testsuites name="assay" {_counts(totals, with_skipped=False)} time="{time}">\n')
    file.write(f' <testsuite name={_name(head["run"]["name"])} {_counts(plan.counts)} time="{time}"{_stamp(head)}>\n')
    file.write(_properties(report, plan))
    for case in plan.written(case_outcomes(report.rows())):
        file.write(_case(head, case, plan.detail))
    if selection := selection_sentence(head):
        # Many readers show the output of a suite but not its properties.
        file.write(f"  <system-out>{xml_text(selection)}</system-out>\n")
    file.write(" </testsuite>\n")
    for suite, cases in suites:
        if cases:
            counts = _counts(Counter(outcome for outcome, _ in cases))
            file.write(f' <testsuite name={_name(_class(head, suite))} {counts} time="0.000"{_stamp(head)}>\n')
            file.writelines(text for _, text in cases)
            file.write(" </testsuite>\n")
    file.write("</testsuites>\n")


def _comparison_cases(head: Head, compared: ComparedWithBaseline | None) -> list[tuple[Outcome, str]]:
    if compared is None:
        return []
    if compared.outcome is Outcome.PASSED:
        inside = f"   <system-out>{xml_text(compared.message)}</system-out>\n"
    else:
        inside = _complaint(compared.outcome, compared.message, compared.message)
    return [(compared.outcome, _testcase(_class(head, "comparison"), f"against {compared.name}", "", 0.0, inside))]


@dataclass(slots=True)
class _Plan:
    """The contents of the file.

    Args:
        detail: How much of each case is written.
        counts: The number of written cases by outcome.
        time_s: The agent's time in all of them, in seconds.
        left_out: The number of cases that are not written.
    """

    detail: Detail = Detail.ALL
    counts: Counter[Outcome] = field(default_factory=Counter)
    time_s: float = 0.0
    left_out: int = 0

    def written(self, cases: Iterator[CaseOutcome]) -> Iterator[CaseOutcome]:
        """Yield the cases that are written."""
        room = self.counts.total()
        for case in cases:
            if self.detail is Detail.WITHOUT_PASSED and case.outcome is Outcome.PASSED:
                continue
            if room == 0:
                return
            room -= 1
            yield case


def _plan(report: Report, room: int) -> _Plan:
    """Return how much of the cases fits into a file; reads the rows once."""
    sizes, counts, time_s = Counter[Detail](), Counter[Outcome](), 0.0
    few, few_size, is_full = Counter[Outcome](), 0, False
    for case in case_outcomes(report.rows()):
        counts[case.outcome] += 1
        time_s += case.time_s
        whole, lean = (len(_case(report.head, case, detail).encode()) for detail in (Detail.ALL, Detail.WITHOUT_TEXT))
        has_passed = case.outcome is Outcome.PASSED
        sizes += Counter(
            {
                Detail.ALL: whole,
                Detail.PASSED_WITHOUT_TEXT: lean if has_passed else whole,
                Detail.WITHOUT_TEXT: lean,
            }
        )
        if not has_passed and not is_full:
            few_size += lean
            is_full = few_size > room
            few[case.outcome] += not is_full
    for detail in (Detail.ALL, Detail.PASSED_WITHOUT_TEXT, Detail.WITHOUT_TEXT):
        if sizes[detail] <= room:
            return _Plan(detail, counts, time_s)
    return _Plan(Detail.WITHOUT_PASSED, few, time_s, counts.total() - few.total())


def _case(head: Head, case: CaseOutcome, detail: Detail) -> str:
    """Return the element of a case."""
    texts = "" if detail >= Detail.WITHOUT_TEXT else _texts(case)
    if case.outcome is Outcome.PASSED:
        shown = texts if detail is Detail.ALL else ""
        inside = f"   <system-out>{xml_text(shown)}</system-out>\n" if shown else ""
    else:
        waits = case.outcome is Outcome.ERROR and case.row["status"] == AgentStatus.INTERRUPTED
        inside = _complaint(case.outcome, case.message, texts, kind=AgentStatus.INTERRUPTED if waits else case.outcome)
    place = f" file={xml_attribute(head['test_cases_path'])}" if head["test_cases_path"] else ""
    name = _class(head, str(case.row.get("category") or ""))
    return _testcase(name, case.row["case_id"], place, case.time_s, inside)


def _testcase(class_name: str, name: str, place: str, time_s: float, inside: str) -> str:
    start = f'  <testcase classname={xml_attribute(class_name)} name={_name(name)}{place} time="{time_s:.3f}"'
    return f"{start}>\n{inside}  </testcase>\n" if inside else f"{start}/>\n"


def _complaint(outcome: Outcome, message: str, text: str, *, kind: str = "") -> str:
    element = _ELEMENTS[outcome]
    message_text = xml_attribute(_cut(message, _MESSAGE_CHARS))
    of_type = "" if element == "skipped" else f" type={xml_attribute(str(kind or outcome))}"
    # Some readers show only the text, so it repeats the message.
    whole = "\n".join(filter(None, (_cut(message, _MESSAGE_CHARS), text)))
    return f"   <{element} message={message_text}{of_type}>{xml_text(whole)}</{element}>\n"


def _texts(case: CaseOutcome) -> str:
    shown = shown_exchange(case.row)
    parts = (
        ("question", shown["question"]),
        ("answer", shown["answer"] or ""),
        ("reference", "\n".join(shown["references"])),
        *expected_parts(shown.get("expected") or {}),
    )
    text_block = "\n".join(f"{name}: {_cut(text, _TEXT_CHARS)}" for name, text in parts if text)
    return text_block.replace("[[", "[\u200b[")  # GitLab would show [[ATTACHMENT|path]] as a link to a file of the job


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _gate_cases(head: Head) -> Sequence[tuple[Outcome, str]]:
    cases = []
    place = f" file={xml_attribute(head['run']['spec_path'])}" if head["run"].get("spec_path") else ""
    named = Counter[str]()
    for gate in head["summary"]["gates"]:
        outcome, expression = gate_outcome(gate), gate["expression"]
        named[expression] += 1
        name = expression if named[expression] == 1 else f"{expression} ({named[expression]})"
        compared = compared_text(expression, gate["actual"], Interval.of_document(gate.get("interval")))
        actual = "not computed" if gate["actual"] is None else f"actual {compared}"
        texts = (f"{expression}: {actual}", gate["message"], gate.get("note"), selection_sentence(head))
        message = "; ".join(filter(None, texts))
        inside = "" if outcome is Outcome.PASSED else _complaint(outcome, message, "")
        cases.append((outcome, _testcase(_class(head, "gates"), name, place, 0.0, inside)))
    if all(outcome is Outcome.PASSED for outcome, _ in cases):
        cases += _undecided_run(head, place)
    return cases


def _undecided_run(head: Head, place: str) -> list[tuple[Outcome, str]]:
    """Return an error if a run has no verdict although no gate fails, for example after failed canaries."""
    summary = head["summary"]
    if not summary["exit_status"]:
        return []
    message = f"{summary['overall_status']}: {'; '.join(summary['reasons'])}"
    inside = _complaint(Outcome.ERROR, message, "")
    return [(Outcome.ERROR, _testcase(_class(head, "gates"), "verdict", place, 0.0, inside))]


def _properties(report: Report, plan: _Plan) -> str:
    head = report.head
    run, summary = head["run"], head["summary"]
    properties = {
        "run_id": run["run_id"],
        "dataset_id": run["dataset"]["dataset_id"],
        "assay_version": run["assay_version"],
        "verdict": summary["overall_status"],
    }
    if selection := selection_sentence(head):
        properties["selection"] = selection
    if summary.get("partial"):
        properties["partial"] = partial_text(report.row_count, summary["total_count"])
    if plan.detail is not Detail.ALL:
        number = f" ({count_text(plan.left_out, 'case')})" if plan.left_out else ""
        properties["left_out"] = f"{_LEFT_OUT[plan.detail]}{number}: the file would be too large"
    lines = (f'   <property name="{name}" value={xml_attribute(value)}/>\n' for name, value in properties.items())
    return f"  <properties>\n{''.join(lines)}  </properties>\n"


def _counts(counts: Counter[Outcome], *, with_skipped: bool = True) -> str:
    skipped = f' skipped="{counts[Outcome.NO_VERDICT]}"' if with_skipped else ""
    return f'tests="{counts.total()}" failures="{counts[Outcome.FAILED]}" errors="{counts[Outcome.ERROR]}"{skipped}'


def _class(head: Head, part: str) -> str:
    """Return the name of a class; dots separate its parts, so they are replaced within them."""
    parts = (str(head["run"]["name"]), part)
    return ".".join(["assay", *(name.replace(".", "_") for name in parts if name)])


def _name(name: str) -> str:
    """Return a name as an attribute; a name that had to be changed gets a hash, so that it stays unique."""
    shown = legal_xml(name)[:_NAME_CHARS]
    mark = f" ({hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]})" if shown != name else ""
    return xml_attribute(shown + mark)


def _stamp(head: Head) -> str:
    """Return the time at which the run was accepted, without fraction and zone, which readers do not understand."""
    return f" timestamp={xml_attribute(str(head['timestamp'])[:19])}"


def _run_time_s(head: Head, plan: _Plan) -> float:
    took = run_time_s(head)
    return plan.time_s if took is None else took
