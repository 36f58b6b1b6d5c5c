"""`assay compare`: whether one run is better than another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.errors import InvalidInputError, Problem
from assay_cli.compare_options import CompareOptions, compare_options
from assay_cli.options import debug_option, json_option, print_document, run_async, server_option
from assay_cli.output.report_files import report_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.reports.comparison.comparison_report import ComparisonReport

_REPORTS = Path("assay-reports")


@click.command(
    epilog="\b\nExamples:\n  assay compare before/results.json after/results.json\n"
    "  assay compare baseline-20261101 latest --primary exact_match --margin 0.02\n\n"
    "Exit status: 0 no regression, 1 a run is worse than the first, 2 the input is wrong, 3 no data or runs that must "
    "not be compared, 4 undecided with --strict."
)
@click.argument("runs", nargs=-1, required=True, metavar="A B [C...]")
@compare_options
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="FORMAT",
    help="Report to write: json, markdown, csv, charts, html; with an option as charts:plot_format=svg; repeatable, or "
    "several with commas; default: none.",
)
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Folder for the reports; default: assay-reports/comparison-ID.",
)
@json_option
@server_option
@debug_option
def compare(
    runs: tuple[str, ...],
    options: CompareOptions,
    formats: tuple[str, ...],
    output_dir: Path | None,
    as_json: bool,
    server: str | None,
) -> int:
    """Compare runs over the same cases: A with B, or A with each of the others.

    Each is a results.json, or a stored run: its id, a unique beginning of it, or latest. Files need no server. The
    primary metric decides, by the test that pairs the runs case by case.
    """

    from assay.client.comparing import check_packages
    from assay.reports.atomic import check_folder

    check_packages()
    wanted = _wanted(formats)
    if wanted.names:
        check_folder(output_dir or _REPORTS)
    return run_async(_compare(runs, options, wanted, output_dir, as_json, server))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which reports are written: names of formats, and the form of the plots."""

    names: tuple[str, ...]
    plot_format: str


def _wanted(formats: Sequence[str]) -> _Wanted:
    """Return what --format says.

    Raises:
        InvalidInputError: A format or an option is wrong.
        SetupError: A package that a format needs is missing.
    """
    from assay.reports.comparison.writing import check_comparison_formats

    names: dict[str, None] = {}
    plot_format = "png"
    for one in (name.strip() for each in formats for name in each.split(",") if name.strip()):
        name, colon, option = one.partition(":")
        key, _, value = option.partition("=")
        if colon and (name, key) != ("charts", "plot_format"):
            raise InvalidInputError(
                [Problem("has no such option: charts has plot_format=png or svg", f"--format {one}")]
            )
        names[name] = None
        plot_format = value if colon else plot_format
    check_comparison_formats(tuple(names), plot_format)
    return _Wanted(tuple(names), plot_format)


async def _compare(
    runs: Sequence[str],
    options: CompareOptions,
    wanted: _Wanted,
    output_dir: Path | None,
    as_json: bool,
    server: str | None,
) -> int:
    from assay.client.comparing import compare_reports, reports_of
    from assay.comparison.decision import decide
    from assay.reports.comparison.comparison_report import report_of_runs

    async with reports_of(runs, server) as reports:
        comparison = compare_reports(reports, options.settings)
        report = report_of_runs(comparison, decide(comparison, options.rules), reports)
        _show(report, wanted, output_dir, as_json=as_json)
        return report.decision.exit_status


def _show(report: ComparisonReport, wanted: _Wanted, output_dir: Path | None, *, as_json: bool) -> None:
    """Print a comparison and write its reports."""
    from assay.reports.comparison.document import comparison_document
    from assay.reports.comparison.text import comparison_lines
    from assay.reports.comparison.writing import write_comparison

    if as_json:
        print_document(comparison_document(report))
    else:
        click.echo("\n".join(comparison_lines(report)))
    if wanted.names:
        folder = output_dir or _REPORTS / report.comparison_id
        written = write_comparison(report, folder, wanted.names, wanted.plot_format)
        for line in report_lines(written):
            click.echo(line, err=as_json)
