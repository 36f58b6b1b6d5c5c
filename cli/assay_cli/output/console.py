"""The console summary: metrics, gates, latency, failing rows, recommendations and the verdict."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from assay.filters.row_filter import FAILING_ROWS
from assay.filters.row_text import is_comparable
from assay.gates.gates import compared_text
from assay.gates.run_verdict import is_gated
from assay.metrics.core.info import RULE_SIGNS
from assay.metrics.latency import RANGES
from assay.model.answers.interrupts import interrupted_note
from assay.model.run import GateOutcome
from assay.model.views import RowView
from assay.reports.words.calibration_text import calibration_sentences
from assay.reports.words.judging_text import canary_line, judging_line, jury_lines
from assay.reports.words.metric_text import (
    Uncomputed,
    bound_text,
    count_text,
    partial_text,
    seconds_text,
    value_text,
)
from assay.reports.words.recommendations import recommendations
from assay.reports.words.run_description import selection_line
from assay.reports.words.selected_cases import selected_cases
from assay.text.unsafe_text import clean, shorten, without_commands
from assay_cli.output.failing_rows import FailingRows
from assay_cli.output.terminal import cut_width, painter, table
from assay_cli.resume_hint import pasted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

    from assay.client.client import Client
    from assay.model.run import GateResult, GroupSummary, MetricSummary, RepeatSummary, RowResult, Run, RunSummary

WHOLE_RUN_ROWS = 2_000
"""Above this size, a run is not read whole: 175,000 failing rows took 10 s of CPU for 5 kB of text."""
_FIRST_ROWS = 1_000
_FIRST_ANSWERS = 10
_ERRORS = "agent_error,undecided"
_MAX_GROUPS = 15
_MAX_REASONS = 3  # reasons of the verdict in the last line
_MARKS = {GateOutcome.PASS: "PASS", GateOutcome.FAIL: "FAIL", GateOutcome.INCOMPLETE: "INCOMPLETE"}
_MARK = re.compile(r"\b(?:PASS|FAIL)\b")


class ConsoleSummary:
    """Collects what the summary needs from a stream of rows, and renders it; it keeps only a few rows.

    Args:
        run: The run.
        out: Stream of the summary; None for stdout.
        spec: Path of the spec, for suggested commands; None if only the run is known.
    """

    def __init__(self, run: Run, out: TextIO | None = None, *, spec: Path | None = None) -> None:
        out = out if out is not None else sys.stdout
        self.run = run
        """The run. Rows may be added before it has a summary, which rendering needs."""
        self._spec = spec
        self._failing = FailingRows(run, cut_width(out))
        self._uncomputed = Uncomputed()
        self._paint = painter(out)

    @property
    def needs_all_rows(self) -> bool:
        """Whether the summary also lists rows that passed but that a metric skipped."""
        summary = self.run.summary
        return summary is not None and any(metric.skipped_count or metric.error_count for metric in summary.metrics)

    def take(self, row: RowResult) -> None:
        """Add a row."""
        self._uncomputed.take(row)
        self._failing.take(row)

    async def read(self, client: Client, *, whole_rows: int = WHOLE_RUN_ROWS) -> None:
        """Add stored rows: all that the summary needs or, for a large run, the first rows and the counts of all.

        Args:
            client: Client of the orchestrator.
            whole_rows: Maximum number of rows of a run that is read whole.
        """
        run, summary = self.run, self.run.summary
        if summary is None or run.counts.total_count <= whole_rows:
            async for row in client.list_rows(run.run_id, where="" if self.needs_all_rows else FAILING_ROWS):
                self.take(row)
            return
        counts = []
        for where, page_size in (("failed", _FIRST_ANSWERS), (_ERRORS, _FIRST_ROWS)):
            page = await client.row_page(run.run_id, where=where, page_size=page_size, include_total_count=True)
            counts.append(page.total_count or 0)
            for row in page.results:
                self._failing.take(row)
        failed = summary.decided_count - summary.passed_count
        self._failing.count(failed, sum(counts) - failed, errors=counts[1])
        for metric in summary.metrics:
            if (metric.skipped_count or metric.error_count) and is_comparable(metric.metric):
                await self._read_uncomputed(client, metric.metric)

    async def _read_uncomputed(self, client: Client, metric: str) -> None:
        """Add the first rows on which a metric has no value."""
        page = await client.row_page(
            self.run.run_id, where=f"{metric}==none", page_size=_FIRST_ROWS, view=RowView.BASIC
        )
        for row in page.results:
            self._uncomputed.take(row, only=metric)
        if page.next_page_token:
            self._uncomputed.partial[metric] = len(page.results)

    def render(self, *, with_verdict: bool = True) -> str:
        """Return the summary as text, on request with the verdict in its last line."""
        run, summary = self.run, self.run.summary
        assert summary is not None, "only finished runs are summarised"
        head = f"{clean(run.spec.name)}  {clean(run.run_id)}  {_rows(run, summary)}"
        parts = [
            "\n".join(filter(None, [head, selection_line(run)])),
            *self._metrics(summary),
            self._counts(summary),
        ]
        if summary.categories:
            parts.append(self._groups("category", summary.categories, summary.omitted_category_count, summary))
        if summary.tags:
            parts.append(self._groups("tag", summary.tags, summary.omitted_tag_count, summary))
        if summary.gates:
            parts.append(self._criteria(summary.gates))
        if failing := self._failing.render():
            parts.append(failing)
        if advice := recommendations(run, self._spec):
            parts.append(
                "\n".join(["recommendations:", *(f"  - {pasted(shorten(sentence, None))}" for sentence in advice)])
            )
        if last := [*self.note_lines(), *([self.verdict_line()] if with_verdict else [])]:
            parts.append("\n".join(last))
        return without_commands("\n\n".join(parts)) + "\n"

    def _metrics(self, summary: RunSummary) -> list[str]:
        """Return the table of metrics and, below it, the reasons for rows without a value."""
        shown = [metric for metric in summary.metrics if not self._is_in_latency_line(metric, summary)]
        rows = [("metric", "value", "scored", "skipped", "errors", "passed", "failed", "threshold")]
        rows += [self._metric(metric, decides=not is_gated(summary)) for metric in shown]
        parts = [table(rows, self._painted)] if shown else []
        if lines := self._uncomputed.lines(summary.metrics):
            parts.append("\n".join(lines))
        return parts

    def _is_in_latency_line(self, metric: MetricSummary, summary: RunSummary) -> bool:
        """Return whether the latency line already shows everything about a metric."""
        decides = metric.threshold is not None or metric.goal is not None
        return not decides and metric.scored_count == summary.latency.answer_count > 0 and "ratings" in metric.detail

    def _metric(self, metric: MetricSummary, *, decides: bool) -> tuple[str, str, str, str, str, str, str, str]:
        decided = metric.passed_count + metric.failed_count
        return (
            metric.metric,
            value_text(metric.unit, metric.value) + _survivors(metric),
            str(metric.scored_count),
            str(metric.skipped_count),
            str(metric.error_count),
            str(metric.passed_count) if decided else "-",
            str(metric.failed_count) if decided else "-",
            self._threshold(metric, decides=decides),
        )

    def _threshold(self, metric: MetricSummary, *, decides: bool) -> str:
        sign = RULE_SIGNS[metric.rule]
        parts = []
        if metric.threshold is not None:
            reached, missed = ("PASS", "FAIL") if decides else ("reached", "missed (no gate)")
            without = "not computed" if metric.value is None else "no verdict"
            mark = {True: reached, False: missed, None: without}[metric.meets_threshold]
            parts.append(f"{sign} {bound_text(metric.unit, metric.threshold)} {mark}")
        if metric.goal is not None:
            mark = {True: "reached", False: "missed", None: "not computed"}[metric.meets_goal]
            parts.append(f"goal {sign} {bound_text(metric.unit, metric.goal)} {mark}")
        return ", ".join(parts) or "-"

    def _groups(self, heading: str, groups: Sequence[GroupSummary], omitted: int, summary: RunSummary) -> str:
        rows = [(heading, "rows", "passed", "failed", "pass rate", *(metric.metric for metric in summary.metrics))]
        rows += [
            (
                shorten(group.name, 30),
                str(group.row_count),
                str(group.passed_count),
                str(group.failed_count),
                "-" if group.pass_rate is None else f"{group.pass_rate:.1%}",
                *(value_text(metric.unit, group.metrics.get(metric.metric)) for metric in summary.metrics),
            )
            for group in groups[:_MAX_GROUPS]
        ]
        more = [f"... and {len(groups) - _MAX_GROUPS} more in the report"] if len(groups) > _MAX_GROUPS else []
        if omitted:
            more.append(f"... and {omitted:,} more that are not summarised: only the first {len(groups):,} are")
        return "\n".join([table(rows), *more])

    def note_lines(self) -> list[str]:
        """Return the notes on the verdict."""
        assert self.run.summary is not None, "only finished runs are summarised"
        return [clean(note) for note in self.run.summary.notes]

    def verdict_line(self) -> str:
        """Return the last line of a summary: the verdict with its reasons."""
        summary = self.run.summary
        assert summary is not None, "only finished runs are summarised"
        reasons = "; ".join(clean(reason) for reason in summary.reasons[:_MAX_REASONS])
        more = f"; and {len(summary.reasons) - _MAX_REASONS} more" if len(summary.reasons) > _MAX_REASONS else ""
        selected = selected_cases(self.run)
        figures = "  ".join([_pass_rate(summary), *([selected.sentence] if selected is not None else [])])
        return f"verdict  {self._paint(summary.verdict.value)}  {reasons}{more}  {figures}"

    def _counts(self, summary: RunSummary) -> str:
        counts = self.run.counts
        lines = [f"pass rate  {_rate(summary)}"]
        if summary.weighted is not None:
            weighted = summary.weighted.pass_rate
            lines.append(f"weighted pass rate  {'-' if weighted is None else f'{weighted:.1%}'}")
        lines += _repeats(summary.repeats)
        if counts.agent_error_count:
            lines.append(f"agent errors  {counts.agent_error_count}{interrupted_note(counts.interrupted_count)}")
        if summary.latency.answer_count:
            lines.append(_latency_line(summary))
        lines += [line for metric in summary.metrics if (line := _unanswerable(metric))]
        if summary.judging is not None:
            lines += [judging_line(summary.judging, self.run.spec.judges), *jury_lines(summary.judging)]
            is_alone = len(self.run.spec.judges) == 1
            lines += [canary_line(each, names_judge=not is_alone) for each in summary.judging.canaries]
            lines += [f"calibration  {sentence}" for sentence in calibration_sentences(self.run)]
        return "\n".join(lines)

    def _criteria(self, criteria: Sequence[GateResult]) -> str:
        lines = []
        for gate in criteria:
            compared = compared_text(gate.expression, gate.actual, gate.interval)
            actual = f"  actual {compared}" if gate.actual is not None else ""
            reason = "".join(f"  {clean(text)}" for text in (gate.note, gate.message) if text)
            goal = {True: "  goal reached", False: "  goal missed", None: ""}[gate.meets_goal]
            mark = self._paint(_MARKS[gate.outcome])
            lines.append(f"{gate.source.value}  {mark}  {clean(gate.expression)}{actual}{goal}{reason}")
        return "\n".join(lines)

    def _painted(self, cell: str) -> str:
        return _MARK.sub(lambda match: self._paint(match[0]), cell)


def _rows(run: Run, summary: RunSummary) -> str:
    return (
        partial_text(summary.row_count or 0, run.counts.total_count)
        if summary.partial
        else count_text(run.counts.total_count, "row")
    )


def _repeats(repeats: RepeatSummary | None) -> list[str]:
    """Return the line on repeated runs of each case; its advice is among the recommendations."""
    if repeats is None:
        return []
    runs, parts = repeats.runs_per_case, []
    if (rate := repeats.rate(runs)) is not None:
        if rate.pass_at_k is not None:
            parts.append(f"pass@{runs} {rate.pass_at_k:.1%}{_ends(rate.pass_at_k_interval)}")
        if rate.pass_hat_k is not None:
            parts.append(f"pass^{runs} {rate.pass_hat_k:.1%}{_ends(rate.pass_hat_k_interval)}")
    return [f"{runs} runs a case  {'  '.join(parts)}".rstrip()]


def _ends(interval: Sequence[float] | None) -> str:
    """Return an interval as it is printed after its rate; empty without one."""
    return f" [{interval[0]:.1%}, {interval[1]:.1%}]" if interval else ""


def _survivors(metric: MetricSummary) -> str:
    """Return the number of rows in an aggregate if it excludes agent errors; else empty."""
    if not metric.unanswered_count or metric.value is None:
        return ""
    return f" ({metric.scored_count} of {metric.scored_count + metric.unanswered_count} rows)"


def _unanswerable(metric: MetricSummary) -> str:
    """Return the counts of unanswerable and declined questions; empty if there are none."""
    count, share = metric.detail.get("unanswerable"), metric.detail.get("unanswerable_share")
    if not count or share is None:
        return ""
    declined = metric.detail.get("declined", 0)
    rows = count_text(count, "row")
    return f"{metric.metric}  {rows} unanswerable ({share:.1%}), not in the rate: {declined} declined"


def _rate(summary: RunSummary) -> str:
    """Return the pass rate with its interval and number of rows."""
    if summary.pass_rate is None:
        return "no row has a verdict"
    interval = _ends(summary.pass_rate_interval)
    undecided = (summary.row_count or 0) - summary.decided_count
    rows = count_text(summary.decided_count, "row")
    of = f"{summary.passed_count:,} of {rows} passed"
    if undecided > 0:
        of = f"{summary.passed_count:,} of {rows} with a verdict passed, {undecided:,} without a verdict"
    return f"{summary.pass_rate:.1%}{interval}  ({of})"


def _pass_rate(summary: RunSummary) -> str:
    """Return the pass rate as the last line prints it."""
    if summary.pass_rate is None:
        return "no row has a verdict"
    return f"pass rate {summary.pass_rate:.1%} ({summary.passed_count:,} of {summary.decided_count:,})"


def _latency_line(summary: RunSummary) -> str:
    latency = summary.latency
    tiers: Mapping[str, int] = next(
        (metric.detail["ratings"] for metric in summary.metrics if "ratings" in metric.detail), {}
    )
    within = ", ".join(f"{count:,} {RANGES.get(tier, clean(tier))}" for tier, count in tiers.items() if count)
    timeouts = f", {latency.timeout_count:,} timed out" if latency.timeout_count else ""
    return (
        f"latency  mean {seconds_text(latency.mean_ms)}  P50 {seconds_text(latency.p50_ms)}  "
        f"P95 {seconds_text(latency.p95_ms)}  max {seconds_text(latency.max_ms)}"
        f"  ({count_text(latency.answer_count, 'row')}{f': {within}' if within else ''}{timeouts})"
    )
