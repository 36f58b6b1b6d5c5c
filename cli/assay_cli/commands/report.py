"""`assay report`: write the reports of a stored run or of a results.json."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay_cli.options.cases import find_run
from assay_cli.options.ci import ci_options
from assay_cli.options.reports import REPORTS_FOLDER, chosen_reports, report_option
from assay_cli.options.shared import client_options, connect, run_async
from assay_cli.output.report_files import print_failures, report_lines

if TYPE_CHECKING:
    from assay.model.report_settings import ReportSettings
    from assay.reports.ci_outputs import CiOutputs
    from assay.reports.document.report import Report
    from assay.reports.failures import Attempts
    from assay.reports.folder import ReportFolder


@click.command(
    epilog="\b\nExamples:\n  assay report latest --format html\n  assay report out/results.json --format csv,charts"
)
@click.argument("run")
@report_option("--format", default="json and html; none with an option for CI")
@ci_options
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Folder for the reports; default: assay-reports/RUN_ID, or the folder of results.json.",
)
@client_options
def report(
    run: str, report_names: tuple[str, ...], ci: CiOutputs | None, output_dir: Path | None, server: str | None
) -> int:
    """Write the reports of RUN: a stored run or a results.json.

    The report of an unfinished run covers the rows so far, and says so. A file needs no server.
    """
    from assay.model.report_settings import DEFAULT_REPORTS
    from assay.reports.atomic import check_folder

    chosen = chosen_reports(report_names, () if ci else DEFAULT_REPORTS, option="--format")
    path = Path(run)
    if path.suffix == ".json" or path.is_file():
        folder = output_dir or path.parent
        check_folder(folder)
        written = _of_file(path, chosen, folder, ci)
    else:
        check_folder(output_dir or REPORTS_FOLDER)
        written = run_async(_of_run(run, chosen, output_dir, server, ci))
    for line in report_lines(written):
        click.echo(line)
    print_failures(written)
    return 0


def _of_file(path: Path, chosen: tuple[ReportSettings, ...], folder: Path, ci: CiOutputs | None) -> ReportFolder:
    from assay.reports.document.report import report_of_file
    from assay.reports.folder import ReportFolder
    from assay.reports.writing import write_formats

    with report_of_file(path) as stored:
        written = ReportFolder(folder, stored.run_id)
        write_formats(stored, chosen, written)
        if ci is not None:
            ci.write(stored, sys.stdout, attempts=written.attempts)
    written.attempts.raise_if_all_failed()
    return written


async def _of_run(
    reference: str, chosen: tuple[ReportSettings, ...], folder: Path | None, server: str | None, ci: CiOutputs | None
) -> ReportFolder:
    from assay.errors import WrongStateError
    from assay.reports.writing import write_reports

    async with connect(server) as (client, _):
        run = await client.get_run(await find_run(client, reference))
        if run.summary is None:
            raise WrongStateError(f"run {run.run_id} has no rows yet: nothing to report")
        rows, place = client.list_rows(run.run_id), folder or REPORTS_FOLDER / run.run_id

        def write_ci(report: Report, attempts: Attempts) -> None:
            if ci is not None:
                ci.write(report, sys.stdout, attempts=attempts)

        return await write_reports(run, rows, chosen, place, ci=write_ci, server=server)
