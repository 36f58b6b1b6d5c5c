"""Annotations of a GitHub job for the failures of a run: gates first, then failed cases."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.gates.gates import compared_text
from assay.model.interval import Interval
from assay.reports.document.case_outcomes import Outcome, case_outcomes, gate_outcome, shown_exchange, worst_first
from assay.reports.words.run_commands import case_command
from assay.reports.words.selected_cases import selection_sentence
from assay.text.unsafe_text import CUT, clean, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.reports.document.report import Report

MOST_ANNOTATIONS = 10
"""GitHub shows ten errors of a step."""
_TITLE_CHARS = 120
_MESSAGE_CHARS = 500
_REASON_CHARS, _TEXT_CHARS = 200, 100


def annotation_lines(report: Report, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the workflow commands: errors for a failed run, or the selection of cases for a passed run.

    Args:
        report: The report.
        environ: Environment with GITHUB_WORKSPACE, which paths become relative to; without it they stay unchanged.
    """
    selection = selection_sentence(report.head)
    if report.head["summary"]["exit_status"] == 0:
        return [_notice(report.head, selection, environ)] if selection else []
    gates = list(itertools.islice(_gates(report.head, environ), MOST_ANNOTATIONS))
    return [*gates, *_cases(report, MOST_ANNOTATIONS - len(gates), environ)]


def comparison_line(title: str, message: str, environ: Mapping[str, str] = os.environ, *, is_failure: bool) -> str:
    """Return the workflow command for a failed or undecided comparison with the baseline."""
    return _line("", None, title, message, environ, command="error" if is_failure else "notice")


def _gates(head: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[str]:
    summary, spec = head["summary"], head["run"].get("spec_path") or ""
    missed = [
        gate
        for outcome in (Outcome.FAILED, Outcome.ERROR)
        for gate in summary["gates"]
        if gate_outcome(gate) is outcome
    ]
    if not missed:
        reasons = "; ".join(summary["reasons"]) or "the run could not be decided"
        reasons = "; ".join(filter(None, (reasons, selection_sentence(head))))
        yield _line(spec, None, f"{head['run']['name']}: {summary['overall_status']}", reasons, environ)
    for gate in missed:
        value = gate["actual"]
        compared = compared_text(gate["expression"], value, Interval.of_document(gate.get("interval")))
        actual = "not computed" if value is None else f"actual {compared}"
        title = f"{gate['source']} {gate['outcome'].upper()}: {gate['expression']}"
        message = "; ".join(filter(None, (actual, gate["message"], gate.get("note"), selection_sentence(head))))
        yield _line(spec, _line_of(spec, gate["expression"]), title, message, environ)


def _notice(head: Mapping[str, Any], selection: str, environ: Mapping[str, str]) -> str:
    title = f"{head['run']['name']}: {head['summary']['overall_status']}"
    return _line(head["run"].get("spec_path") or "", None, title, selection, environ, command="notice")


def _cases(report: Report, count: int, environ: Mapping[str, str]) -> Iterator[str]:
    if count <= 0:
        return
    failed = (case for case in case_outcomes(report.rows()) if case.outcome is Outcome.FAILED)
    for case in worst_first(failed, count):
        shown = shown_exchange(case.row)
        texts = [
            shorten(case.message, _REASON_CHARS),
            f"question: {shorten(shown['question'], _TEXT_CHARS)}",
            f"answer: {shorten(shown['answer'] or '', _TEXT_CHARS)}",
        ]
        if any(CUT in text for text in texts):
            command = case_command(report.run_id, case.row["case_id"], server=report.server)
            texts.append(f"whole: {command}")
        yield _line(report.head["test_cases_path"], None, f"case {case.row['case_id']}", "\n".join(texts), environ)


def _line_of(spec: str, expression: str) -> int | None:
    """Return the line of a gate in the spec; None if the file is missing or words the gate differently."""
    try:
        lines = Path(spec).read_text(encoding="utf-8").splitlines() if spec else []
    except (OSError, ValueError):
        return None
    return next((number for number, line in enumerate(lines, 1) if expression in line), None)


def _line(
    path: str, line: int | None, title: str, message: str, environ: Mapping[str, str], *, command: str = "error"
) -> str:
    properties = {
        "file": _relative(path, environ.get("GITHUB_WORKSPACE", "")),
        "line": "" if line is None else str(line),
        "title": shorten(title, _TITLE_CHARS),
    }
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    text = clean(message, keep_lines=True)
    return f"::{command} {shown}::{_data(text if len(text) <= _MESSAGE_CHARS else text[: _MESSAGE_CHARS - 1] + '…')}"


def _relative(path: str, workspace: str) -> str:
    """Return a path relative to the checkout, as GitHub expects."""
    absolute = os.path.abspath(path)  # noqa: PTH100 - links in the path stay as the user wrote them
    if not path or not workspace or not Path(absolute).is_relative_to(workspace):
        return path
    return os.path.relpath(absolute, workspace)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
