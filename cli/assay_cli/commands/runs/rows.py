"""`assay runs show --case` and `--failed`: rows of one run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from assay.model.run import AttemptOutcome
from assay.reports.document import row_document
from assay.reports.formats.json_report import write_rows
from assay_cli.options import print_document
from assay_cli.output.case_view import case_view
from assay_cli.output.failing_rows import ErrorGroups, FailingCounts, failing_entry, is_error
from assay_cli.output.run_documents import attempts_document
from assay_cli.output.terminal import cut_width

if TYPE_CHECKING:
    from assay.client.client import Client


async def show_case(client: Client, run_id: str, case_id: str, *, as_json: bool) -> None:
    """Print everything about the rows of one case, one for each repeat.

    Raises:
        NotFoundError: There is no such run, or no such case in its dataset.
    """
    run = await client.get_run(run_id, partial=False)
    rows = [row async for row in client.list_results(run_id, case_id=case_id)]
    attempts = await client.list_attempts(run_id, case_id)
    earlier = {
        row.repeat_index: [
            one
            for one in attempts
            if one.repeat_index == row.repeat_index and one.outcome is not AttemptOutcome.CURRENT
        ]
        for row in rows
    }
    if as_json:
        print_document(
            [{**row_document(row), "earlier_attempts": attempts_document(earlier[row.repeat_index])} for row in rows]
        )
    elif not rows:
        click.echo("this case has no result yet")
    else:
        click.echo("\n\n".join(case_view(run, row, earlier[row.repeat_index]) for row in rows))


async def show_failed(client: Client, run_id: str, *, as_json: bool) -> None:
    """Print every failing row as it comes, rows with errors at the end, identical errors as one entry.

    Raises:
        NotFoundError: There is no such run.
    """
    run = await client.get_run(run_id, partial=False)
    rows = client.list_results(run_id, failed_only=True)
    if as_json:
        sys.stdout.write("[")
        await write_rows(sys.stdout, rows)
        sys.stdout.write("\n]\n")
        return
    width, errors, counts = cut_width(sys.stdout), ErrorGroups(run, with_names=True), FailingCounts()
    async for row in rows:
        counts.take(row)
        if is_error(row):
            errors.take(row)
        else:
            click.echo("\n".join(failing_entry(run, row, width)))
    for group in errors.largest_first():
        click.echo("\n".join(group.lines(run, width, with_traceback=True)))
    click.echo(str(counts) if counts.total else "no row failed")
