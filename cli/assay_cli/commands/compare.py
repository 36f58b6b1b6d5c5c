"""`assay compare`: test whether one run is better than another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.errors import InvalidInputError, Problem
from assay.text.unsafe_text import without_commands
from assay_cli.commands.compare_variants import (
    VariantOptions,
    VariantsCommand,
    reports_of_variants,
    same_twice,
    variant_options,
    variant_specs,
)
from assay_cli.options.compare import CompareOptions, compare_options
from assay_cli.options.groups import COMPARISON
from assay_cli.options.reports import REPORTS_FOLDER
from assay_cli.options.shared import json_client_options, run_async
from assay_cli.output.documents import print_document
from assay_cli.output.report_files import print_failures, report_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.document.report import Report
    from assay.specs.model import Spec

_GROUPS = {
    "Common": ("baseline", "primary", "margin", "max_drop", "where", "formats", "output_dir", "verbose", "server"),
    "Variant": ("prompts", "models", "agents", "overrides", "test_cases", "spec", "model", "resume", "stop_early"),
    "Statistics and verdict": ("aa", "all_pairs", *COMPARISON),
}


@click.command(
    cls=VariantsCommand,
    groups=_GROUPS,
    epilog="\b\nExamples:\n  assay compare before/results.json after/results.json\n"
    "  assay compare baseline-20261101 latest --primary exact_match --margin 0.02\n"
    "  assay compare --prompts old.md new.md --test-cases cases.json --model openai:gpt-4o-mini\n"
    "  assay compare --prompts old.md new.md --stop-early five-looks\n\n"
    "Exit status: 0 no regression, 1 a run is worse than the first, 2 the input is wrong, 3 no data or runs that must "
    "not be compared, 4 undecided with --strict.",
)
@click.argument("runs", nargs=-1, metavar="[A B [C...]]")
@variant_options
@click.option(
    "--baseline",
    metavar="RUN",
    default="",
    help="Run that all others are compared with; default: the first.",
)
@click.option(
    "--aa",
    is_flag=True,
    help="Run the spec twice, with new verdicts, and store the difference as its noise floor.",
)
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
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@click.option(
    "--verbose",
    is_flag=True,
    help="Print everything: all metrics with tests and intervals, tables, noise floor, judge, settings; default: "
    "verdict, three metrics, lost and won cases.",
)
@json_client_options
def compare(
    runs: tuple[str, ...],
    variants: VariantOptions,
    baseline: str,
    aa: bool,
    options: CompareOptions,
    formats: tuple[str, ...],
    output_dir: Path | None,
    no_progress: bool,
    verbose: bool,
    as_json: bool,
    server: str | None,
) -> int:
    """Compare runs over the same cases: A with B, or A with each of the others.

    A run is a results.json, or a stored run: its id, a unique prefix of it, a baseline's name, or latest. Files need no
    server. Without runs, the command runs the variants of a spec, interleaved, and compares them. The primary metric
    decides, by a paired test over the cases.
    """
    from assay.client.comparison.join import check_packages, compare_stored, is_file, reports_of, with_baseline_first
    from assay.reports.atomic import check_folder

    check_packages()
    output = replace(_requested_output(formats), verbose=verbose)
    if output.names:
        check_folder(output_dir or REPORTS_FOLDER)
    if variants.stop_early and (runs or aa):
        raise click.UsageError(
            "--stop-early applies to two variants that this command runs: the rule must be chosen before the first "
            "case, and --aa measures all cases. Leave it out"
        )
    if runs and (aa or variants.is_given):
        raise click.UsageError("name stored runs to compare, or variants to run, not both")
    if baseline and not runs:
        raise click.UsageError(
            "--baseline names a run: name the runs to compare it with. The baseline of variants is the first one"
        )
    sources = with_baseline_first(runs, baseline)
    if runs and output.needs_no_rows and not any(map(is_file, sources)):
        report = run_async(compare_stored([str(run) for run in sources], server, options.settings, options.rules))
        _show(report, output, output_dir, as_json=as_json)
        return report.decision.exit_status
    specs = () if runs else _specs(variants, server, is_aa=aa)
    reading = (
        reports_of_variants(variants, specs, options.settings, server=server, hidden=no_progress or as_json)
        if specs
        else reports_of(sources, server)
    )
    at = None if any(map(is_file, sources)) else server or ""
    return run_async(_compare(reading, options, output, output_dir, at, as_json=as_json, is_aa=aa))


def _specs(variants: VariantOptions, server: str | None, *, is_aa: bool) -> list[Spec]:
    """Return a checked spec per run; for A/A the same spec twice, the second with its own verdicts.

    Raises:
        click.UsageError: No variants are named.
    """
    from assay.local_stack.stack import environment_for
    from assay.specs.loader import SPEC_FILE
    from assay.specs.variants import has_variants

    environs = environment_for(server), environment_for(server, "judge")
    if is_aa:
        return same_twice(variants, environs)
    if not variants.is_given and not (Path(SPEC_FILE).is_file() and has_variants(Path())):
        raise click.UsageError(
            "nothing to compare: name two runs, or variants with --prompts, --models, --agents or `variants:` "
            "in the spec"
        )
    return variant_specs(variants, environs)


@dataclass(frozen=True, slots=True)
class _Output:
    """Requested output: report formats, plot format, verbosity, and the folder that relative paths start from."""

    names: tuple[str, ...]
    plot_format: str
    verbose: bool = False
    start: Path = field(default_factory=Path.cwd)

    @property
    def needs_no_rows(self) -> bool:
        """Whether all formats need only figures."""
        return set(self.names) <= {"markdown", "charts"}


def _requested_output(formats: Sequence[str]) -> _Output:
    """Return the formats that --format names.

    Raises:
        InvalidInputError: A format or one of its options is wrong.
        SetupError: A package that a format needs is missing.
    """
    from assay.reports.comparison.writing import check_comparison_formats

    names: dict[str, None] = {}
    plot_format = "png"
    for entry in (name.strip() for value in formats for name in value.split(",") if name.strip()):
        name, colon, option = entry.partition(":")
        key, _, value = option.partition("=")
        if colon and (name, key) != ("charts", "plot_format"):
            raise InvalidInputError(
                [Problem("has no such option: charts has plot_format=png or svg", f"--format {entry}")]
            )
        names[name] = None
        plot_format = value if colon else plot_format
    check_comparison_formats(tuple(names), plot_format)
    return _Output(tuple(names), plot_format)


async def _compare(
    reading: AbstractAsyncContextManager[list[Report]],
    options: CompareOptions,
    output: _Output,
    output_dir: Path | None,
    server: str | None,
    *,
    as_json: bool,
    is_aa: bool,
) -> int:
    """Compare runs by their reports; `server` is None if one of them is a file."""
    from assay.client.comparison.join import compare_reports
    from assay.client.comparison.noise_floors import store_floor
    from assay.comparison.decision import decide
    from assay.local_stack.home import Home
    from assay.reports.comparison.document.comparison_report import report_of_runs

    async with reading as reports:
        comparison = compare_reports(reports, options.settings)
        report = replace(report_of_runs(comparison, decide(comparison, options.rules), reports), server=server)
        _show(report, output, output_dir, as_json=as_json, decides=not is_aa)
        if not is_aa:
            return report.decision.exit_status
        store_floor(Home.open(), reports[0].head, comparison)
        sentence = "noise floor: stored for this spec and dataset; later comparisons show it (exit status 0)"
        click.echo(sentence, err=as_json)
        return 0


def _show(
    report: ComparisonReport, output: _Output, output_dir: Path | None, *, as_json: bool, decides: bool = True
) -> None:
    """Print a comparison, write its reports, and repeat the decision in the last line."""
    from assay.reports.comparison.formats.json_document import comparison_document
    from assay.reports.comparison.formats.short_text import short_lines
    from assay.reports.comparison.formats.text import comparison_lines
    from assay.reports.comparison.writing import write_comparison

    *lines, decision = (comparison_lines if output.verbose else short_lines)(report)
    if as_json:
        print_document("comparison", comparison_document(report))
    else:
        click.echo(without_commands("\n".join([*lines, *([decision] if decides else [])])))
    if not output.names:
        return
    folder = output_dir or REPORTS_FOLDER / report.comparison_id
    # A variant's agent may have changed the current folder.
    written = write_comparison(report, output.start / folder, output.names, output.plot_format)
    written.shown = folder
    for line in report_lines(written):
        click.echo(line, err=as_json)
    print_failures(written)
    if decides and not as_json:
        click.echo(without_commands(decision))
