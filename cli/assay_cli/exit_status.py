"""The exit statuses of the command; `docs/runs.md` describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.run import Run

EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_INFRASTRUCTURE = 3
EXIT_INTERRUPTED = 130


def exit_status_of(run: Run) -> int:
    """Return the exit status that the verdict of a run gives."""
    from assay.verdict.run_verdict import run_verdict

    return run_verdict(run.summary).status.exit_status if run.summary is not None else EXIT_INFRASTRUCTURE
