"""Notes on a run's rows that affect its figures: repeated rows, copied cases, clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.dependent_cases import COPIES
from assay.reports.words.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.model.run import Run, RunSummary

_FEW_CLUSTERS = 10  # of equal size; with fewer, one cluster may carry the result


def row_notes(run: Run, summary: RunSummary) -> list[str]:
    """Return sentences on repeated questions and scores, repeats, copies, clusters and unused approvals."""
    return [*_again(summary), *_repeats(run), *_copies(run), *_dependent(summary), *_unused_approvals(summary)]


def _again(summary: RunSummary) -> Iterator[str]:
    if summary.asked_again_count:
        yield f"{count_text(summary.asked_again_count, 'row')} asked again after errors"
    if summary.scored_again_count:
        yield f"{count_text(summary.scored_again_count, 'row')} scored again after errors"


def _repeats(run: Run) -> Iterator[str]:
    if (times := run.spec.repeats) > 1:
        yield (
            f"each of {count_text(run.dataset.case_count, 'case')} was run {times:,} times: intervals count cases, not "
            "rows"
        )


def _copies(run: Run) -> Iterator[str]:
    reading = run.spec.dataset
    if reading is not None and reading.copy_count:
        copies = f"{reading.copy_count:,} of {count_text(run.dataset.case_count, 'case')}"
        verb = "repeats" if reading.copy_count == 1 else "repeat"
        counted = f"clusters by {run.spec.cluster}" if run.spec.cluster else "copies of a case once"
        yield f"{reading.first_copy}; {copies} {verb} an earlier one: intervals count {counted}"


def _dependent(summary: RunSummary) -> Iterator[str]:
    """Yield the number of independent cases that a run is worth and, if clusters are few, the share of the largest."""
    dependent = summary.dependent
    if dependent is None:
        return
    cases = count_text(dependent.case_count, "case")
    shared = (
        "" if dependent.key == COPIES else f" in {count_text(dependent.cluster_count, 'cluster')} by {dependent.key}"
    )
    worth = dependent.effective_cases
    worth_text = (
        "" if worth is None else (f", worth about {_whole(worth)} independent {'one' if worth < 1.5 else 'ones'}")
    )
    largest = ""
    if dependent.effective_clusters < _FEW_CLUSTERS:
        cluster = "most copied case" if dependent.key == COPIES else "largest cluster"
        largest = f"; the {cluster} has {dependent.largest_share:.0%} of them"
    yield f"{cases}{shared}{worth_text}{largest}"


def _unused_approvals(summary: RunSummary) -> Iterator[str]:
    for unused in summary.unused_approvals:
        why = "the name is misspelled, or the agent did not call the tool"
        if unused.case_count:
            more = f" and {unused.case_count - 1:,} more" if unused.case_count > 1 else ""
            yield f"approvals of case {unused.first_case}{more} name {unused.tool}, at which it did not stop: {why}"
        else:
            yield f"approvals name {unused.tool}, at which no row stopped: {why}"


def _whole(count: float) -> str:
    return f"{max(1, round(count)):,}"
