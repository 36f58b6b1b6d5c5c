"""`assay runs`: list and show runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from assay.model.views import RunView
from assay.text.unsafe_text import shorten, without_commands
from assay_cli.commands import Group
from assay_cli.commands.runs import control, removal
from assay_cli.commands.runs.follow import state_line
from assay_cli.options.cases import find_run, labels_of
from assay_cli.options.shared import connect, json_client_options, run_async
from assay_cli.output.documents import print_document
from assay_cli.output.run_documents import attempts_document, full, listed
from assay_cli.output.terminal import cut_width, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.client import Client
    from assay.model.run import RowAttempt, Run, RunState


@click.group(cls=Group)
def runs() -> None:
    """List, show, watch, pause, resume, change, cancel and delete stored runs."""


for _command in (
    control.watch,
    control.pause,
    control.resume,
    control.update,
    control.cancel,
    removal.delete,
    removal.prune,
):
    runs.add_command(_command)


def _read_states(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[RunState, ...]:
    """Parse states such as failed,cancelled."""
    from assay.model.run import RunState
    from assay.parsing.names import unknown_name

    known = {state.value: state for state in RunState}
    names = [name.strip() for name in (value or "").split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise click.BadParameter(unknown_name("state", name, known), ctx, param)
    return tuple(known[name] for name in names)


@runs.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of runs to list."
)
@click.option("--name", default="", metavar="NAME", help="Only runs with this name; default: all.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only runs with this label; repeatable: all must match.",
)
@click.option(
    "--state", "states", callback=_read_states, metavar="A,B", help="Only runs in these states; default: all."
)
@click.option("--where", default="", metavar="FILTER", help="Only runs that match this filter; default: all.")
@click.option(
    "--sort",
    default="",
    metavar="KEY",
    help="Sort by created, ended, name, pass_rate or a metric, descending with a leading -; default: -created.",
)
@click.option(
    "--columns",
    default="",
    metavar="A,B",
    help="Additional columns: verdict, pass_rate, a metric, METRIC.pass_rate, latency.p95; default: none.",
)
@json_client_options
def list_runs(
    limit: int,
    name: str,
    labels: tuple[str, ...],
    states: tuple[RunState, ...],
    where: str,
    sort: str,
    columns: str,
    server: str | None,
    as_json: bool,
) -> int:
    """List the runs that match all conditions, newest first.

    \b
        assay runs list
        assay runs list --name triage --state failed,paused --limit 5
        assay runs list --columns pass_rate,exact_match,latency.p95,cost
        assay runs list --where "dataset:faq.json since:2026-11-01" --sort -pass_rate
        assay runs list --where "verdict:FAIL exact_match < 0.9" --sort exact_match
    """
    from assay.filters.run_filter import parse_run_order, run_conditions
    from assay_cli.commands.runs.run_columns import figure_cells, figures_document, unknown_figures

    figures = [name.strip() for name in columns.split(",") if name.strip()]

    conditions = run_conditions(where, field="--where", name=name, labels=labels_of(labels), states=states)
    parse_run_order(sort, where="--sort")

    async def main() -> int:
        async with connect(server) as (client, _):
            view = RunView.FIGURES if as_json or figures else RunView.BASIC
            stored = await client.list_runs(limit, where=conditions, order_by=sort, view=view)
        if as_json:
            print_document("runs", {"runs": [{**listed(run), **figures_document(run)} for run in stored]})
        elif not stored and conditions:
            click.echo("no run matches these conditions")
        elif not stored:
            click.echo("no runs yet: start one with `assay run SPEC`")
        else:
            rows = [("run", "state", "done", "passed", "failed", *figures, "created", "about")]
            from assay.reports.words.run_description import short

            rows += [
                (
                    run.run_id,
                    run.state.value,
                    f"{run.counts.finished_count}/{run.counts.total_count}{_waiting(run)}",
                    str(run.counts.passed_count),
                    str(run.counts.failed_count),
                    *figure_cells(run, figures),
                    run.created_at[:19].replace("T", " "),
                    short(run),
                )
                for run in stored
            ]
            click.echo(table(rows))
            for unknown in unknown_figures(stored, figures):
                click.echo(f"note: {unknown}", err=True)
        return 0

    return run_async(main())


def _waiting(run: Run) -> str:
    """Return the number of stored answers of a paused run that wait for scores; empty for none."""
    count = run.counts.answered_count - run.counts.finished_count
    return f" +{count} answered" if count > 0 else ""


@runs.command()
@click.argument("run_id")
@click.option("--case", "case_id", metavar="CASE", help="Show the rows of this case in full; default: the summary.")
@click.option("--failed", is_flag=True, help="Show all failing rows: question, answer, reference, error.")
@click.option("--where", metavar="FILTER", help="List the rows that match this filter; default: the summary.")
@click.option(
    "--sort",
    metavar="KEY",
    help="Sort the rows by latency, case, dataset or a metric, descending with a leading -; default: dataset.",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="List at most N rows; default: 50, with --failed: all."
)
@click.option(
    "--history", metavar="CASE", help="Show all attempts at this case, including replaced ones; default: the summary."
)
@json_client_options
def show(
    run_id: str,
    case_id: str | None,
    failed: bool,
    where: str | None,
    sort: str | None,
    limit: int | None,
    history: str | None,
    server: str | None,
    as_json: bool,
) -> int:
    """Show a run: its state and its summary, for an unfinished run over the rows so far.

    \b
        assay runs show latest
        assay runs show latest --failed
        assay runs show latest --where "judge_score < 0.5 category:refunds" --sort -latency
        assay runs show latest --case red-ring
    """
    if (case_id is not None) + failed + (history is not None) > 1:
        raise click.UsageError("--case, --failed and --history exclude each other: give one")
    if history is not None and (where, sort, limit) != (None, None, None):
        raise click.UsageError("--history does not take --where, --sort or --limit: leave them out")
    if case_id is not None and limit is not None:
        raise click.UsageError("--case does not take --limit: leave it out")
    from assay_cli.commands.runs.rows import RowSelection, show_case, show_failed, show_rows

    selection = RowSelection(where or "", sort or "", limit)

    async def main() -> int:
        async with connect(server) as (client, _):
            nonlocal run_id
            run_id = await find_run(client, run_id)
            if history is not None:
                attempts = await client.list_attempts(run_id, history)
                if as_json:
                    print_document("attempts", {"case_id": history, "attempts": attempts_document(attempts)})
                else:
                    click.echo(_history_table(attempts))
            elif case_id is not None or failed or (where, sort, limit) != (None, None, None):
                if case_id is not None:
                    await show_case(client, run_id, case_id, selection, as_json=as_json)
                elif failed:
                    await show_failed(client, run_id, selection, as_json=as_json)
                else:
                    await show_rows(client, run_id, selection, as_json=as_json)
            else:
                await _show_run(client, run_id, as_json=as_json)
        return 0

    return run_async(main())


async def _show_run(client: Client, run_id: str, *, as_json: bool) -> None:
    run = await client.get_run(run_id)
    if as_json:
        print_document("run", full(run))
    elif run.summary is None:
        click.echo(without_commands(_heading(run)))
    else:
        click.echo(without_commands(f"{_heading(run)}\n"))
        from assay_cli.output.console import ConsoleSummary

        console = ConsoleSummary(run)
        await console.read(client)
        click.echo(console.render(), nl=False)


def _heading(run: Run) -> str:
    """Return the lines on a run's state, settings and judge."""
    from assay.reports.words.judging_text import judge_lines
    from assay.reports.words.run_description import description_lines, selection_line

    # The cases head the summary.
    cases = selection_line(run) if run.summary is None else ""
    return "\n".join(filter(None, [state_line(run), *description_lines(run), cases, *judge_lines(run.spec)]))


def _history_table(attempts: Sequence[RowAttempt]) -> str:
    room = max(80, cut_width(sys.stdout) - 80)
    rows = [("repeat", "attempt", "outcome", "when", "status", "verdict", "message")]
    for attempt in attempts:
        result = attempt.result
        verdict = {True: "passed", False: "failed", None: "-"}[result.passed if result is not None else None]
        rows.append(
            (
                str(attempt.repeat),
                str(attempt.attempt_index + 1),
                attempt.outcome.value,
                attempt.at[:19].replace("T", " "),
                result.status.value if result is not None else "-",
                verdict,
                shorten(result.message, room) if result is not None else "the orchestrator was killed",
            )
        )
    return table(rows) if attempts else "this case has no attempt yet"
