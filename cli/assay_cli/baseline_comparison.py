"""`--against`: the comparison of a finished run with a baseline."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assay.comparison.decision import ComparisonDecision, decide, not_comparable
from assay.errors import InvalidInputError
from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.client.client import Client
    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.document.report import Report
    from assay_cli.options.compare import CompareOptions


@dataclass(slots=True)
class Against:
    """Compares a run with a baseline that was read before the run started.

    Args:
        baseline: The report of the baseline.
        options: Settings of the comparison, and what fails it.
        server: The server that stores the run, as the user named it; empty for the local stack.
        verbose: Whether to print the full comparison instead of its summary.
    """

    baseline: Report
    options: CompareOptions
    server: str = ""
    verbose: bool = False
    lines: tuple[str, ...] = ()
    """The printed lines of the comparison; empty before `compare`."""
    decision: ComparisonDecision | None = None
    """The decision for a pipeline; None before `compare`."""

    def compare(self, report: Report) -> ComparisonReport | None:
        """Compare a run with the baseline, and keep lines and decision; None if the two cannot be compared."""
        from assay.client.comparison.join import compare_reports
        from assay.reports.comparison.document.comparison_report import report_of_runs
        from assay.reports.comparison.formats.short_text import short_lines
        from assay.reports.comparison.formats.text import comparison_lines

        if report.run_id == self.baseline.run_id:
            self.lines = ("the run is the baseline itself: nothing to compare",)
            return None
        runs = [self.baseline, report]
        try:
            comparison = compare_reports(runs, self.options.settings)
        except InvalidInputError as error:  # the run keeps its verdict and its reports
            self.lines = (f"not compared with the baseline: {clean(error.message)}",)
            self.decision = not_comparable((error.message,))
            return None
        self.decision = decide(comparison, self.options.rules, of_run=True)
        outcome = replace(report_of_runs(comparison, self.decision, runs, of_run=True), server=self.server)
        self.lines = tuple(comparison_lines(outcome) if self.verbose else short_lines(outcome))
        return outcome

    def overrules(self, status: int) -> bool:
        """Return whether the comparison, not the run's own `status`, decides the exit status."""
        return not status and self.decision is not None and self.decision.exit_status != 0


@contextlib.asynccontextmanager
async def read_baseline(
    client: Client, reference: str, options: CompareOptions, spec_baseline: str
) -> AsyncIterator[Against | None]:
    """Yield the comparison with a baseline; None if no baseline is named.

    Args:
        client: Connected to the orchestrator that stores the baseline, unless it is a file.
        reference: A results.json, the name of a baseline, or a run; empty for none.
        options: Settings of the comparison.
        spec_baseline: Name of the spec's own baseline; the reference "baseline" stands for it.

    Raises:
        InvalidInputError: The file is not the report of a run.
        NotFoundError: Neither a baseline nor a run has that name.
    """
    if not reference:
        yield None
        return
    from assay.client.comparison.join import read_reports

    async with read_reports([reference], client, spec_baseline) as (report,):
        yield Against(report, options)
