"""Failing rows on the console: question, answer and reference; identical errors share one entry."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.reports.words.judging_text import judge_reasons
from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import shorten
from assay_cli.output.row_text import error_text, function_reasons, row_lines, row_name, traceback_lines
from assay_cli.output.terminal import REASON_CHARS, WIDE, whole_text_hint
from assay_cli.resume_hint import pasted

if TYPE_CHECKING:
    from assay.model.run import RowResult, Run

_MOST_ENTRIES = 10
_MOST_GROUPS = 1_000
_COMPARED_CHARS = 200


def is_failing(row: RowResult) -> bool:
    """Return whether a row failed or has no verdict because of an error."""
    return row.passed is False or bool(row.message)


def is_error(row: RowResult) -> bool:
    """Return whether a failing row has an error instead of an answer or a verdict."""
    return row.status.is_failed or row.passed is None


@dataclass(slots=True)
class FailingCounts:
    """Counts of failed rows, and of rows without a verdict because of an error, which are not failed rows."""

    failed: int = 0
    undecided: int = 0

    @property
    def total(self) -> int:
        """Sum of both counts."""
        return self.failed + self.undecided

    def take(self, row: RowResult) -> None:
        """Count one failing row."""
        if row.passed is None:
            self.undecided += 1
        else:
            self.failed += 1

    def __str__(self) -> str:
        counts = ((self.failed, "failing row"), (self.undecided, "undecided row"))
        return " and ".join(count_text(count, noun) for count, noun in counts if count)


def failing_entry(run: Run, row: RowResult, width: int) -> list[str]:
    """Return the lines of one failing row."""
    name = row_name(run, row, width)
    lines = [f"  {name}: {shorten(row.message or 'failed', width - len(name) - 4)}"]
    lines += [f"    {line}" for line in row_lines(row, width - 4)]
    room = max(REASON_CHARS, width - 4)
    # The row's reason may already contain a metric's reason: print it only once.
    reasons = [text for text in (*judge_reasons(row), *function_reasons(row)) if _beginning(text) not in row.message]
    return [*lines, *(f"    {shorten(reason, room)}" for reason in reasons)]


def _beginning(reason: str) -> str:
    """Return the beginning of a judge's or a function's reason, without its name."""
    return shorten(reason.partition(": ")[2], None)[:_COMPARED_CHARS]


@dataclass(slots=True)
class ErrorGroup:
    """Rows with the same error: the first row and, if kept, the names of all."""

    first: RowResult
    count: int = 0
    names: list[str] = field(default_factory=list)

    def lines(self, run: Run, width: int, *, with_traceback: bool) -> list[str]:
        """Return the entry of the group."""
        if self.count == 1:
            lines = failing_entry(run, self.first, width)
        else:
            start, end = f"  {self.count:,} x ", f" (first: {row_name(run, self.first, width)})"
            lines = [f"{start}{shorten(error_text(self.first), width - len(start) - len(end))}{end}"]
            lines += [f"    {line}" for line in row_lines(self.first, width - 4)]
            if self.names:
                lines.append(f"    rows: {', '.join(self.names)}")
        return lines + [f"    {line}".rstrip() for line in traceback_lines(self.first, width - 4) if with_traceback]


class ErrorGroups:
    """Groups rows by their error messages.

    Args:
        with_names: Whether groups keep the names of their rows.
    """

    def __init__(self, run: Run, *, with_names: bool = False) -> None:
        self._run = run
        self._with_names = with_names
        self._found: dict[str, ErrorGroup] = {}

    def take(self, row: RowResult) -> None:
        """Add a row with an error."""
        if row.message not in self._found and len(self._found) >= _MOST_GROUPS and not self._with_names:
            return
        group = self._found.setdefault(row.message, ErrorGroup(row))
        group.first = min(group.first, row, key=_place)
        group.count += 1
        if self._with_names:
            group.names.append(row_name(self._run, row, WIDE))

    def largest_first(self) -> list[ErrorGroup]:
        """Return the groups, largest first."""
        return sorted(self._found.values(), key=lambda group: (-group.count, _place(group.first)))


def _place(row: RowResult) -> tuple[int, int]:
    return row.case_index, row.repeat


class FailingRows:
    """Failing rows of the summary: errors first, then failed answers, at most ten entries. Rows come in any order.

    Args:
        width: Maximum characters of a line.
    """

    def __init__(self, run: Run, width: int) -> None:
        self._run = run
        self._width = width
        self._errors = ErrorGroups(run)
        self._answers: list[RowResult] = []
        self._counts = FailingCounts()
        self._errors_taken = 0
        self._error_count: int | None = None  # that of the added rows

    def count(self, failed: int, undecided: int, *, errors: int) -> None:
        """Set the counts of all failing rows and of rows with errors, of which only the first were added."""
        self._counts = FailingCounts(failed, undecided)
        self._error_count = errors

    def take(self, row: RowResult) -> None:
        """Take one row."""
        if not is_failing(row):
            return
        self._counts.take(row)
        if is_error(row):
            self._errors.take(row)
            self._errors_taken += 1
        elif len(self._answers) < _MOST_ENTRIES or _place(row) < _place(self._answers[-1]):
            insort(self._answers, row, key=_place)
            del self._answers[_MOST_ENTRIES:]

    def render(self) -> str:
        """Return the entries as text; empty if no row failed."""
        if not self._counts.total:
            return ""
        groups = self._errors.largest_first()[:_MOST_ENTRIES]
        answers = self._answers[: _MOST_ENTRIES - len(groups)]
        lines = [f"{self._counts}:"]
        if self._error_count is not None and self._error_count > self._errors_taken:
            lines[0] = f"{self._counts}; errors are grouped among the first {self._errors_taken:,}:"
        traced = next((group for group in groups if traceback_lines(group.first)), None)
        entries = [
            *((group.first, group.lines(self._run, self._width, with_traceback=group is traced)) for group in groups),
            *((row, failing_entry(self._run, row, self._width)) for row in answers),
        ]
        lines += [line for _, entry in entries for line in entry]
        hints = (whole_text_hint(entry, self._run.run_id, row.case_id) for row, entry in entries)
        if more := self._counts.total - sum(group.count for group in groups) - len(answers):
            lines.append(pasted(f"  ... and {more:,} more: `assay runs show {self._run.run_id} --failed`"))
        lines += [f"  {hint}" for hint in filter(None, hints)][:1]
        return "\n".join(lines)
