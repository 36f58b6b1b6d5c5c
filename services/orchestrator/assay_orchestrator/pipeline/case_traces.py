"""The spans of a run's cases: below the call that made the run, in whichever process and however much later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.telemetry.tracing import span, unsampled

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from assay.model.run import Run

_ROWS = 50
_MULTIPLIER, _RANGE = 2_654_435_761, 2**32  # spreads neighbours over the range


@dataclass(frozen=True, slots=True)
class CaseTraces:
    """Where the cases of a run belong in a trace.

    Args:
        run_id: The run.
        team: Whose it is.
        parent: The traceparent of the call that made the run; empty where it had none.
        share: The share of the cases that are traced, from 0 to 1.
    """

    run_id: str = ""
    team: str = ""
    parent: str = ""
    share: float = 1.0

    @classmethod
    def of_run(cls, run: Run, team: str, parent: str, share: float | None) -> CaseTraces:
        """Return where the cases of a run belong; without a share, as many are traced as make fifty rows."""
        return cls(run.run_id, team, parent, _ROWS / max(_ROWS, run.counts.total) if share is None else share)

    def of(self, case_index: int, repeat_index: int) -> AbstractContextManager[Any]:
        """Return a block in which a case is worked on; which cases are traced is the same in every process."""
        if case_index * _MULTIPLIER % _RANGE >= self.share * _RANGE:
            return unsampled(self.parent)
        return span(
            "case",
            parent=self.parent,
            attributes={
                "assay.run": self.run_id,
                "assay.team": self.team,
                "assay.case_index": case_index,
                "assay.repeat_index": repeat_index,
            },
        )
