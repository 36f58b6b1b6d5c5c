"""`assay rescore`: score the stored answers of a run again, as a new run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.text.unsafe_text import clean
from assay_cli.options.cases import Marks, find_run, marks_options
from assay_cli.options.ci import ci_options
from assay_cli.options.compare import (
    CompareOptions,
    against_option,
    against_options,
    check_against,
    clustered_as,
    with_cluster,
)
from assay_cli.options.groups import CI, COMPARISON, GroupedCommand
from assay_cli.options.reports import REPORTS_FOLDER, chosen_reports, output_dir_option, report_option
from assay_cli.options.shared import (
    connect,
    json_client_options,
    prices_option,
    run_async,
    use_prices,
)

if TYPE_CHECKING:
    from assay.reports.ci_outputs import CiOutputs


_GROUPS = {
    "Common": ("spec", "metrics", "overrides", "output_dir", "report_names", "against", "server"),
    "CI": CI,
    "Comparison": COMPARISON,
}


@click.command(
    cls=GroupedCommand,
    groups=_GROUPS,
    epilog="\b\nExamples:\n  assay rescore latest --metrics exact_match,rouge\n"
    "  assay rescore latest --spec assay.yaml\n  assay rescore latest --set 'gates=[\"exact_match >= 0.9\"]'",
)
@click.argument("run")
@click.option(
    "--spec",
    type=click.Path(path_type=Path),
    help="Spec with metrics, gates and judge; its dataset and agent are not used; default: the run's settings.",
)
@click.option(
    "--metrics", metavar="A,B", help="Only these metrics, with parameters from the spec or the run; default: all."
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a value of the spec or the run, e.g. judge.model=gpt-4o; repeatable.",
)
@marks_options
@output_dir_option
@report_option("--report", default="the spec's, else json and html")
@ci_options
@against_option
@against_options
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@click.option("--quiet", is_flag=True, help="Print only the verdict, and no progress.")
@prices_option
@json_client_options
def rescore(
    run: str,
    spec: Path | None,
    metrics: str | None,
    overrides: tuple[str, ...],
    marks: Marks,
    output_dir: Path | None,
    report_names: tuple[str, ...],
    ci: CiOutputs | None,
    against: str,
    options: CompareOptions,
    no_progress: bool,
    quiet: bool,
    prices: Path | None,
    server: str | None,
    as_json: bool,
) -> int:
    """Score the stored answers of RUN again, with other metrics, thresholds or another judge.

    The result is a new run with RUN as its source. The agent is not called: answers keep their latency and usage, and
    agent errors stay errors. The exit status is that of `assay run`.
    """
    from assay.reports.atomic import check_folder
    from assay_cli.commands.run import listed_names, output_kind_of

    kind = output_kind_of(ci, as_json=as_json, quiet=quiet)
    check_against(click.get_current_context(), against)
    use_prices(prices, server)
    check_folder(output_dir or REPORTS_FOLDER)

    async def main() -> int:
        from assay.client.rescoring import rescoring_spec
        from assay.client.run_driver import StartInterruptedError, created, pause_left_run
        from assay.client.service_start import start_services_of
        from assay_cli.agent_process import load_user_code
        from assay_cli.baseline_comparison import read_baseline
        from assay_cli.commands.runs.follow import OutputOptions, follow_to_end, report_interruption

        async with connect(server) as (client, stack):
            source = await client.get_run(await find_run(client, run), partial=False)
            rescoring, left_out = rescoring_spec(
                source,
                spec,
                metrics=listed_names(metrics),
                overrides=(*with_cluster(overrides, options), *marks.overrides),
                judge_environ=None if server else os.environ,
            )
            for gate in left_out:
                note = f"the gate {clean(gate)} of run {source.run_id} is dropped: --metrics leaves out its metric"
                click.echo(f"note: {note}", err=True)
            rescoring = marks.label(rescoring)
            code = load_user_code(rescoring.settings, rescoring.base_dir)
            if stack is not None:
                start_services_of(stack, rescoring)
            chosen = clustered_as(rescoring, options)
            async with read_baseline(client, against, chosen, rescoring.settings.baseline_name) as baseline:
                if baseline is not None:
                    baseline.server = server or ""
                output = OutputOptions(
                    server,
                    output_dir,
                    kind,
                    no_progress=no_progress,
                    spec=rescoring,
                    reports=chosen_reports(report_names, rescoring.reports),
                    ci=ci,
                    against=baseline,
                )
                try:
                    started = await created(client.create_run(rescoring.settings, source.dataset.dataset_id))
                except StartInterruptedError as interrupted:
                    await pause_left_run(client, interrupted.run.run_id, stack)
                    return report_interruption(interrupted.run, output)
                output = replace(output, output_dir=output_dir or REPORTS_FOLDER / started.run_id)
                return await follow_to_end(client, started, output, code=code, stack=stack)

    return run_async(main())
