"""A run in at most 60 lines of Markdown, for pull requests and CI job summaries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.comparison.decision import NO_REGRESSION
from assay.gates.gates import compared_text
from assay.metrics.core.embedding import vectors_text
from assay.model.answers.interrupts import interrupted_note
from assay.model.interval import Interval
from assay.reports.document.case_outcomes import CaseOutcome, Outcome, case_outcomes, shown_exchange, worst_first
from assay.reports.document.run_times import run_time_s
from assay.reports.words.metric_text import count_text, latency_s, partial_text, threshold_text, value_text
from assay.reports.words.selected_cases import selection_sentence
from assay.text.markdown_text import markdown_code, markdown_prose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from assay.comparison.decision import ComparisonDecision
    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder

    Head = Mapping[str, Any]

MAX_CHARS = 60_000
"""Of a comment; GitHub takes 65,536."""
_MAX_LINES = 60
_MOST_WORST = 20
_WORST_LINES = 7  # of failed cases, beside their rows
_MOST_GATES = 6
_MOST_METRICS = 8
_MOST_ERRORS = 3
_MOST_SENTENCES = 3
_MOST_ERROR_KINDS = 1_000  # that are counted
_SENTENCE_CHARS = 400
_TEXT_CHARS = 160
_NAME_CHARS = 80
_URGENCY = ("fail", "incomplete", "pass")


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write report.md."""
    del options
    with folder.text("report.md") as file:
        file.write(markdown_document(report))


def markdown_document(
    report: Report, decision: ComparisonDecision | None = None, *, max_bytes: int | None = None
) -> str:
    """Return a report as Markdown.

    Args:
        report: The report.
        decision: What the run's comparison with its baseline comes to; None without one.
        max_bytes: Of the text in UTF-8 at most, which is cut at rows; None for the limit of comments alone.
    """
    findings = _Findings()
    worst = worst_first(findings.pass_on(case_outcomes(report.rows())), _MOST_WORST)
    head = report.head
    start = [*_opening(report, decision), *_gates(head), *_metrics(head)]
    end = [*_errors(findings), *_recommendations(head), *_effort(head), *_details(head)]
    room = max(0, _MAX_LINES - len(start) - len(end) - _WORST_LINES)
    for count in range(min(len(worst), room), -1, -1):
        lines = [*start, *_worst(worst[:count], findings.failed), *end]
        text = "\n".join(lines) + "\n"
        if len(text) <= MAX_CHARS and (max_bytes is None or len(text.encode()) <= max_bytes):
            return text
    return ""  # not even the verdict has room


@dataclass(slots=True)
class _Findings:
    """Counts cases while they pass.

    Args:
        failed: How many failed.
        errors: How many have an error, by what it says.
        more_errors: How many have an error of a further kind.
    """

    failed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    more_errors: int = 0

    def pass_on(self, cases: Iterable[CaseOutcome]) -> Iterator[CaseOutcome]:
        """Count the cases and yield those that failed."""
        for case in cases:
            if case.outcome is Outcome.FAILED:
                self.failed += 1
                yield case
            elif case.outcome is Outcome.ERROR:
                message = str(case.row.get("message") or case.message)
                if message in self.errors or len(self.errors) < _MOST_ERROR_KINDS:
                    self.errors[message] += 1
                else:
                    self.more_errors += 1


def _opening(report: Report, decision: ComparisonDecision | None) -> Iterator[str]:
    head, summary = report.head, report.head["summary"]
    partial = partial_text(report.row_count, summary["total_count"]) + ", " if summary.get("partial") else ""
    verdict = summary["overall_status"]
    against = decision.word.upper() if decision is not None and decision.exit_status != NO_REGRESSION else ""
    word = against if against and summary["exit_status"] == 0 else verdict  # what the exit status comes from
    yield f"## {partial}{word}: {markdown_code(head['run']['name'], _NAME_CHARS) or 'run'}"
    yield ""
    if decision is not None and against:
        yield f"Against the baseline: {against} ({_sentences(decision.reasons)}). The run by itself: {verdict}."
        yield ""
    selection = selection_sentence(head)
    # Markdown takes a number at the start of a text for one of a list, and would have it escaped.
    part = [f"**{markdown_prose(f'over {selection}', _SENTENCE_CHARS)}**"] if selection else []
    counts = [_pass_rate(summary), *part]
    if summary["agent_error_count"]:
        waits = interrupted_note(summary.get("interrupted_count", 0))
        counts.append(f"{count_text(summary['agent_error_count'], 'agent error')}{waits}")
    if undecided := report.row_count - summary["decided_count"]:
        counts.append(f"{count_text(undecided, 'row')} without a verdict")
    yield ", ".join(counts)
    for sentences in (
        summary["reasons"],
        [note for note in summary["notes"] if not _is_said(note, summary["reasons"])],
    ):
        if sentences:
            yield ""
            yield _sentences(sentences)


def _is_said(note: str, reasons: Sequence[str]) -> bool:
    """Return whether a reason of the verdict begins with a note."""
    return any(reason.startswith(note) for reason in reasons)


def _sentences(sentences: Sequence[str]) -> str:
    shown = "; ".join(markdown_prose(sentence, _SENTENCE_CHARS) for sentence in sentences[:_MOST_SENTENCES])
    more = len(sentences) - _MOST_SENTENCES
    return shown + (f"; and {more} more" if more > 0 else "")


def _pass_rate(summary: Mapping[str, Any]) -> str:
    if summary["pass_rate"] is None:
        return "no row has a verdict"
    interval = Interval.of_document(summary.get("pass_rate_interval"))
    known = f" [{interval[0]:.1%}, {interval[1]:.1%}]" if interval else ""
    return (
        f"**Pass rate {summary['pass_rate']:.1%}**{known} "
        f"({summary['passed_count']:,} of {count_text(summary['decided_count'], 'row')})"
    )


def _gates(head: Head) -> list[str]:
    gates = sorted(head["summary"]["gates"], key=lambda gate: _URGENCY.index(gate["outcome"]))
    lines = []
    for gate in gates[:_MOST_GATES]:
        compared = compared_text(gate["expression"], gate["actual"], Interval.of_document(gate.get("interval")))
        actual = "–" if gate["actual"] is None else compared
        goal = {True: "goal reached", False: "goal missed", None: ""}[gate.get("meets_goal")]
        notes = "; ".join(markdown_code(text, _TEXT_CHARS) for text in (gate["message"], gate.get("note")) if text)
        note = ", ".join(filter(None, (goal, notes)))
        outcome = gate["outcome"].upper()
        lines.append(f"| {outcome} | {markdown_code(gate['expression'], _TEXT_CHARS)} | {actual} | {note} |")
    heading = head["summary"]["gates"][0]["source"] if gates else ""
    return _table(f"|  | {heading} | actual | note |", "|---|---|---:|---|", lines, len(gates), f"{heading}s")


def _metrics(head: Head) -> list[str]:
    lines = []
    for name, metric in list(head["results"].items())[:_MOST_METRICS]:
        unit = metric.get("unit", "")
        interval = Interval.of_document(metric.get("interval"))
        known = f"{value_text(unit, interval[0])} to {value_text(unit, interval[1])}" if interval else "–"
        decided = metric["passed_count"] + metric["failed_count"]
        cells = (
            markdown_code(name, _NAME_CHARS),
            value_text(unit, metric["value"]),
            known,
            threshold_text(metric).replace("missed", "**missed**") or "–",
            f"{metric['scored_count']:,}",
            f"{metric['skipped_count']:,}",
            f"{metric['error_count']:,}",
            f"{metric['passed_count']:,}" if decided else "–",
            f"{metric['failed_count']:,}" if decided else "–",
        )
        lines.append(f"| {' | '.join(cells)} |")
    heading = "| metric | value | 95 % interval | threshold | scored | skipped | errors | passed | failed |"
    return _table(heading, "|---|---:|---|---|---:|---:|---:|---:|---:|", lines, len(head["results"]), "metrics")


def _table(heading: str, line: str, rows: Sequence[str], total: int, things: str) -> list[str]:
    """Return a table with a blank line before it; nothing for a table without rows."""
    if not rows:
        return []
    left = total - len(rows)
    more = ["", f"and {left:,} more {things if left > 1 else things.removesuffix('s')}"] if left > 0 else []
    return ["", heading, line, *rows, *more]


def _worst(cases: Sequence[CaseOutcome], failed: int) -> list[str]:
    if not failed:
        return []
    rows = [f"| {' | '.join(markdown_code(text, _TEXT_CHARS) for text in _cells(case))} |" for case in cases]
    more = ["", f"and {failed - len(cases):,} more"] if failed > len(cases) else []
    table = ["", "| case | why | question | answer |", "|---|---|---|---|", *rows] if rows else []
    return ["", f"### {count_text(failed, 'failed case')}, worst first", *table, *more]


def _cells(case: CaseOutcome) -> tuple[str, str, str, str]:
    shown = shown_exchange(case.row)
    return case.row["case_id"], case.message, shown["question"], shown["answer"] or ""


def _errors(findings: _Findings) -> list[str]:
    if not findings.errors:
        return []
    shown = findings.errors.most_common(_MOST_ERRORS)
    count = findings.errors.total() + findings.more_errors
    lines = [f"- {number:,} × {markdown_code(message, _TEXT_CHARS)}" for message, number in shown]
    if more := count - sum(number for _, number in shown):
        lines.append(f"- {count_text(more, 'more case')}")
    return ["", f"### {count_text(count, 'case')} with errors", "", *lines]


def _recommendations(head: Head) -> list[str]:
    recommendations = head["summary"]["recommendations"]
    lines = [f"- {markdown_prose(sentence, _SENTENCE_CHARS)}" for sentence in recommendations[:_MOST_SENTENCES]]
    more = [f"- and {len(recommendations) - _MOST_SENTENCES} more"] if len(recommendations) > _MOST_SENTENCES else []
    return ["", "### Recommendations", "", *lines, *more] if recommendations else []


def _effort(head: Head) -> list[str]:
    """Return time and cost, in one line."""
    summary, parts = head["summary"], []
    if (took := run_time_s(head)) is not None:
        parts.append(f"run {took:.2f} s")
    latency = summary["latency"]
    if latency["answer_count"]:
        shown = (("mean", "mean"), ("P50", "p50"), ("P95", "p95"), ("max", "max"))
        parts.append(
            "latency " + ", ".join(f"{name} {value_text('s', latency_s(latency, key))}" for name, key in shown)
        )
    if latency.get("timeout_count"):
        parts.append(f"{latency['timeout_count']:,} timed out")
    if judging := summary["judging"]:
        cost = judging.get("cost_usd")
        money = "" if cost is None else f", {cost:.4f} USD"
        parts.append(f"{count_text(judging['verdict_count'], 'verdict')}: {judging['asked_count']:,} asked, "
                     f"{judging['cached_count']:,} from the cache{money}")  # fmt: skip
    lines = [f"Time and cost: {'; '.join(parts)}"] if parts else []
    lines += [
        f"Calibration of the judge: {markdown_prose(sentence)}"
        for sentence in (judging or {}).get("calibration_messages", ())
    ]
    return [line for line_of_effort in lines for line in ("", line_of_effort)]


def _embedders(head: Head) -> str:
    """Return the embedding models behind the scores, with what says how their vectors were made, each once."""
    models = (model for result in head["results"].values() for model in result.get("models") or ())
    names = (
        " ".join(
            filter(
                None,
                (
                    model["model"],
                    model["revision"][:12],
                    model.get("precision"),
                    model.get("engine"),
                    vectors_text(model),
                ),
            )
        )
        for model in models
    )
    return ", ".join(dict.fromkeys(names))


def _details(head: Head) -> list[str]:
    run, agent, dataset = head["run"], head["config"]["agent"], head["run"]["dataset"]
    labels = ", ".join(f"{key}={value}" for key, value in (run.get("labels") or {}).items())
    facts = (
        ("run", run["run_id"]),
        ("created", run["created_at"]),
        ("spec", run.get("spec_path") or ""),
        ("dataset", f"{dataset['name']}, {count_text(dataset['case_count'], 'case')}, {dataset['dataset_id']}"),
        ("agent", f"{agent['adapter']} {agent['target']}".strip()),
        ("embeddings", _embedders(head)),
        ("labels", labels),
        ("note", run.get("note") or ""),
        ("Assay", run["assay_version"]),
    )
    shown = "; ".join(f"{name} {markdown_code(text, _TEXT_CHARS)}" for name, text in facts if text.strip())
    return ["", "<details><summary>Provenance</summary>", "", shown, "", "</details>"]
