"""Stored rows for the console summary: all rows of a small run, the first of each kind of a large one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.filters.row_filter import DATASET_ORDER, Comparison, MetricCondition, RowFilter, RowOutcome

if TYPE_CHECKING:
    from assay.client.client import Client
    from assay.model.run import Run, RunSummary
    from assay_cli.output.console import ConsoleSummary

WHOLE_RUN_ROWS = 2_000
"""Above this size, a run is not read whole: 175,000 failing rows took 10 s of CPU for 5 kB of text."""
_FIRST_ROWS = 1_000
_FIRST_ANSWERS = 10
_ERRORS = (RowOutcome.AGENT_ERROR, RowOutcome.NO_VERDICT)


async def read_summary_rows(
    console: ConsoleSummary, client: Client, run: Run, *, whole_rows: int = WHOLE_RUN_ROWS
) -> None:
    """Add stored rows to a summary: all that it needs or, for a large run, the first rows and the counts of all.

    Args:
        whole_rows: Maximum number of rows of a run that is read whole.
    """
    summary = run.summary
    if summary is None or run.counts.total <= whole_rows:
        async for row in client.list_results(run.run_id, failed_only=not console.needs_all_rows):
            console.take(row)
        return
    counts = []
    for outcomes, page_size in (((RowOutcome.FAILED,), _FIRST_ANSWERS), (_ERRORS, _FIRST_ROWS)):
        page = await client.result_page(
            run.run_id,
            RowFilter(outcomes=outcomes),
            DATASET_ORDER,
            failed_only=True,
            page_size=page_size,
            include_total_count=True,
        )
        counts.append(page.total_count or 0)
        for row in page.results:
            console.take_failing(row)
    failed = summary.decided - summary.passed
    console.count_failing(failed, sum(counts) - failed, errors=counts[1])
    await _read_uncomputed(console, client, run, summary)


async def _read_uncomputed(console: ConsoleSummary, client: Client, run: Run, summary: RunSummary) -> None:
    for metric in summary.metrics:
        if not (metric.n_skipped or metric.n_error):
            continue
        without_value = RowFilter(metrics=(MetricCondition(metric.metric, Comparison.EQUAL, None),))
        page = await client.result_page(
            run.run_id, without_value, DATASET_ORDER, page_size=_FIRST_ROWS, include_answers=False
        )
        console.take_uncomputed(metric.metric, page.results, is_all=not page.next_page_token)
