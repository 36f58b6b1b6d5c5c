"""Following a stored run to its end, from wherever it stands, and saying what came of it."""

from __future__ import annotations

import asyncio
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
from assay.model.run import RunState
from assay.reports.words.metric_text import count_text
from assay.reports.words.run_commands import resume_command
from assay.text.unsafe_text import clean, shorten, without_commands
from assay_cli.exit_status import EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED, with_status
from assay_cli.options.shared import print_document, print_line
from assay_cli.output.output_kind import Form
from assay_cli.output.report_files import print_failures
from assay_cli.output.run_documents import event_document, full
from assay_cli.output.streams import agent_stdout
from assay_cli.output.summary_rows import read_summary_rows
from assay_cli.resume_hint import pasted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from assay.agent_host.user_code import UserCode
    from assay.client.client import Client
    from assay.client.watched_rows import WatchedRows
    from assay.local_stack.stack import LocalStack
    from assay.model.run import CaseResult, Run, StateChange
    from assay.reports.ci_outputs import CiOutputs
    from assay.reports.document.prepared_rows import PreparedRows
    from assay.reports.document.report import Report
    from assay.reports.failures import Attempts
    from assay.reports.folder import ReportFolder
    from assay.specs.model import Spec
    from assay_cli.baseline_comparison import Against
    from assay_cli.output.console import ConsoleSummary

    Recording = Callable[[AsyncIterator[CaseResult], Run], AsyncIterator[CaseResult]]

_RESUME = "`assay runs resume "
_PLAIN_RESUME = re.compile(r"`assay runs resume \S+?(?: --spec SPEC)?`")
"""In the reason of a pause: the orchestrator knows neither the spec's file nor the command that started the run."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What a command that follows a run prints and writes.

    Args:
        server: The server as the user named it, for the sentence that says how to continue.
        output_dir: Where reports go; None for none.
        form: What is printed.
        again: The command that continues the run; empty for `assay runs resume`.
        no_progress: Whether no progress is shown.
        verbose: Whether each row is printed when it is finished.
        spec: The spec, for the report; None where only the run is known.
        spec_path: The spec's file, for commands to paste, where the spec itself is not needed.
        reports: What is written there.
        recorded: Takes the rows on their way into the report; None where nothing else needs them.
        ci: What is written for a CI server, beside the reports; None for nothing.
        against: Compares the run with a baseline; None for no comparison.
        out: Where results are printed.
        start: The folder that `output_dir` starts from, that of the command: agents change the current one.
    """

    server: str | None = None
    output_dir: Path | None = None
    form: Form = Form.TEXT
    again: str = ""
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
        """Return the sentence that says how a run is continued."""
        return f"Continue with: {self._continuing(run)}"

    def why_paused(self, run: Run) -> str:
        """Return why a run is paused; the command that the reason names is as this command's user gives it."""
        if _RESUME not in run.state_reason:
            return clean(run.state_reason)
        reason = _PLAIN_RESUME.sub(lambda _: f"`{self._continuing(run)}`", clean(run.state_reason))
        if self.spec_file is not None:
            reason = reason.replace(" --spec SPEC ", f" --spec {shlex.quote(str(self.spec_file))} ")
        return pasted(reason)

    def _continuing(self, run: Run) -> str:
        if self.again:
            return f"{self.again} --resume {run.run_id}"
        return resume_command(run, spec=self.spec_file, server=self.server)

    @property
    def spec_file(self) -> Path | None:
        """The spec's file, where it is known."""
        return self.spec.source if self.spec is not None else self.spec_path


def prepare_to_follow(reports: Sequence[ReportSettings]) -> None:
    """Import what following a run and writing its reports need, while the orchestrator is waited for."""
    import assay_cli.output.console
    import assay_cli.output.verbose_progress  # noqa: F401
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
    """Follow an active run until it ends or pauses, print its summary and write its report; return the exit status.

    Args:
        client: To the orchestrator.
        code: The agent and the metrics on this side; None where the orchestrator or another client has them.
        stack: The local stack, watched for services that end by themselves.
        is_watching: Whether the run may be another command's, so that Ctrl-C does not pause it.
    """
    is_own = bool(options.again) or code is not None or stack is not None
    try:
        run, watched = await _drive(client, run, options, code, stack, is_own=is_own, is_watching=is_watching)
    except asyncio.CancelledError:
        if is_own:
            return say_interrupted(run, options)
        click.echo("\nstopped watching; the run is not affected", err=True)
        return EXIT_INTERRUPTED
    except AssayError as error:
        if not is_own:
            raise
        raise type(error)(f"{error.message}\n{options.how_to_continue(run)}", reason=error.reason) from error
    # The summary says that a run has succeeded.
    if options.form is Form.TEXT and not options.again and run.state is not RunState.SUCCEEDED:
        click.echo(say_state(run, options.why_paused(run)), file=options.out)
    return await conclude(client, run, options, stack, watched)


def say_interrupted(run: Run, options: OutputOptions) -> int:
    """Say how a run is continued whose command was interrupted, and return the exit status."""
    click.echo(f"\ninterrupted: what is done is stored. {options.how_to_continue(run)}", err=True)
    return EXIT_INTERRUPTED


async def _drive(
    client: Client,
    run: Run,
    options: OutputOptions,
    code: UserCode | None,
    stack: LocalStack | None,
    *,
    is_own: bool,
    is_watching: bool,
) -> tuple[Run, WatchedRows]:
    from assay.agent_host.user_code import UserCode
    from assay.client.progress.run_progress import make_progress
    from assay.client.run_driver import drive_run
    from assay.client.service_start import telling_of_start
    from assay.client.watched_rows import WatchedRows
    from assay_cli.output.verbose_progress import VerboseProgress

    quiet = options.no_progress or options.form is Form.VERDICT
    hidden = quiet or (options.form is not Form.TEXT and not sys.stderr.isatty())
    shown = VerboseProgress(run, options.out) if options.verbose else make_progress(run, hidden=hidden)
    if is_own and options.server is None:  # another command's judge may have other prices
        shown.judge_environ = os.environ
    watched = WatchedRows(run.counts.total, prepared=_preparation(run, options))
    # Lines of events are printed as they come, without answers.
    with_answers = options.verbose or (
        options.output_dir is not None and options.form is not Form.LINES and watched.is_wanted
    )
    # What the agent prints goes to stderr: stdout is for results.
    with agent_stdout(), shown as progress:

        def take(event: Run | StateChange | CaseResult) -> None:
            progress.take(event)
            if with_answers:
                watched.take(event)
            if options.form is Form.LINES:
                print_line(event_document(event), options.out)

        async with telling_of_start(stack, progress):
            run = await drive_run(
                client,
                run,
                code or UserCode(),
                take,
                stack,
                resume=is_own,
                left_to=None if is_watching else stack,
                include_answers=with_answers,
            )
    return run, watched


def _preparation(run: Run, options: OutputOptions) -> PreparedRows | None:
    if options.output_dir is None:
        return None
    from assay.reports.writing import row_preparation

    return row_preparation(options.reports, [metric.name for metric in run.settings.metrics])


async def conclude(
    client: Client,
    run: Run,
    options: OutputOptions,
    stack: LocalStack | None = None,
    watched: WatchedRows | None = None,
) -> int:
    """Print the summary of a run that is over, write its report where one is wanted, and return the exit status.

    The local stack may stop as soon as the rows are read: nothing is asked after that.
    """
    from assay.client.run_driver import saying_how_to_report
    from assay.reports.writing import write_reports
    from assay_cli.failures import show_error
    from assay_cli.output.console import ConsoleSummary

    out, form = options.out, options.form
    if form is Form.LINES:
        print_line({"event": "end", "sequence": run.last_sequence, **full(run)}, out)
    elif form is Form.DOCUMENT:
        print_document(full(run), out)
    if run.summary is None:
        if options.again:
            why = f": {options.why_paused(run)}" if run.state_reason else ""
            click.echo(f"run {run.run_id} {run.state.value}{why}", err=True)
        if not run.finished and _RESUME not in run.state_reason:
            click.echo(options.how_to_continue(run), err=True)
        done = run.counts.finished
        results = f" with {done:,} of {run.counts.total:,} rows done" if done else ", and no row has a result"
        said = f"verdict  INCOMPLETE  rows are missing: the run is {run.state.value}{results}"
        click.echo(with_status(said, EXIT_INFRASTRUCTURE), err=True)
        return EXIT_INFRASTRUCTURE
    console = ConsoleSummary(run, out, spec=options.spec_file)
    if options.output_dir is None:
        with saying_how_to_report(run, options.server):
            if form is Form.TEXT:
                await read_summary_rows(console, client, run)
        _print_summary(console, options)
        return _print_end(run, console, options)
    rows = watched.rows(client, run) if watched is not None else client.list_results(run.run_id)
    rows = _releasing(rows, stack) if stack is not None else rows
    rows = options.recorded(rows, run) if options.recorded is not None else rows
    try:
        with saying_how_to_report(run, options.server):
            reports = await write_reports(
                run,
                _summarised(rows, console, options),
                options.reports,
                options.start / options.output_dir,
                spec=options.spec,
                also=console.take,
                document=out if form is Form.REPORT else None,
                ci=partial(_compare_and_write, options),
                prepared=watched.prepared if watched is not None else None,
                server=options.server,
            )
    except SetupError as error:  # a file cannot be written
        show_error(error)
        return _print_end(run, console, options, is_reported=False)
    reports.shown = options.output_dir
    print_failures(reports)
    return _print_end(run, console, options, reports)


async def _summarised(
    rows: AsyncIterator[CaseResult], console: ConsoleSummary, options: OutputOptions
) -> AsyncIterator[CaseResult]:
    """Yield the rows, then print the summary: a report that cannot be written must not cost the verdict."""
    async for row in rows:
        yield row
    _print_summary(console, options)


def _print_summary(console: ConsoleSummary, options: OutputOptions) -> None:
    if options.form is Form.TEXT:
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
    """Print the reports and the comparison and, in the last line, verdict and exit status; return the status.

    Args:
        run: With its summary.
        console: Has the verdict.
        options: What is printed, and with what the run was compared.
        reports: What was written; None where no report was wanted.
        is_reported: False where reports were wanted and could not be written.
    """
    from assay.gates.run_verdict import run_verdict
    from assay_cli.output.report_files import report_lines
    from assay_cli.output.terminal import painter

    assert run.summary is not None, "only a run with a summary has a verdict"
    verdict, against, form = run_verdict(run.summary).status, options.against, options.form
    status, last = verdict.exit_status, console.verdict_line()
    compared = against.lines if against is not None else ()
    if against is not None and against.decision is not None and against.overrules(status):
        status, word = against.decision.exit_status, painter(options.out)(against.decision.word.upper())
        last = f"verdict  {word}  against the baseline; the run by itself: {verdict.value}"
    if not is_reported:
        status, last = EXIT_INFRASTRUCTURE, f"{last}  (its report could not be written)"
    last = with_status(last, status)
    match form:
        case Form.TEXT:
            blocks = [report_lines(reports) if reports is not None else (), compared, (last,)]
            lines = [line for block in blocks if block for line in ("", *block)]
        case Form.VERDICT:
            lines = [*console.note_lines(), *compared[:1], *compared[1:][-1:], last]
        case _ if against is None:
            return status
        case _:  # the document on stdout does not have what the comparison adds
            click.echo(without_commands("\n".join([*compared[-1:], last])), err=True)
            return status
    click.echo(without_commands("\n".join(lines)), file=options.out)
    return status


async def _releasing(rows: AsyncIterator[CaseResult], stack: LocalStack) -> AsyncIterator[CaseResult]:
    """Yield the rows, then let the local stack stop while the reports are written."""
    async for row in rows:
        yield row
    stack.release()


def _compare_and_write(options: OutputOptions, report: Report, attempts: Attempts) -> None:
    """Compare a run with its baseline, where there is one, and write what a CI server takes."""
    against = options.against
    compared = against.compare(report) if against is not None else None
    if options.ci is not None:
        decision = against.decision if against is not None else None
        options.ci.write(report, options.out, compared, decision, attempts=attempts)


def code_of(run: Run, spec: Path | None, target: str | None) -> UserCode | None:
    """Return the run's agent and metrics where they are code on this side; None where neither is.

    Args:
        spec: The spec that started it: agent and metrics are found from that file's folder.
        target: The agent as module:function, or as a command line, found from the current folder; wins over the spec.

    Raises:
        InvalidInputError: The code is needed and was not named, cannot be loaded, or is another agent's.
    """
    from assay.errors import InvalidInputError, SpecError

    settings = run.settings
    if not settings.needs_host:
        return None
    from assay_cli.agent_process.user_agent import load_user_code

    wanted = settings.agent.target
    if settings.functions and spec is None:
        named = ", ".join(f"{name} ({place})" for name, place in settings.function_targets.items())
        raise InvalidInputError(
            f"metrics of run {run.run_id} are code on your side: {named}. Name the spec that started it with --spec"
        )
    if target is not None and not settings.functions:
        return load_user_code(replace(settings, agent=replace(settings.agent, target=target)), Path.cwd())
    if spec is None:
        raise InvalidInputError(
            f"the agent of run {run.run_id} is code on your side ({wanted}): name the spec that started the run with "
            "--spec, or the code with --agent MODULE:FUNCTION or --agent COMMAND"
        )
    from assay.specs.loader import load_spec

    loaded = load_spec(spec)
    if target is None and loaded.settings.agent.target != wanted:
        raise SpecError(
            f"run {run.run_id} asks the agent {wanted!r}, and {spec} names {loaded.settings.agent.target!r}: name the "
            "spec that started the run"
        )
    check_functions(run, loaded)
    agent = loaded.settings.agent if target is None else replace(settings.agent, target=target)
    return load_user_code(replace(settings, agent=agent), loaded.base_dir)


def check_functions(run: Run, spec: Spec) -> None:
    """Raise unless a spec names the functions that are metrics of a run: no server says which code runs here.

    Raises:
        SpecError: It does not; holds every problem.
    """
    from assay.errors import Problem, SpecError

    own = spec.settings.function_targets
    problems = [
        Problem(
            f"is {target!r} in run {run.run_id}, and {own.get(name, 'no function')!r} in this spec: name the spec that "
            "started the run",
            name,
        )
        for name, target in run.settings.function_targets.items()
        if own.get(name) != target
    ]
    if problems:
        raise SpecError(problems)


def agent_text(run: Run) -> str:
    """Return whom a run asks, in a few words."""
    if run.settings.source_run_id:
        return f"answers of {run.settings.source_run_id}"
    return f"agent {shorten(run.settings.agent.target, 60) or 'replay'}"


def say_state(run: Run, reason: str | None = None) -> str:
    """Return one line on where a run stands; `reason` replaces the sentence that is stored."""
    counts = run.counts
    said = clean(run.state_reason) if reason is None else reason
    reason = f" ({said})" if said else ""
    unscored = counts.answered - counts.finished
    answered = f"{count_text(unscored, 'further answer')} stored, " if unscored > 0 else ""
    return (
        f"{run.run_id}  {run.state.value}{reason}  {counts.finished}/{counts.total} rows, {answered}"
        f"{counts.passed} passed, {counts.failed} failed  {agent_text(run)}"
    )
