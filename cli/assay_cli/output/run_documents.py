"""JSON of runs for `--json`: a document, or one line per event; `docs/runs.md` describes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from assay.model.run import RowResult, Run
from assay.reports.document.document import (
    dataset_document,
    judging_document,
    row_document,
    stopped_document,
    verdict_document,
)
from assay.reports.words.run_description import description_document
from assay.reports.words.selected_cases import selected_document
from assay_cli.output.documents import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import RowAttempt, StateChanged

_NOT_IN_EVENTS = ("question", "answer", "references", "response")


def brief(run: Run) -> dict[str, Any]:
    """Return a run's state and counts as a short document."""
    return {
        "run_id": run.run_id,
        "name": run.spec.name,
        "state": run.state.value,
        "state_message": run.state_message or None,
        "pause_cause": run.pause_cause.value if run.pause_cause is not None else None,
        "total_count": run.counts.total_count,
        "finished_count": run.counts.finished_count,
        "answered_count": run.counts.answered_count,
        "passed_count": run.counts.passed_count,
        "failed_count": run.counts.failed_count,
        "created_at": run.created_at,
        **description_document(run),
    }


def listed(run: Run) -> dict[str, Any]:
    """Return a run of a list, which lacks the cases, tags and categories of its selection."""
    document = brief(run)
    if document["selection"] is not None:
        named = ("cases", "tags", "categories")
        document["selection"] = {name: value for name, value in document["selection"].items() if name not in named}
    return document


def full(run: Run) -> dict[str, Any]:
    """Return a run with its dataset and, once it has one, its summary."""
    summary = None
    if run.summary is not None:
        summary = {
            **record(run.summary),
            "judging": judging_document(run),
            "stopped_early": stopped_document(run.summary.stopped_early),
            **verdict_document(run),
            "selection": selected_document(run),
        }
    return {
        **brief(run),
        "agent_error_count": run.counts.agent_error_count,
        "interrupted_count": run.counts.interrupted_count,
        "started_at": run.started_at or None,
        "ended_at": run.ended_at or None,
        "dataset": dataset_document(run),
        "judges": [record(judge) for judge in run.spec.judges],
        "spend_cap_nano_usd": run.spec.spend_cap_nano_usd,
        "partial": run.summary is not None and run.summary.partial,
        "summary": summary,
    }


def attempts_document(attempts: Sequence[RowAttempt]) -> list[dict[str, Any]]:
    """Return all attempts at a case."""
    return [
        {
            "repeat": attempt.repeat,
            "attempt": attempt.attempt_index,
            "outcome": attempt.outcome.value,
            "at": attempt.at,
            "row": row_document(attempt.result) if attempt.result is not None else None,
        }
        for attempt in attempts
    ]


def event_document(event: Run | StateChanged | RowResult) -> dict[str, Any]:
    """Return an event of a run: its `event` is "run" for a snapshot, "state" or "row"."""
    if isinstance(event, Run):
        return {"event": "run", "sequence": event.last_sequence, **brief(event)}
    if isinstance(event, RowResult):
        row = {name: value for name, value in row_document(event).items() if name not in _NOT_IN_EVENTS}
        return {"event": "row", "sequence": event.sequence, **row}
    return {
        "event": "state",
        "sequence": event.sequence,
        "state": event.state.value,
        "state_message": event.message or None,
        "pause_cause": event.pause_cause.value if event.pause_cause is not None else None,
        **asdict(event.counts),
        "at": event.at,
    }
