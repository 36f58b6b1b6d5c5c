"""`--against`: the comparison of a run with a baseline, when it ends."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assay.comparison.decision import NOT_COMPARABLE, Decision, decide
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
    """Compares a run with a baseline that was read before the run was started.

    Args:
        baseline: The report of the baseline.
        options: How they are compared, and what fails.
        server: The server that stores the run, as the user named it; empty for the local stack.
        verbose: Whether everything that is known of the comparison is printed.
    """

    baseline: Report
    options: CompareOptions
    server: str = ""
    verbose: bool = False
    lines: tuple[str, ...] = ()
    """What is printed of the comparison; empty until it is made."""
    decision: Decision | None = None
    """What it means for a pipeline; None until it is made."""

    def compare(self, report: Report) -> ComparisonReport | None:
        """Return the comparison of a run with the baseline, and keep what it comes to; None where there is none."""
        from assay.client.comparison.join import compare_reports
        from assay.reports.comparison.document.comparison_report import report_of_runs
        from assay.reports.comparison.formats.short_text import short_lines
        from assay.reports.comparison.formats.text import comparison_lines

        if report.run_id == self.baseline.run_id:
            self.lines = ("the run is the baseline itself: there is nothing to compare",)
            return None
        runs = [self.baseline, report]
        try:
            comparison = compare_reports(runs, self.options.settings)
        except InvalidInputError as error:  # the run is there all the same, with its verdict and its reports
            self.lines = (f"not compared with the baseline: {clean(error.message)}",)
            self.decision = Decision(NOT_COMPARABLE, (error.message,))
            return None
        self.decision = decide(comparison, self.options.rules, of_run=True)
        found = replace(report_of_runs(comparison, self.decision, runs, of_run=True), server=self.server)
        self.lines = tuple(comparison_lines(found) if self.verbose else short_lines(found))
        return found

    def overrules(self, status: int) -> bool:
        """Whether the comparison gives the exit status of a command whose run by itself gives `status`."""
        return not status and self.decision is not None and self.decision.exit_status != 0


@contextlib.asynccontextmanager
async def read_baseline(
    client: Client, reference: str, options: CompareOptions, spec_baseline: str
) -> AsyncIterator[Against | None]:
    """Yield what compares a run with a baseline; None where no baseline is named.

    Args:
        client: To the orchestrator that stores the baseline, where it is no file.
        reference: A results.json, the name of a baseline, or a run; empty for none.
        options: How they are compared.
        spec_baseline: The name of the baseline of the run's spec, which "baseline" means.

    Raises:
        InvalidInputError: The file is no report of a run.
        NotFoundError: There is no such baseline and no such run.
    """
    if not reference:
        yield None
        return
    from assay.client.comparison.join import read_reports

    async with read_reports([reference], client, spec_baseline) as (report,):
        yield Against(report, options)
