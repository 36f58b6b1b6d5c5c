"""Outcomes of rows in charts: passed, failed, agent error, no verdict, not finished."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.filters.row_filter import RowOutcome
from assay.reports.charts.palette import BAD, BROKEN, GOOD, MISSING, UNDECIDED, Fill

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PASSED, FAILED, AGENT_ERROR, NO_VERDICT, UNFINISHED = "passed", "failed", "agent error", "no verdict", "not finished"
NAMES: Mapping[RowOutcome, str] = {
    RowOutcome.PASSED: PASSED,
    RowOutcome.FAILED: FAILED,
    RowOutcome.AGENT_ERROR: AGENT_ERROR,
    RowOutcome.NO_VERDICT: NO_VERDICT,
    RowOutcome.UNDECIDED: NO_VERDICT,
}
"""The names of outcomes in charts."""

FILLS: Mapping[str, Fill] = {
    PASSED: GOOD,
    FAILED: BAD,
    AGENT_ERROR: BROKEN,
    NO_VERDICT: UNDECIDED,
    UNFINISHED: MISSING,
}


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """Count of rows with an outcome.

    Args:
        outcome: One of FILLS.
        count: Number of rows.
        share: Share of the run's rows; None without rows.
    """

    outcome: str
    count: int
    share: float | None


def outcome_counts(summary: Mapping[str, Any]) -> Sequence[OutcomeCount]:
    """Return the counts of rows by outcome from the summary; unfinished rows only if there are any."""
    total, finished = summary["total_count"], summary.get("finished_count", summary["total_count"])
    passed, errors = summary["passed_count"], summary["agent_error_count"]
    counts = {
        PASSED: passed,
        FAILED: max(summary["decided_count"] - passed - errors, 0),
        AGENT_ERROR: errors,
        NO_VERDICT: max(finished - summary["decided_count"], 0),
    }
    if finished < total:
        counts[UNFINISHED] = total - finished
    return [OutcomeCount(name, count, count / total if total else None) for name, count in counts.items()]
