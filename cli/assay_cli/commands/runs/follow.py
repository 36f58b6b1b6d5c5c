"""Following a run to its end, then printing its summary and writing its reports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from assay.errors import AssayError, SetupError
from assay.model.report_settings import DEFAULT_REPORTS, ReportSettings
from assay.model.run import RowResult, RunState
from assay.model.views import RowView
from assay.reports.words.metric_text import count_text
from assay.reports.words.run_commands import resume_command
from assay.text.unsafe_text import clean, shorten, without_commands
from assay_cli.exit_status import EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED, with_status
from assay_cli.output.documents import print_document, print_line
from assay_cli.output.output_kind import OutputKind
from assay_cli.output.report_files import print_failures
from assay_cli.output.run_documents import event_document, full
from assay_cli.output.streams import agent_stdout
from assay_cli.resume_hint import pasted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from assay.agent_host.user_code import UserCode
    from assay.client.client import Client
    from assay.local_stack.stack import LocalStack
    from assay.model.run import Run, StateChanged
    from assay.reports.ci_outputs import CiOutputs
    from assay.reports.document.prepared_rows import PreparedRows
    from assay.reports.document.report import Report
    from assay.reports.failures import Attempts
    from assay.reports.folder import ReportFolder
    from assay.specs.model import Spec
    from assay_cli.baseline_comparison import Against
    from assay_cli.output.console import ConsoleSummary

    Recording = Callable[[AsyncIterator[RowResult], Run], AsyncIterator[RowResult]]

_RESUME = "`assay runs resume "
_PLAIN_RESUME = re.compile(r"`assay runs resume \S+?(?: --spec SPEC)?`")
"""Placeholder in the reason of a pause: the orchestrator knows neither the spec's path nor the user's command."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Output settings of a command that follows a run.

    Args:
        server: The server as the user named it, for the command to continue.
        output_dir: Folder for the reports; None for no reports.
        output_kind: Kind of output.
        rerun_command: Command that continues the run; empty for `assay runs resume`.
        no_progress: Whether to hide the progress.
        verbose: Whether to print each finished row.
        spec: The spec, for the report; None if only the run is known.
        spec_path: Path of the spec for commands in messages, if the spec itself is not needed.
        reports: Reports to write.
        recorded: Wraps the stream of rows on the way into the report, to record them; None to record nothing.
        ci: Additional output for a CI server, or None.
        against: Comparison with a baseline, or None.
        out: Output stream for results.
        start: Folder that `output_dir` is relative to: the command's, since agents may change the current folder.
    """

    server: str | None = None
    output_dir: Path | None = None
    output_kind: OutputKind = OutputKind.TEXT
    rerun_command: str = ""
    no_progress: bool = False
    verbose: bool = False
    spec: Spec | None = None
    spec_path: Path | None = None
    reports: tuple[ReportSettings, ...] = DEFAULT_REPORTS
    recorded: Recording | None = None
    ci: CiOutputs | None = None
    against: Against | None = None
    out: TextIO = field(default_factory=lambda: sys.stdout)
    start: Path = field(default_factory=Path.cwd)

    def how_to_continue(self, run: Run) -> str:
        """Return the sentence with the command that continues a run."""
        return f"Continue with: {self._continuing(run)}"

    def why_paused(self, run: Run) -> str:
        """Return why a run is paused, with the command in the reason adapted to this user's command line."""
        if _RESUME not in run.state_message:
            return clean(run.state_message)
        reason = _PLAIN_RESUME.sub(lambda _: f"`{self._continuing(run)}`", clean(run.state_message))
        if self.spec_file is not None:
            reason = reason.replace(" --spec SPEC ", f" --spec {shlex.quote(str(self.spec_file))} ")
        return pasted(reason)

    def _continuing(self, run: Run) -> str:
        if self.rerun_command:
            return f"{self.rerun_command} --resume {run.run_id}"
        return resume_command(run, spec=self.spec_file, server=self.server)

    @property
    def spec_file(self) -> Path | None:
        """Path of the spec, if known."""
        return self.spec.source if self.spec is not None else self.spec_path


def prepare_to_follow(reports: Sequence[ReportSettings]) -> None:
    """Import the modules for following and reporting a run, while the orchestrator starts."""
    import assay_cli.output.console
    import assay_cli.output.row_blocks  # noqa: F401
    from assay.reports.writing import prepare_formats

    prepare_formats(reports)


async def follow_to_end(
    client: Client,
    run: Run,
    options: OutputOptions,
    *,
    code: UserCode | None = None,
    stack: LocalStack | None = None,
    is_watching: bool = False,
) -> int:
    """Follow a run until it ends or pauses, print its summary and write its reports; return the exit status.

    Args:
        client: Client of the orchestrator.
        code: The user's agent and metrics; None if the orchestrator or another client runs them.
        stack: The local stack, watched for services that exit.
        is_watching: Whether the run may belong to another command, so that Ctrl-C must not pause it.
    """
    is_own = bool(options.rerun_command) or code is not None or stack is not None
    with contextlib.ExitStack() as resources:
        prepared = _preparation(run, options, resources)
        try:
            run = await _drive(client, run, options, code, stack, prepared, is_own=is_own, is_watching=is_watching)
        except asyncio.CancelledError:
            if is_own:
                return report_interruption(run, options)
            click.echo("\nstopped watching; the run is not affected", err=True)
            return EXIT_INTERRUPTED
        except AssayError as error:
            if not is_own:
                raise
            raise type(error)(f"{error.message}\n{options.how_to_continue(run)}", reason=error.reason) from error
        # A completed run is described by its summary.
        if options.output_kind is OutputKind.TEXT and not options.rerun_command and run.state is not RunState.COMPLETED:
            click.echo(state_line(run, options.why_paused(run)), file=options.out)
        return await conclude(client, run, options, stack, prepared)


def report_interruption(run: Run, options: OutputOptions) -> int:
    """Print how to continue an interrupted run, and return the exit status."""
    click.echo(f"\ninterrupted: finished rows are stored. {options.how_to_continue(run)}", err=True)
    return EXIT_INTERRUPTED


async def _drive(
    client: Client,
    run: Run,
    options: OutputOptions,
    code: UserCode | None,
    stack: LocalStack | None,
    prepared: _Prepared | None,
    *,
    is_own: bool,
    is_watching: bool,
) -> Run:
    from assay.agent_host.user_code import UserCode
    from assay.client.progress.run_progress import make_progress
    from assay.client.run_driver import drive_run
    from assay.client.service_start import showing_start
    from assay_cli.output.row_blocks import VerboseProgress

    hidden = _hides_progress(options)
    shown = VerboseProgress(run, options.out) if options.verbose else make_progress(run, hidden=hidden)
    if is_own and options.server is None:  # the judge of another command may have other prices
        shown.judge_environ = os.environ
    with_answers = options.verbose or prepared is not None
    # stdout is for results: the agent's output goes to stderr.
    with agent_stdout(), shown as progress:

        def take(event: Run | StateChanged | RowResult) -> None:
            progress.take(event)
            if prepared is not None and isinstance(event, RowResult):
                prepared.rows.take_soon(event)
            if options.output_kind is OutputKind.LINES:
                print_line("run-event", event_document(event), options.out)

        async with showing_start(stack, progress):
            return await drive_run(
                client,
                run,
                code or UserCode(),
                take,
                stack,
                resume=is_own,
                left_to=None if is_watching else stack,
                view=RowView.FULL if with_answers else RowView.BASIC,
            )


def _hides_progress(options: OutputOptions) -> bool:
    if options.no_progress or options.output_kind is OutputKind.VERDICT:
        return True
    return options.output_kind is not OutputKind.TEXT and not sys.stderr.isatty()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What the end of a command needs of a run's rows.

    Args:
        console: The summary.
        rows: The rows of the reports.
    """

    console: ConsoleSummary
    rows: PreparedRows


def _preparation(run: Run, options: OutputOptions, resources: contextlib.ExitStack) -> _Prepared | None:
    """Return the preparation of rows while they arrive; None if the reports can only read them at the end."""
    # Event lines are printed at once, without answers.
    if options.output_dir is None or options.output_kind is OutputKind.LINES:
        return None
    try:
        return _new_preparation(run, options, options.output_dir, resources)
    except SetupError:  # tried again and reported after the verdict
        return None


def _new_preparation(run: Run, options: OutputOptions, output_dir: Path, resources: contextlib.ExitStack) -> _Prepared:
    from assay.reports.writing import row_preparation
    from assay_cli.output.console import ConsoleSummary

    console = ConsoleSummary(run, options.out, spec=options.spec_file)
    rows = row_preparation(run, options.reports, options.start / output_dir, console.take)
    return _Prepared(console, resources.enter_context(rows))


async def conclude(
    client: Client,
    run: Run,
    options: OutputOptions,
    stack: LocalStack | None = None,
    prepared: _Prepared | None = None,
) -> int:
    """Print the summary of a finished run, write its reports if requested, and return the exit status.

    Args:
        client: Client of the orchestrator.
        run: The run.
        options: Output settings.
        stack: The local stack, which may stop once all rows are read, because no call follows.
        prepared: What was prepared of the rows while they arrived; None if nothing was.
    """
    from assay.client.run_driver import with_report_hint
    from assay_cli.output.console import ConsoleSummary

    out, output_kind = options.out, options.output_kind
    if output_kind is OutputKind.LINES:
        print_line("run-event", {"event": "end", "sequence": run.last_sequence, **full(run)}, out)
    elif output_kind is OutputKind.DOCUMENT:
        print_document("run", full(run), out)
    if run.summary is None:
        if options.rerun_command:
            why = f": {options.why_paused(run)}" if run.state_message else ""
            click.echo(f"run {run.run_id} {run.state.value}{why}", err=True)
        if not run.finished and _RESUME not in run.state_message:
            click.echo(options.how_to_continue(run), err=True)
        finished = run.counts.finished_count
        results = (
            f" with {finished:,} of {run.counts.total_count:,} rows done" if finished else ", and no row has a result"
        )
        verdict = f"verdict  INCOMPLETE  rows are missing: the run is {run.state.value}{results}"
        click.echo(with_status(verdict, EXIT_INFRASTRUCTURE), err=True)
        return EXIT_INFRASTRUCTURE
    if options.output_dir is not None:
        return await _report(client, run, options, options.output_dir, stack, prepared)
    console = ConsoleSummary(run, out, spec=options.spec_file)
    with with_report_hint(run, options.server):
        if output_kind is OutputKind.TEXT:
            await console.read(client)
    _print_summary(console, options)
    return _print_end(run, console, options)


async def _report(
    client: Client,
    run: Run,
    options: OutputOptions,
    output_dir: Path,
    stack: LocalStack | None,
    prepared: _Prepared | None,
) -> int:
    """Print the summary of a finished run, then write its reports; return the exit status.

    A report that cannot be written must not lose the verdict.
    """
    from assay.client.run_driver import with_report_hint
    from assay.reports.writing import write_prepared
    from assay_cli.failures import show_error
    from assay_cli.output.console import ConsoleSummary
    from assay_cli.output.report_progress import ReportProgress

    console = ConsoleSummary(run, options.out, spec=options.spec_file)
    is_summarised = False
    with (
        contextlib.ExitStack() as resources,
        ReportProgress(run.counts.finished_count, hidden=_hides_progress(options)) as progress,
    ):
        try:
            with with_report_hint(run, options.server):
                if prepared is None or not await prepared.rows.is_complete(run):
                    prepared = _new_preparation(run, options, output_dir, resources)
                    async for row in client.list_rows(run.run_id):
                        prepared.rows.take(row)
                        progress.count_row()
                    progress.clear()
                console = prepared.console
                console.run = run
                _print_summary(console, options)
                is_summarised = True
                if options.recorded is not None:
                    async for _ in options.recorded(client.list_rows(run.run_id), run):
                        pass
                if stack is not None:
                    stack.release()
                reports = await write_prepared(
                    run,
                    prepared.rows,
                    options.reports,
                    options.start / output_dir,
                    spec=options.spec,
                    document=options.out if options.output_kind is OutputKind.REPORT else None,
                    ci=partial(_compare_and_write, options),
                    server=options.server,
                    shown=progress.show_format,
                )
        except AssayError as error:  # the rows cannot be read, or a file cannot be written
            progress.clear()
            if not is_summarised:
                _print_summary(console, options)
            show_error(error)
            return _print_end(run, console, options, is_reported=False)
    reports.shown = output_dir
    print_failures(reports)
    return _print_end(run, console, options, reports)


def _print_summary(console: ConsoleSummary, options: OutputOptions) -> None:
    if options.output_kind is OutputKind.TEXT:
        is_last = options.output_dir is None and options.against is None
        click.echo(console.render(with_verdict=not is_last), file=options.out, nl=False)


def _print_end(
    run: Run,
    console: ConsoleSummary,
    options: OutputOptions,
    reports: ReportFolder | None = None,
    *,
    is_reported: bool = True,
) -> int:
    """Print reports, comparison and, in the last line, verdict and exit status; return the status.

    Args:
        run: The run with its summary.
        console: The console summary, with the verdict.
        options: Output settings, with the comparison.
        reports: The written reports; None if none were requested.
        is_reported: False if requested reports could not be written.
    """
    from assay_cli.output.report_files import report_lines
    from assay_cli.output.terminal import painter

    assert run.summary is not None, "only a run with a summary has a verdict"
    against, output_kind = options.against, options.output_kind
    status, last = run.summary.exit_status, console.verdict_line()
    compared = against.lines if against is not None else ()
    if against is not None and against.decision is not None and against.overrules(status):
        status, word = against.decision.exit_status, painter(options.out)(against.decision.word.upper())
        last = f"verdict  {word}  against the baseline; the run by itself: {run.summary.verdict.value}"
    if not is_reported:
        status, last = EXIT_INFRASTRUCTURE, f"{last}  (its report could not be written)"
    last = with_status(last, status)
    match output_kind:
        case OutputKind.TEXT:
            blocks = [report_lines(reports) if reports is not None else (), compared, (last,)]
            lines = [line for block in blocks if block for line in ("", *block)]
        case OutputKind.VERDICT:
            lines = [*console.note_lines(), *compared[:1], *compared[1:][-1:], last]
        case _ if against is None:
            return status
        case _:  # the document on stdout does not contain the comparison
            click.echo(without_commands("\n".join([*compared[-1:], last])), err=True)
            return status
    click.echo(without_commands("\n".join(lines)), file=options.out)
    return status


def _compare_and_write(options: OutputOptions, report: Report, attempts: Attempts) -> None:
    """Compare a run with its baseline, if any, and write the output for a CI server."""
    against = options.against
    compared = against.compare(report) if against is not None else None
    if options.ci is not None:
        decision = against.decision if against is not None else None
        options.ci.write(report, options.out, compared, decision, attempts=attempts)


def code_of(run: Run, spec: Path | None, target: str | None) -> UserCode | None:
    """Load the run's agent and metrics if they are the user's code; None if neither is.

    Args:
        spec: The spec that started the run; its folder is where agent and metrics are imported from.
        target: The agent as module:function or as a command line, relative to the current folder; overrides the spec.

    Raises:
        InvalidInputError: The code was not named, cannot be loaded, or belongs to another agent.
    """
    from assay.errors import InvalidInputError, SpecError

    settings = run.spec
    if not settings.needs_host:
        return None
    from assay_cli.agent_process import load_user_code

    target_of_run = settings.agent.target
    if settings.functions and spec is None:
        named = ", ".join(f"{name} ({place})" for name, place in settings.function_targets.items())
        raise InvalidInputError(
            f"metrics of run {run.run_id} are your own code: {named}. Name the spec that started it with --spec"
        )
    if target is not None and not settings.functions:
        return load_user_code(replace(settings, agent=replace(settings.agent, target=target)), Path.cwd())
    if spec is None:
        raise InvalidInputError(
            f"the agent of run {run.run_id} is your own code ({target_of_run}): name the spec that started the run "
            "with --spec, or the code with --agent MODULE:FUNCTION or --agent COMMAND"
        )
    from assay.specs.loader import load_spec

    loaded = load_spec(spec)
    if target is None and loaded.settings.agent.target != target_of_run:
        raise SpecError(
            f"run {run.run_id} calls the agent {target_of_run!r}, and {spec} names {loaded.settings.agent.target!r}: "
            "name the spec that started the run"
        )
    check_functions(run, loaded)
    agent = loaded.settings.agent if target is None else replace(settings.agent, target=target)
    return load_user_code(replace(settings, agent=agent), loaded.base_dir)


def check_functions(run: Run, spec: Spec) -> None:
    """Check that a spec names the functions of a run's Python metrics: a server must not choose code that runs here.

    Raises:
        SpecError: A function differs; lists every problem.
    """
    from assay.errors import Problem, SpecError

    own = spec.settings.function_targets
    problems = [
        Problem(
            f"is {target!r} in run {run.run_id}, and {own.get(name, 'no function')!r} in this spec: name the spec that "
            "started the run",
            name,
        )
        for name, target in run.spec.function_targets.items()
        if own.get(name) != target
    ]
    if problems:
        raise SpecError(problems)


def state_line(run: Run, reason: str | None = None) -> str:
    """Return a line on the state of a run; `reason` replaces the stored sentence."""
    counts = run.counts
    why = clean(run.state_message) if reason is None else reason
    reason = f" ({why})" if why else ""
    unscored = counts.answered_count - counts.finished_count
    answered = f"{count_text(unscored, 'further answer')} stored, " if unscored > 0 else ""
    agent = f"agent {shorten(run.spec.agent.target, 60) or 'replay'}"
    if run.spec.source_run_id:
        agent = f"answers of {run.spec.source_run_id}"
    return (
        f"{run.run_id}  {run.state.value}{reason}  {counts.finished_count}/{counts.total_count} rows, {answered}"
        f"{counts.passed_count} passed, {counts.failed_count} failed  {agent}"
    )
