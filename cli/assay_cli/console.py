"""The summary on the console: metrics, gates, failing cases, latency."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.metrics import METRICS
from assay.results import GateOutcome, ScoreStatus
from assay.run_verdict import criteria_of, run_verdict
from assay_cli.judging_text import canary_line, judge_reasons, judging_line, jury_lines
from assay_cli.reports.json_report import pass_rate_interval
from assay_cli.terminal import clean, shorten, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.results import CaseResult, GateResult, GroupSummary, MetricSummary, Run, RunSummary

__all__ = ["ConsoleSummary"]

_MAX_FAILING = 10
_MAX_GROUPS = 15
_MAX_REASONS = 3  # of the verdict, in the last line
_REASON_CHARS = 200  # of a judge's reasons; they wrap on a narrow terminal
_SIGNS = {"at_least": ">=", "more_than": ">", "at_most": "<="}
_MARKS = {GateOutcome.PASS: "PASS", GateOutcome.FAIL: "FAIL", GateOutcome.INCOMPLETE: "INCOMPLETE"}
_COLOURS = {"PASS": "32", "FAIL": "31", "INCOMPLETE": "33", "NO_DATA": "33", "NO_CRITERIA": "33"}
_MARK = re.compile(r"\b(?:PASS|FAIL)\b")


class ConsoleSummary:
    """Takes a run's rows as they pass and writes the summary at the end; it keeps only a few rows."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._failing: list[CaseResult] = []
        self._failing_count = 0
        self._reasons: dict[str, Counter[str]] = {}  # by metric, of rows that have no value
        self._infos = {metric.name: METRICS[metric.kind].info for metric in run.settings.metrics}
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def take(self, row: CaseResult) -> None:
        """Take one row."""
        for score in row.scores:
            if score.value is None and score.reason:
                said = score.detail.get("message") if score.status is ScoreStatus.SKIPPED else None
                self._reasons.setdefault(score.metric, Counter())[str(said or score.reason)] += 1
        if row.passed is False or row.reason:
            self._failing_count += 1
            if len(self._failing) < _MAX_FAILING:
                self._failing.append(row)

    def render(self, report: Path | None) -> str:
        """Return the summary as text; `report` is where the full report lies."""
        run, summary = self._run, self._run.summary
        assert summary is not None, "only finished runs are summarised"
        parts = [
            f"{clean(run.settings.name)}  {clean(run.run_id)}  {_rows(run, summary)}",
            self._metrics(summary),
            self._counts(summary),
        ]
        if summary.categories:
            parts.append(self._groups("category", summary.categories))
        if summary.tags:
            parts.append(self._groups("tag", summary.tags))
        if criteria := criteria_of(summary):
            parts.append(self._criteria(criteria, "gate" if summary.gates else "threshold"))
        if self._failing:
            parts.append(self._failures())
        if report is not None:
            parts.append(f"report: {clean(str(report))}")
        parts.append(self._verdict(summary))
        return "\n\n".join(parts) + "\n"

    def _metrics(self, summary: RunSummary) -> str:
        rows = [("metric", "value", "scored", "skipped", "errors", "passed", "failed", "threshold")]
        rows += [self._metric(metric, decides=not summary.gates) for metric in summary.metrics]
        return "\n".join([table(rows, self._painted), *self._not_computed(summary)])

    def _not_computed(self, summary: RunSummary) -> list[str]:
        """Return a line for each metric that no row has, with the reason that most of them give."""
        lines = []
        for metric in summary.metrics:
            if metric.n_scored == 0 and (rows := metric.n_skipped + metric.n_error):
                reasons = self._reasons.get(metric.metric, Counter()).most_common(1)
                why = f" ({clean(reasons[0][0])})" if reasons else ""
                show = f"`assay metrics show {clean(self._run_kind(metric.metric))}`"
                lines.append(
                    f"not computed  {clean(metric.metric)} on {_counted(rows)}{why}: {show} tells what it reads"
                )
        return lines and ["", *lines]

    def _run_kind(self, name: str) -> str:
        return next(metric.kind for metric in self._run.settings.metrics if metric.name == name)

    def _metric(self, metric: MetricSummary, *, decides: bool) -> tuple[str, str, str, str, str, str, str, str]:
        decided = metric.passed + metric.failed
        return (
            metric.metric,
            self._value(metric.metric, metric.value) + _survivors(metric),
            str(metric.n_scored),
            str(metric.n_skipped),
            str(metric.n_error),
            str(metric.passed) if decided else "-",
            str(metric.failed) if decided else "-",
            self._threshold(metric, decides=decides),
        )

    def _threshold(self, metric: MetricSummary, *, decides: bool) -> str:
        sign = _SIGNS[metric.rule]
        parts = []
        if metric.threshold is not None:
            reached, missed = ("PASS", "FAIL") if decides else ("reached", "missed (not gated)")
            without = "not computed" if metric.value is None else "no verdict"
            mark = {True: reached, False: missed, None: without}[metric.meets_threshold]
            parts.append(f"{sign} {metric.threshold:g} {mark}")
        if metric.target is not None:
            mark = {True: "reached", False: "missed", None: "no data"}[metric.meets_target]
            parts.append(f"target {sign} {metric.target:g} {mark}")
        return ", ".join(parts) or "-"

    def _value(self, name: str, value: float | None) -> str:
        if value is None:
            return "-"
        match self._infos[name].unit:
            case "%":
                return f"{value:.1%}"
            case "s":
                return _seconds(value)
            case "tokens":
                return f"{value:,.0f}"
            case "USD":
                return f"{value:.4g}"
        return f"{value:.4f}"

    def _groups(self, heading: str, groups: Sequence[GroupSummary]) -> str:
        names = list(self._infos)
        rows = [(heading, "rows", "passed", "failed", "pass rate", *names)]
        rows += [
            (
                shorten(group.name, 30),
                str(group.total),
                str(group.passed),
                str(group.failed),
                "-" if group.pass_rate is None else f"{group.pass_rate:.1%}",
                *(self._value(name, group.metrics.get(name)) for name in names),
            )
            for group in groups[:_MAX_GROUPS]
        ]
        more = [f"... and {len(groups) - _MAX_GROUPS} more in the report"] if len(groups) > _MAX_GROUPS else []
        return "\n".join([table(rows), *more])

    def _verdict(self, summary: RunSummary) -> str:
        """Return the notes and, in the last line, the verdict with its reasons."""
        verdict = run_verdict(summary)
        said = "; ".join(clean(reason) for reason in verdict.reasons[:_MAX_REASONS])
        more = f"; and {len(verdict.reasons) - _MAX_REASONS} more" if len(verdict.reasons) > _MAX_REASONS else ""
        notes = [clean(note) for note in verdict.notes]
        return "\n".join([*notes, f"verdict  {self._paint(verdict.status.value)}  {said}{more}"])

    def _counts(self, summary: RunSummary) -> str:
        counts = self._run.counts
        rate = f"{summary.pass_rate:.1%}" if summary.pass_rate is not None else "none decided"
        if (interval := pass_rate_interval(self._run)) is not None:
            rate += f" [{interval[0]:.1%}, {interval[1]:.1%}]"
        lines = [f"pass rate  {rate}  ({summary.passed} of {summary.decided} decided, {counts.total} rows)"]
        if summary.weighted:
            weighted = summary.weighted["pass_rate"]
            lines.append(f"weighted pass rate  {'-' if weighted is None else f'{weighted:.1%}'}")
        lines += _repeats(summary.repeats)
        if counts.agent_errors:
            lines.append(f"agent errors  {counts.agent_errors}")
        latency = summary.latency
        timeouts = f", {latency.timeouts} timed out" if latency.timeouts else ""
        if latency.count:
            lines.append(
                f"latency  mean {_seconds(latency.mean_s)}  P50 {_seconds(latency.p50_s)}  "
                f"P95 {_seconds(latency.p95_s)}  max {_seconds(latency.max_s)}  ({latency.count} rows{timeouts})"
            )
        lines += [line for metric in summary.metrics if (line := _unanswerable(metric))]
        if summary.judging is not None:
            lines += [judging_line(summary.judging, self._run.settings.judge), *jury_lines(summary.judging)]
            if summary.judging.canaries is not None:
                lines.append(canary_line(summary.judging.canaries))
        return "\n".join(lines)

    def _criteria(self, criteria: Sequence[GateResult], kind: str) -> str:
        lines = []
        for gate in criteria:
            actual = f"  actual {gate.actual:.4g}" if gate.actual is not None else ""
            reason = "".join(f"  {clean(text)}" for text in (gate.note, gate.reason) if text)
            target = {True: "  target reached", False: "  target missed", None: ""}[gate.meets_target]
            mark = self._paint(_MARKS[gate.outcome])
            lines.append(f"{kind}  {mark}  {clean(gate.expression)}{actual}{target}{reason}")
        return "\n".join(lines)

    def _failures(self) -> str:
        width = max(60, shutil.get_terminal_size((110, 24)).columns)
        names = [self._row_name(row) for row in self._failing]
        column = max(map(len, names))
        lines = [f"{self._failing_count} failing row{'s' if self._failing_count > 1 else ''}:"]
        for name, row in zip(names, self._failing, strict=True):
            lines.append(f"  {name:<{column}}  {shorten(row.reason or 'failed', width - column - 4)}")
            if row.input:
                lines.append(f"  {'':<{column}}  asked: {shorten(row.input, width - column - 11)}")
            room = max(_REASON_CHARS, width - column - 4)
            lines += [f"  {'':<{column}}  {shorten(reason, room)}" for reason in judge_reasons(row)]
        if self._failing_count > len(self._failing):
            lines.append(f"  ... and {self._failing_count - len(self._failing)} more in the report")
        return "\n".join(lines)

    def _row_name(self, row: CaseResult) -> str:
        name = shorten(row.case_id, 24)
        return f"{name} #{row.repeat_index + 1}" if self._run.settings.repeats > 1 else name

    def _painted(self, cell: str) -> str:
        return _MARK.sub(lambda found: self._paint(found[0]), cell)

    def _paint(self, mark: str) -> str:
        return f"\x1b[{_COLOURS[mark]}m{mark}\x1b[0m" if self._colour else mark


def _rows(run: Run, summary: RunSummary) -> str:
    return f"PARTIAL: {summary.row_count} of {run.counts.total} rows" if summary.partial else f"{run.counts.total} rows"


def _repeats(repeats: Mapping[str, Any]) -> list[str]:
    """Return what several runs of each case tell, in one or two lines."""
    if not repeats:
        return []
    runs = repeats["runs_per_case"]
    shown = [(name, repeats[key].get(str(runs))) for name, key in (("pass@", "pass_at_k"), ("pass^", "pass_hat_k"))]
    found = "  ".join(f"{name}{runs} {value:.1%}" for name, value in shown if value is not None)
    lines = [f"{runs} runs a case  {found}".rstrip()]
    if advice := (repeats.get("variance") or {}).get("advice"):
        lines.append(clean(advice))
    return lines


def _survivors(metric: MetricSummary) -> str:
    """Return how many rows an aggregate is over, where agent errors are not in it."""
    if not metric.n_unanswered or metric.value is None:
        return ""
    return f" ({metric.n_scored} of {metric.n_scored + metric.n_unanswered} rows)"


def _unanswerable(metric: MetricSummary) -> str:
    """Return how many questions nobody could have answered, and how many of them were declined; empty for none."""
    count, share = metric.detail.get("unanswerable"), metric.detail.get("unanswerable_share")
    if not count or share is None:
        return ""
    declined = metric.detail.get("declined", 0)
    return f"{metric.metric}  {_counted(count)} unanswerable ({share:.1%}), not in the rate: {declined} declined"


def _counted(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
