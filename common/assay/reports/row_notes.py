"""What to know of a run's rows before believing its figures: rows that were repeated, cases that are copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.reports.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.model.run import Run


def row_notes(run: Run) -> list[str]:
    """Return a sentence each on rows asked or scored again, on repeats and on copies; none where there are none."""
    return [*_again(run), *_repeats(run), *_copies(run)]


def _again(run: Run) -> Iterator[str]:
    if run.summary is not None and run.summary.asked_again:
        yield f"{count_text(run.summary.asked_again, 'row')} asked again after errors"
    if run.summary is not None and run.summary.scored_again:
        yield f"{count_text(run.summary.scored_again, 'row')} scored again after errors"


def _repeats(run: Run) -> Iterator[str]:
    if (times := run.settings.repeats) > 1:
        yield (
            f"each of {count_text(run.dataset.case_count, 'case')} was run {times:,} times: intervals of means count "
            "cases, the pass rate has no interval"
        )


def _copies(run: Run) -> Iterator[str]:
    reading = run.settings.dataset
    if reading is not None and reading.copy_count:
        copies = f"{reading.copy_count:,} of {count_text(run.dataset.case_count, 'case')}"
        verb = "repeats" if reading.copy_count == 1 else "repeat"
        yield f"{reading.first_copy}; {copies} {verb} an earlier one: intervals count them as independent cases"
