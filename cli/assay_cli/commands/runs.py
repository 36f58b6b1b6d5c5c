"""`assay runs`: what is stored, and what is going on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from assay_cli.commands import run_control, run_removal
from assay_cli.following import read_for, say_state
from assay_cli.options import connect, debug_option, json_option, print_document, run_async, server_option
from assay_cli.run_documents import attempts_document, brief, full
from assay_cli.terminal import cut_width, shorten, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.results import RowAttempt, Run

__all__ = ["runs"]


@click.group()
def runs() -> None:
    """List, show, watch, pause, resume, cancel and delete stored runs."""


for _command in (
    run_control.watch,
    run_control.pause,
    run_control.resume,
    run_control.cancel,
    run_removal.delete,
    run_removal.prune,
):
    runs.add_command(_command)


@runs.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of runs to list."
)
@server_option
@json_option
@debug_option
def list_runs(limit: int, server: str | None, as_json: bool) -> int:
    """List runs, newest first."""

    async def main() -> int:
        async with connect(server) as (client, _):
            found = await client.list_runs(limit)
        if as_json:
            print_document([brief(run) for run in found])
        elif not found:
            click.echo("no runs yet: start one with `assay run SPEC`")
        else:
            rows = [("run", "state", "done", "passed", "failed", "created")]
            rows += [
                (
                    run.run_id,
                    run.state.value,
                    f"{run.counts.finished}/{run.counts.total}",
                    str(run.counts.passed),
                    str(run.counts.failed),
                    run.created_at[:19].replace("T", " "),
                )
                for run in found
            ]
            click.echo(table(rows))
        return 0

    return run_async(main())


@runs.command()
@click.argument("run_id")
@click.option("--case", "case_id", metavar="CASE", help="Everything about the rows of this case instead.")
@click.option("--failed", is_flag=True, help="Every failing row instead: question, answer, reference, error.")
@click.option("--history", metavar="CASE", help="Every attempt at this case instead, those set aside too.")
@server_option
@json_option
@debug_option
def show(run_id: str, case_id: str | None, failed: bool, history: str | None, server: str | None, as_json: bool) -> int:
    """Show one run: its state and its summary; of one that has not succeeded, over the rows there are."""
    if (case_id is not None) + failed + (history is not None) > 1:
        raise click.UsageError("--case, --failed and --history exclude each other: give one of them")

    async def main() -> int:
        async with connect(server) as (client, _):
            if history is not None:
                attempts = await client.list_attempts(run_id, history)
                if as_json:
                    print_document(attempts_document(attempts))
                else:
                    click.echo(_history_table(attempts))
                return 0
            if case_id is not None or failed:
                from assay_cli.commands.run_rows import show_case, show_failed

                if case_id is not None:
                    await show_case(client, run_id, case_id, as_json=as_json)
                else:
                    await show_failed(client, run_id, as_json=as_json)
                return 0
            run = await client.get_run(run_id)
            if as_json:
                print_document(full(run))
            elif run.summary is None:
                click.echo(_standing(run))
            else:
                if run.summary.partial or run.settings.judge is not None:
                    click.echo(f"{_standing(run)}\n")
                from assay_cli.console import ConsoleSummary

                console = ConsoleSummary(run)
                await read_for(console, client, run)
                click.echo(console.render(None), nl=False)
        return 0

    return run_async(main())


def _standing(run: Run) -> str:
    """Return where a run stands, and who judges it."""
    from assay_cli.judging_text import judge_line

    return "\n".join([say_state(run), *([judge_line(run.settings.judge)] if run.settings.judge is not None else [])])


def _history_table(attempts: Sequence[RowAttempt]) -> str:
    room = None if cut_width(sys.stdout) is None else 80
    rows = [("repeat", "attempt", "outcome", "when", "status", "verdict", "reason")]
    for attempt in attempts:
        result = attempt.result
        verdict = {True: "passed", False: "failed", None: "-"}[result.passed if result is not None else None]
        rows.append(
            (
                str(attempt.repeat_index + 1),
                str(attempt.attempt_index + 1),
                attempt.outcome.value,
                attempt.at[:19].replace("T", " "),
                result.status.value if result is not None else "-",
                verdict,
                shorten(result.reason, room) if result is not None else "the orchestrator was killed",
            )
        )
    return table(rows) if attempts else "this case has not been tried yet"
