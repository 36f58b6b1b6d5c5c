"""The spans of a run's cases: children of the call that created the run, in any process and however much later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.telemetry.tracing import span, unsampled

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from assay.model.run import Run

_ROWS = 50
_MULTIPLIER, _RANGE = 2_654_435_761, 2**32  # spreads neighbouring cases over the range


@dataclass(frozen=True, slots=True)
class CaseTraces:
    """The place of a run's cases in a trace.

    Args:
        run_id: The run.
        team: Its team.
        parent: The traceparent of the call that created the run; empty without one.
        share: The share of the cases to trace, from 0 to 1.
    """

    run_id: str = ""
    team: str = ""
    parent: str = ""
    share: float = 1.0

    @classmethod
    def of_run(cls, run: Run, team: str, parent: str, share: float | None) -> CaseTraces:
        """Return the place of a run's cases; without a share, enough cases are traced for fifty rows."""
        return cls(run.run_id, team, parent, _ROWS / max(_ROWS, run.counts.total_count) if share is None else share)

    def of(self, case_index: int, repeat: int) -> AbstractContextManager[Any]:
        """Return a context for the work on a case; every process traces the same cases."""
        if case_index * _MULTIPLIER % _RANGE >= self.share * _RANGE:
            return unsampled(self.parent)
        return span(
            "case",
            parent=self.parent,
            attributes={
                "assay.run": self.run_id,
                "assay.team": self.team,
                "assay.case_index": case_index,
                "assay.repeat": repeat,
            },
        )
