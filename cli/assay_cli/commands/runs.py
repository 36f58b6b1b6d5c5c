"""`assay runs`: what is stored, and what is going on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from assay_cli.console import ConsoleSummary, table
from assay_cli.failures import EXIT_INTERRUPTED
from assay_cli.options import connect, debug_option, json_option, run_async, server_option
from assay_cli.terminal import clean, shorten

if TYPE_CHECKING:
    from assay.results import Run

__all__ = ["runs"]


@click.group()
def runs() -> None:
    """List, show, watch, resume and cancel stored runs."""


@runs.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Most runs to list.")
@server_option
@json_option
@debug_option
def list_runs(limit: int, server: str | None, as_json: bool, debug: bool) -> int:
    """List runs, newest first."""

    async def main() -> int:
        async with connect(server) as (client, _):
            found = await client.list_runs(limit)
        if as_json:
            click.echo(json.dumps([_brief(run) for run in found], ensure_ascii=False, indent=1))
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
@server_option
@json_option
@debug_option
def show(run_id: str, server: str | None, as_json: bool, debug: bool) -> int:
    """Show one run: its state, and its summary once it has one."""

    async def main() -> int:
        async with connect(server) as (client, _):
            run = await client.get_run(run_id)
            if as_json:
                click.echo(json.dumps(_full(run), ensure_ascii=False, indent=1))
            elif run.summary is None:
                _say_state(run)
            else:
                console = ConsoleSummary(run)
                async for row in client.list_results(run_id, failed_only=True):
                    console.take(row)
                click.echo(console.render(None), nl=False)
        return 0

    return run_async(main())


@runs.command()
@click.argument("run_id")
@server_option
@debug_option
def watch(run_id: str, server: str | None, debug: bool) -> int:
    """Follow a run until it ends or pauses."""

    async def main() -> int:
        from assay.evaluation import follow
        from assay_cli.progress import make_progress

        async with connect(server) as (client, _):
            run = await client.get_run(run_id)
            try:
                with make_progress(run, hidden=False) as progress:
                    await follow(client, run_id, progress.take, resume=False)
            except asyncio.CancelledError:
                click.echo("stopped watching; the run is not affected", err=True)
                return EXIT_INTERRUPTED
            _say_state(await client.get_run(run_id))
        return 0

    return run_async(main())


@runs.command()
@click.argument("run_id")
@server_option
@debug_option
def cancel(run_id: str, server: str | None, debug: bool) -> int:
    """Stop a run for good; what is stored stays."""

    async def main() -> int:
        async with connect(server) as (client, _):
            _say_state(await client.cancel_run(run_id))
        return 0

    return run_async(main())


@runs.command()
@click.argument("run_id")
@server_option
@debug_option
def resume(run_id: str, server: str | None, debug: bool) -> int:
    """Continue a paused run and follow it.

    A run whose agent is Python code needs that code: continue it with `assay run SPEC --resume RUN`.
    """

    async def main() -> int:
        from assay.evaluation import follow
        from assay_cli.progress import make_progress

        async with connect(server) as (client, _):
            run = await client.get_run(run_id)
            if run.settings.agent.adapter == "python" and not run.finished:
                click.echo(f"this run's agent is on your side: assay run SPEC --resume {run_id}", err=True)
                return 2
            run = await client.resume_run(run_id)
            with make_progress(run, hidden=False) as progress:
                await follow(client, run_id, progress.take)
            _say_state(await client.get_run(run_id))
        return 0

    return run_async(main())


def _say_state(run: Run) -> None:
    counts = run.counts
    reason = f" ({clean(run.state_reason)})" if run.state_reason else ""
    click.echo(
        f"{run.run_id}  {run.state.value}{reason}  {counts.finished}/{counts.total} rows, "
        f"{counts.passed} passed, {counts.failed} failed  agent {shorten(run.settings.agent.target, 60) or 'replay'}"
    )


def _brief(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "name": run.settings.name,
        "state": run.state.value,
        "state_reason": run.state_reason,
        "total": run.counts.total,
        "finished": run.counts.finished,
        "passed": run.counts.passed,
        "failed": run.counts.failed,
        "created_at": run.created_at,
    }


def _full(run: Run) -> dict[str, Any]:
    import dataclasses

    summary = dataclasses.asdict(run.summary) if run.summary is not None else None
    return {
        **_brief(run),
        "agent_errors": run.counts.agent_errors,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "dataset": dataclasses.asdict(run.dataset),
        "summary": summary,
    }
