"""`assay run --verbose`: a block for each row when it is finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.metrics.core.explanations import score_message
from assay.metrics.latency import RATINGS, rating
from assay.model.run import ScoreStatus
from assay.reports.words.judging_text import judge_reasons
from assay.reports.words.metric_text import reason_text, seconds_text, units_of, value_text
from assay.text.unsafe_text import clean, shorten, without_commands
from assay_cli.output.row_text import row_lines, row_name, traceback_lines
from assay_cli.output.terminal import REASON_CHARS, cut_width, painter, table, whole_text_hint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from assay.model.run import CaseResult, Run, Score


class RowBlocks:
    """Writes blocks.

    Args:
        out: Where they go.
    """

    def __init__(self, run: Run, out: TextIO) -> None:
        self._run = run
        self._out = out
        self._width = cut_width(out)
        self._paint = painter(out)
        self._is_hinted = False

    def write(self, row: CaseResult, number: int) -> None:
        """Write the block of one row.

        Args:
            row: With its answer.
            number: How many rows are finished with this one.
        """
        category = f"  {shorten(row.category, 30)}" if row.category else ""
        head = f"[{number}/{self._run.counts.total}] {row_name(self._run, row, self._width)}{category}"
        inner = self._width - 2
        room = max(inner, REASON_CHARS)
        scores = [
            (metric, value, shorten(said, room))
            for metric, value, said in score_rows(self._run, row.scores)
            if said not in RATINGS
        ]
        lines = [*row_lines(row, inner), *(table(scores).split("\n") if scores else ())]
        lines += [shorten(reason, room) for reason in judge_reasons(row)]
        lines += traceback_lines(row, inner)
        took = f"latency {_latency(row, row.latency_ms / 1000)}  " if row.latency_ms is not None else ""
        why = f"  {shorten(row.reason, room)}" if row.reason else ""
        lines.append(f"{took}{self._paint(verdict_word(row))}{why}")
        if not self._is_hinted and (hint := whole_text_hint([*lines, why], self._run.run_id, row.case_id)):
            self._is_hinted = True
            lines.append(hint)
        self._out.write(without_commands("\n".join([head, *(f"  {line}".rstrip() for line in lines), ""])) + "\n")
        self._out.flush()


def _latency(row: CaseResult, seconds: float) -> str:
    # A call that fails at once is not fast: it has no tier.
    tier = "" if row.status.is_failed else f" {rating(seconds)}"
    return f"{seconds_text(seconds)}{tier}{' (cold)' if row.response is not None and row.response.cold else ''}"


def verdict_word(row: CaseResult) -> str:
    """Return the verdict of a row in a word or two."""
    return {True: "PASS", False: "FAIL", None: "no verdict"}[row.passed]


def score_rows(run: Run, scores: Sequence[Score]) -> list[tuple[str, str, str]]:
    """Return metric, value and verdict of each score; in place of a verdict why there is no value."""
    units = units_of(run.settings)
    found = []
    for score in scores:
        said = {True: "passed", False: "failed", None: ""}[score.passed]
        if score.status is not ScoreStatus.SCORED:
            said = f"{score.status.value}: {clean(reason_text(score))}"
        elif rating := score.detail.get("rating"):
            said = f"{said} {rating}".strip()
        elif score.passed is False and (why := score_message(score)):
            said = f"failed: {clean(why)}"
        found.append((score.metric, value_text(units[score.metric], score.value), said))
    return found
