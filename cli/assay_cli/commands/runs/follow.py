"""Following a stored run to its end, from wherever it stands, and saying what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.model.run import PauseCause
from assay.text.unsafe_text import clean, shorten
from assay_cli.exit_status import EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED
from assay_cli.options import print_document, print_line
from assay_cli.output.run_documents import Form, event_document, full

if TYPE_CHECKING:
    from assay.agent_host.caller import AgentCaller
    from assay.client.client import Client
    from assay.local.stack import LocalStack
    from assay.model.run import CaseResult, Run, StateChange
    from assay_cli.output.console import ConsoleSummary

ANSWERED_HERE = frozenset({"python"})
"""Adapters whose agent is code on the user's side: whoever continues such a run answers its questions."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command that follows a run says what came of it.

    Args:
        server: The server as the user named it, for the sentence that says how to go on.
        output_dir: Where the report goes; None for no report.
        form: What is printed.
    """

    server: str | None = None
    output_dir: Path | None = None
    form: Form = Form.TEXT


async def follow_to_end(
    client: Client,
    run: Run,
    ending: Ending,
    *,
    caller: AgentCaller | None = None,
    stack: LocalStack | None = None,
) -> int:
    """Follow a run that is going on until it ends or pauses; return the exit status.

    Args:
        client: To the orchestrator.
        ending: How its end is told.
        caller: The agent on this side; None where the orchestrator asks it, or somebody else answers.
        stack: The local stack, watched for services that end by themselves.
    """
    from assay.client.progress import make_progress
    from assay.client.run_driver import drive_run
    from assay.client.starting import telling_of_start

    out = sys.stdout
    hidden = ending.form is not Form.TEXT and not sys.stderr.isatty()
    try:
        # What the agent prints goes to stderr: stdout is for results.
        with contextlib.redirect_stdout(sys.stderr), make_progress(run, hidden=hidden) as progress:

            def take(event: Run | StateChange | CaseResult) -> None:
                progress.take(event)
                if ending.form is Form.LINES:
                    print_line(event_document(event), out)

            async with telling_of_start(stack, progress):
                run = await drive_run(client, run, caller, take, stack, resume=caller is not None or stack is not None)
    except asyncio.CancelledError:
        click.echo("", err=True)
        if caller is None and stack is None:
            click.echo("stopped watching; the run is not affected", err=True)
        else:
            click.echo(f"interrupted: what is done is stored. {how_to_resume(run, ending.server)}", err=True)
        return EXIT_INTERRUPTED
    if ending.form is Form.TEXT:
        click.echo(say_state(run), file=out)
    return await conclude(client, run, ending)


async def conclude(client: Client, run: Run, ending: Ending) -> int:
    """Print the summary of a run that is over, write its report where one is wanted, and return the exit status."""
    from assay.client.run_driver import saying_how_to_report
    from assay.reports.json_report import JsonReport
    from assay_cli.exit_status import exit_status_of
    from assay_cli.output.console import ConsoleSummary

    if ending.form is Form.LINES:
        print_line({"event": "end", "sequence": run.last_sequence, **full(run)})
    elif ending.form is Form.DOCUMENT:
        print_document(full(run))
    if run.summary is None:
        if not run.finished:
            click.echo(how_to_resume(run, ending.server), err=True)
        return EXIT_INFRASTRUCTURE
    console = ConsoleSummary(run)
    path = None
    with saying_how_to_report(run, ending.server):
        if ending.output_dir is not None:
            path = ending.output_dir / "results.json"
            await JsonReport(run, None).write(path, client.list_results(run.run_id), console.take)
        elif ending.form is Form.TEXT:
            await read_for(console, client, run)
    if ending.form is Form.TEXT:
        click.echo(console.render(path), nl=False)
    return exit_status_of(run)


async def read_for(console: ConsoleSummary, client: Client, run: Run) -> None:
    """Hand a summary the stored rows that it tells of."""
    async for row in client.list_results(run.run_id, failed_only=not console.needs_all_rows):
        console.take(row)


def caller_of(run: Run, spec: Path | None, target: str | None) -> AgentCaller | None:
    """Return the run's agent where it is code on this side.

    Args:
        spec: The spec that started it: its agent is found from that file's folder.
        target: The agent as module:function, found from the current folder; wins over the spec.

    Raises:
        InvalidInputError: The code is needed and was not named, cannot be loaded, or is another agent's.
    """
    from assay.errors import InvalidInputError, SpecError

    if run.settings.agent.adapter not in ANSWERED_HERE:
        return None
    from assay_cli.agent_process.user_agent import load_caller

    wanted = run.settings.agent.target
    if target is not None:
        return load_caller(target, Path.cwd())
    if spec is None:
        raise InvalidInputError(
            f"the agent of run {run.run_id} is code on your side ({wanted}): name the spec that started the run with "
            "--spec, or the code with --agent MODULE:FUNCTION"
        )
    from assay.spec.loader import load_spec

    loaded = load_spec(spec)
    if loaded.settings.agent.target != wanted:
        raise SpecError(
            f"run {run.run_id} asks the agent {wanted!r}, and {spec} names {loaded.settings.agent.target!r}: name the "
            "spec that started the run"
        )
    return load_caller(wanted, loaded.base_dir)


def how_to_resume(run: Run, server: str | None) -> str:
    """Return the sentence that says how a run is continued."""
    where = f" --server {server}" if server else ""
    asks = run.settings.agent.adapter in ANSWERED_HERE and run.pause_cause is not PauseCause.JUDGE
    code = " --spec SPEC" if asks else ""
    return f"Continue with: assay runs resume {run.run_id}{code}{where}"


def say_state(run: Run) -> str:
    """Return one line on where a run stands."""
    counts = run.counts
    reason = f" ({clean(run.state_reason)})" if run.state_reason else ""
    return (
        f"{run.run_id}  {run.state.value}{reason}  {counts.finished}/{counts.total} rows, "
        f"{counts.passed} passed, {counts.failed} failed  agent {shorten(run.settings.agent.target, 60) or 'replay'}"
    )
