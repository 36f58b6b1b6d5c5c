"""`assay runs watch | pause | resume | update | cancel`: follow and control a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.model.report_settings import DEFAULT_REPORTS
from assay_cli.commands.runs.follow import OutputOptions, code_of, conclude, follow_to_end, state_line
from assay_cli.exit_status import EXIT_INFRASTRUCTURE
from assay_cli.options.cases import find_run, labels_of
from assay_cli.options.reports import chosen_reports, report_option
from assay_cli.options.shared import (
    call_orchestrator,
    connect,
    debug_option,
    json_client_options,
    prices_option,
    run_async,
    server_option,
    use_prices,
)
from assay_cli.output.documents import print_document
from assay_cli.output.output_kind import OutputKind
from assay_cli.output.run_documents import full

if TYPE_CHECKING:
    from assay.client.client import Client
    from assay.local_stack.stack import LocalStack
    from assay.model.run import Run, SpendCap

_output_dir_option = click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Folder for the reports of the finished run; default: no reports.",
)


@click.command()
@click.argument("run_id")
@_output_dir_option
@report_option("--report", default="json and html")
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per event.")
@debug_option
def watch(
    run_id: str, output_dir: Path | None, report_names: tuple[str, ...], server: str | None, as_json: bool
) -> int:
    """Show the progress of a run until it ends or pauses.

    Resumes a run that was interrupted because the local stack stopped with its command, unless its agent is your own
    code (use `assay runs resume`). The exit status is that of `assay run`.

    \b
        assay runs watch latest
        assay runs watch latest --output-dir reports
    """
    kind = OutputKind.LINES if as_json else OutputKind.TEXT
    options = OutputOptions(server, output_dir, kind, reports=chosen_reports(report_names, DEFAULT_REPORTS))

    async def main() -> int:
        from assay.model.run import RunState

        async with connect(server) as (client, stack):
            run = await client.get_run(await find_run(client, run_id), partial=False)
            run = await _take_up(client, stack, run)
            is_over = run.finished or (run.state is RunState.PAUSED and not run.waits_for_storage)
            if is_over and not as_json:
                click.echo(state_line(run))
                return await conclude(client, run, options)
            return await follow_to_end(client, run, options, stack=stack, is_watching=True)

    return run_async(main())


async def _take_up(client: Client, stack: LocalStack | None, run: Run) -> Run:
    """Resume a run that was interrupted when its command, and with it the local stack, ended."""
    from assay.model.run import PauseCause

    if stack is None or run.pause_cause is not PauseCause.INTERRUPTED or run.spec.needs_host:
        return run
    _start_services(stack, run)
    click.echo("the run was interrupted: resuming it", err=True)
    return await client.resume_run(run.run_id)


@click.command()
@click.argument("run_id")
@json_client_options
def pause(run_id: str, server: str | None, as_json: bool) -> int:
    """Pause a run: finish the calls in flight, store their answers, and start no more.

    The run stays paused, even after a restart of the orchestrator, until `assay runs resume`.

    \b
        assay runs pause latest
    """

    async def main() -> int:
        from assay.model.run import Run, RunState, StateChanged

        async with connect(server) as (client, _):
            run = await client.pause_run(await find_run(client, run_id))
            if run.state is RunState.PAUSING:
                click.echo("finishing calls in flight; Ctrl-C stops waiting, not the pause", err=True)
                async for event in client.watch_run(run.run_id, after_sequence=run.last_sequence):
                    if isinstance(event, Run | StateChanged) and event.state is not RunState.PAUSING:
                        break
                run = await client.get_run(run.run_id, partial=False)
            _print(run, as_json)
        return 0 if run.state is RunState.PAUSED else EXIT_INFRASTRUCTURE

    return run_async(main())


@click.command()
@click.argument("run_id")
@json_client_options
def cancel(run_id: str, server: str | None, as_json: bool) -> int:
    """Cancel a run. It cannot be resumed; its stored rows are kept.

    \b
        assay runs cancel latest
    """

    async def cancelled(client: Client) -> Run:
        return await client.cancel_run(await find_run(client, run_id))

    _print(call_orchestrator(server, cancelled), as_json)
    return 0


@click.command()
@click.argument("run_id")
@click.option(
    "--spec",
    type=click.Path(path_type=Path),
    help="Spec that started the run, to host its Python agent or command; default: none.",
)
@click.option(
    "--agent",
    "target",
    metavar="TARGET",
    help="Python agent MODULE:FUNCTION or command line to host, relative to the current folder; default: none.",
)
@click.option("--retry-errors", is_flag=True, help="Also retry rows with errors, even of an ended run.")
@_output_dir_option
@report_option("--report", default="json and html")
@prices_option
@json_client_options
def resume(
    run_id: str,
    spec: Path | None,
    target: str | None,
    retry_errors: bool,
    output_dir: Path | None,
    report_names: tuple[str, ...],
    prices: Path | None,
    server: str | None,
    as_json: bool,
) -> int:
    """Resume a paused run and follow it; stored answers are kept.

    With --retry-errors, rows whose agent failed run again, and failed metrics are computed again from the stored
    answers. Earlier attempts are kept: `assay runs show RUN --history CASE`.

    A run whose agent is Python code or a command needs --spec or --agent, unless it only waits for verdicts. The exit
    status is that of `assay run`.

    \b
        assay runs resume latest --spec assay.yaml
        assay runs resume latest --retry-errors
    """
    use_prices(prices, server)
    reports = chosen_reports(report_names, DEFAULT_REPORTS)
    kind = OutputKind.DOCUMENT if as_json else OutputKind.TEXT
    options = OutputOptions(server, output_dir, kind, spec_path=spec, reports=reports)

    async def main() -> int:
        async with connect(server) as (client, stack):
            run = await client.get_run(await find_run(client, run_id), partial=False)
            asks = retry_errors or not (run.finished or run.awaits_verdicts_alone)
            code = code_of(run, spec, target) if asks or spec or target else None
            if stack is not None:
                _start_services(stack, run)
            run = await (client.retry_run if retry_errors else client.resume_run)(run.run_id)
            if run.finished:
                click.echo("no row has an error that can be retried", err=True)
                return await conclude(client, run, options)
            return await follow_to_end(client, run, options, code=code, stack=stack)

    return run_async(main())


@click.command()
@click.argument("run_id")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Add this label, or replace the label with the same key; repeatable; default: unchanged.",
)
@click.option(
    "--remove-label", "removed", multiple=True, metavar="KEY", help="Remove this label; repeatable; default: none."
)
@click.option("--note", metavar="TEXT", help='New note, "" for none; default: unchanged.')
@click.option("--weight", type=float, metavar="N", help="New weight among the runs of the team; default: unchanged.")
@click.option(
    "--spend-cap",
    metavar="USD",
    help="New spend cap for judging, in US dollars, or none; the run must be paused or have ended; default: unchanged.",
)
@json_client_options
def update(
    run_id: str,
    labels: tuple[str, ...],
    removed: tuple[str, ...],
    note: str | None,
    weight: float | None,
    spend_cap: str | None,
    server: str | None,
    as_json: bool,
) -> int:
    """Change the labels, the note, the weight or the spend cap of a run.

    \b
        assay runs update latest --label branch=fix --note "half the examples"
        assay runs update latest --spend-cap 5
    """
    cap, added = _spend_cap(spend_cap), labels_of(labels)
    if not (added or removed) and note is None and weight is None and cap is None:
        raise click.UsageError("name what to change: --label, --remove-label, --note, --weight or --spend-cap")

    async def updated(client: Client) -> Run:
        found = await find_run(client, run_id)
        changed = None
        if added or removed:
            stored = (await client.get_run(found, partial=False)).spec.labels
            changed = {key: value for key, value in {**stored, **added}.items() if key not in removed}
        return await client.update_run(found, labels=changed, note=note, weight=weight, spend_cap=cap)

    _print(call_orchestrator(server, updated), as_json)
    return 0


def _print(run: Run, as_json: bool) -> None:
    if as_json:
        print_document("run", full(run))
    else:
        click.echo(state_line(run))


def _spend_cap(text: str | None) -> SpendCap | None:
    """Return the cap that --spend-cap gives; None without it."""
    from assay.errors import InvalidInputError, Problem
    from assay.identity.quotas import nano_from_usd
    from assay.model.run import SpendCap
    from assay.specs.judging import MAX_CAP_USD

    if text is None or text == "none":
        return None if text is None else SpendCap(None)
    try:
        usd = float(text)
    except ValueError:
        usd = -1.0
    if not 0 <= usd <= MAX_CAP_USD:
        message = f"must be an amount of US dollars such as 2.50, or none, not {text!r}"
        raise InvalidInputError([Problem(message, "--spend-cap")])
    return SpendCap(nano_from_usd(usd))


def _start_services(stack: LocalStack, run: Run) -> None:
    """Start the embedder and the judge of the local stack if the run's metrics need them."""
    from assay.client.service_start import start_services_of
    from assay.specs.model import Spec

    start_services_of(stack, Spec(run.spec))
