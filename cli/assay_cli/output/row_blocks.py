"""`assay run --verbose`: a block of text for each finished row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.client.progress.run_progress import PlainProgress
from assay.metrics.core.explanations import score_message
from assay.metrics.latency import RATINGS, rating
from assay.model.run import RowResult, ScoreStatus
from assay.reports.words.judging_text import judge_reasons
from assay.reports.words.metric_text import reason_text, seconds_text, units_of, value_text
from assay.text.unsafe_text import clean, shorten, without_commands
from assay_cli.output.row_text import row_lines, row_name, traceback_lines
from assay_cli.output.terminal import REASON_CHARS, cut_width, painter, table, whole_text_hint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from assay.model.run import Run, Score, StateChanged


class VerboseProgress(PlainProgress):
    """Writes a block for each finished row, in place of lines on the progress.

    Args:
        out: Output stream.
    """

    every_s = float("inf")

    def __init__(self, run: Run, out: TextIO) -> None:
        super().__init__(run)
        self._run = run
        self._out = out
        self._width = cut_width(out)
        self._paint = painter(out)
        self._is_hinted = False

    def take(self, event: Run | StateChanged | RowResult) -> None:
        """Take one snapshot or event."""
        super().take(event)
        if isinstance(event, RowResult):
            self._write(event)

    def show(self) -> None:
        """Show nothing: each block has its number."""

    def _write(self, row: RowResult) -> None:
        category = f"  {shorten(row.category, 30)}" if row.category else ""
        head = f"[{self._done}/{self._run.counts.total_count}] {row_name(self._run, row, self._width)}{category}"
        inner = self._width - 2
        room = max(inner, REASON_CHARS)
        scores = [
            (metric, value, shorten(verdict, room))
            for metric, value, verdict in score_rows(self._run, row.scores)
            if verdict not in RATINGS
        ]
        lines = [*row_lines(row, inner), *(table(scores).split("\n") if scores else ())]
        lines += [shorten(reason, room) for reason in judge_reasons(row)]
        lines += traceback_lines(row, inner)
        took = f"latency {_latency(row, row.latency_ms / 1000)}  " if row.latency_ms is not None else ""
        why = f"  {shorten(row.message, room)}" if row.message else ""
        lines.append(f"{took}{self._paint(verdict_word(row))}{why}")
        if not self._is_hinted and (hint := whole_text_hint([*lines, why], self._run.run_id, row.case_id)):
            self._is_hinted = True
            lines.append(hint)
        self._out.write(without_commands("\n".join([head, *(f"  {line}".rstrip() for line in lines), ""])) + "\n")
        self._out.flush()


def _latency(row: RowResult, seconds: float) -> str:
    # A call that fails at once is not "fast": it gets no tier.
    tier = "" if row.status.is_failed else f" {rating(seconds)}"
    return f"{seconds_text(seconds)}{tier}{' (cold)' if row.response is not None and row.response.cold else ''}"


def verdict_word(row: RowResult) -> str:
    """Return a row's verdict in one or two words."""
    return {True: "PASS", False: "FAIL", None: "no verdict"}[row.passed]


def score_rows(run: Run, scores: Sequence[Score]) -> list[tuple[str, str, str]]:
    """Return metric, value and verdict of each score, or the reason for a missing value."""
    units = units_of(run.spec)
    cells = []
    for score in scores:
        verdict = {True: "passed", False: "failed", None: ""}[score.passed]
        if score.status is not ScoreStatus.SCORED:
            verdict = f"{score.status.value}: {clean(reason_text(score))}"
        elif rating := score.detail.get("rating"):
            verdict = f"{verdict} {rating}".strip()
        elif score.passed is False and (why := score_message(score)):
            verdict = f"failed: {clean(why)}"
        cells.append((score.metric, value_text(units[score.metric], score.value), verdict))
    return cells
