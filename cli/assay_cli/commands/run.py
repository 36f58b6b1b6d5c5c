"""`assay run`: one evaluation from start to end."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from assay.errors import AssayError, SpecError
from assay.text.unsafe_text import clean
from assay_cli.exit_status import EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED
from assay_cli.options import (
    bad_case_option,
    connect,
    dataset_overrides,
    debug_option,
    format_option,
    json_option,
    map_option,
    prices_option,
    run_async,
    say_what_is_left_out,
    server_option,
    use_prices,
)
from assay_cli.run_options import Marks, find_run, marks_options, selection_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.agent_host.caller import AgentCaller
    from assay.client.client import Client
    from assay.datasets import Dataset, DatasetInfo
    from assay.local.stack import LocalStack
    from assay.model.run import CaseSelection, Run
    from assay.spec.model import Spec
from assay_cli.exit_status import exit_status_of

_REPORTS = Path("assay-reports")


@click.command(epilog="\b\nExamples:\n  assay run\n  assay run assay.yaml --quick\n  assay run --failed-of latest")
@click.argument("spec", type=click.Path(path_type=Path), default=".")
@click.option("--dataset", type=click.Path(path_type=Path), help="A dataset in place of the spec's.")
@click.option("--output-dir", type=click.Path(path_type=Path), help="Where reports go (assay-reports/RUN_ID).")
@selection_options
@click.option("--failed-of", metavar="RUN", default="", help="Only cases that failed in this run, or had an error.")
@click.option("--metrics", metavar="A,B", help="Only these metrics, with the spec's parameters.")
@click.option("--repeats", type=click.IntRange(1, 100), metavar="N", help="Run each case N times.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a value of the spec.")
@marks_options
@click.option("--resume", "resume_id", metavar="RUN", help="Continue this run instead of starting one.")
@format_option
@map_option
@bad_case_option
@click.option(
    "--record-verdicts",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the judge's verdicts to FILE, for `judge: {replay: FILE}` in a spec; replaces the file.",
)
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@click.option("--verbose", is_flag=True, help="Print each row when it is finished: question, answer, scores, verdict.")
@prices_option
@server_option
@json_option
@debug_option
def run(
    spec: Path,
    dataset: Path | None,
    output_dir: Path | None,
    selection: CaseSelection,
    failed_of: str,
    metrics: str | None,
    repeats: int | None,
    overrides: tuple[str, ...],
    marks: Marks,
    resume_id: str | None,
    dataset_format: str | None,
    mapping: tuple[str, ...],
    on_bad_case: str | None,
    record_verdicts: Path | None,
    no_progress: bool,
    verbose: bool,
    prices: Path | None,
    server: str | None,
    as_json: bool,
) -> int:
    """Evaluate an agent as SPEC says, print a summary and write the reports.

    SPEC is a file or a folder with an assay.yaml; the default is this folder. --case, --tag, --category and
    --failed-of select cases: each may be given several times, but for the last, and then one value must fit;
    different options must all fit.

    Everything is checked before anything is started or called. Without --server the needed services run on
    this machine for as long as the run takes. Progress goes to stderr, results to stdout.
    """
    from assay.client.run_driver import check_inputs
    from assay.datasets import open_dataset
    from assay.local.stack import environment_for
    from assay.reports.atomic import check_folder
    from assay.spec.loader import find_spec_file, load_spec
    from assay_cli.verdict_recording import check_recording

    if verbose and as_json:
        raise click.UsageError("--verbose prints rows as text: leave out --verbose or --json")
    if repeats is not None:
        overrides = (*overrides, f"repeats={repeats}")
    overrides = (*overrides, *dataset_overrides(dataset_format, mapping, on_bad_case), *marks.overrides)
    use_prices(prices, server)
    checked = load_spec(
        find_spec_file(spec),
        overrides=overrides,
        dataset=dataset,
        metrics=_names(metrics),
        environ=environment_for(server),
        judge_environ=environment_for(server, "judge"),
    )
    checked = marks.label(checked)
    assert checked.dataset is not None, "load_spec refuses a spec without a dataset"
    selection, failed = _find_failed(selection, failed_of, server, is_new=resume_id is None)
    cases = open_dataset(
        checked.dataset,
        field_map=checked.dataset_map,
        encoding=checked.dataset_encoding,
        selection=selection,
        failed_cases=failed,
        on_bad_case=checked.on_bad_case,
        format=checked.dataset_format,
    )
    info = check_inputs(checked, cases)
    for warning in info.warnings:
        click.echo(f"warning: {clean(str(warning))}", err=True)
    say_what_is_left_out(info)
    check_folder(output_dir or _REPORTS)
    if record_verdicts is not None:
        check_recording(checked, info)
        check_folder(record_verdicts.parent, option="--record-verdicts")
    again = _command_again(click.get_current_context())
    shown = _Shown(no_progress=no_progress, verbose=verbose, as_json=as_json)
    job = _Job(
        checked, cases, info, resume_id, again,
        shown=shown, output_dir=output_dir, record_verdicts=record_verdicts,
    )  # fmt: skip
    with job.stdout_guarded():
        caller = _load_caller(checked)
        return run_async(job.run(server, caller))


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a run shows: no progress, each row, one document in place of the summary."""

    no_progress: bool
    verbose: bool
    as_json: bool


class _Job:
    """One `assay run`."""

    def __init__(
        self,
        spec: Spec,
        dataset: Dataset,
        info: DatasetInfo,
        resume_id: str | None,
        again: str,
        *,
        shown: _Shown,
        output_dir: Path | None,
        record_verdicts: Path | None,
    ) -> None:
        self._record_verdicts = record_verdicts
        self._spec = spec
        self._dataset = dataset
        self._info = info
        self._resume_id = resume_id
        self._again = again
        self._shown = shown
        self._output_dir = output_dir
        self._stdout = sys.stdout

    @contextlib.contextmanager
    def stdout_guarded(self) -> Iterator[None]:
        """Send what the agent prints to stderr: stdout is for results."""
        with contextlib.redirect_stdout(sys.stderr):
            yield

    async def run(self, server: str | None, caller: AgentCaller | None) -> int:
        """Run, report, and return the exit status."""
        import asyncio

        from assay.client.run_driver import saying_how_to_report

        spec = self._spec
        judge_keys = spec.judge_keys if spec.needs_judge(self._info.checks) else None
        models = spec.embedding_models(self._info.checks)
        async with connect(server, models, judge_keys=judge_keys) as (client, stack):
            run = await self._start(client)
            try:
                run = await self._drive(client, run, caller, stack)
            except asyncio.CancelledError:
                click.echo("", err=True)
                click.echo(f"interrupted: what is done is stored. {self._resume_hint(run)}", err=True)
                return EXIT_INTERRUPTED
            except AssayError as error:
                raise type(error)(f"{error.message}\n{self._resume_hint(run)}") from error
            if run.summary is None:
                why = f": {clean(run.state_reason)}" if run.state_reason else ""
                click.echo(f"run {run.run_id} {run.state.value}{why}", err=True)
                if not run.finished:
                    click.echo(self._resume_hint(run), err=True)
                return EXIT_INFRASTRUCTURE
            with saying_how_to_report(run, server):
                return await self._report(client, run)

    async def _start(self, client: Client) -> Run:
        from assay.client.run_driver import start_run

        if self._resume_id is None:
            return await start_run(client, self._spec, self._dataset, self._info)
        stored = await client.get_run(await find_run(client, self._resume_id), partial=False)
        if stored.settings.agent.target != self._spec.settings.agent.target:
            raise SpecError(
                f"run {stored.run_id} asks the agent {stored.settings.agent.target!r}, and this spec names "
                f"{self._spec.settings.agent.target!r}: resume it with the spec that started it"
            )
        return stored if stored.finished else await client.resume_run(stored.run_id)

    async def _drive(self, client: Client, run: Run, caller: AgentCaller | None, stack: LocalStack | None) -> Run:
        from assay.client.progress import make_progress
        from assay.client.run_driver import drive_run
        from assay.client.starting import telling_of_start
        from assay_cli.output.verbose_progress import VerboseProgress

        shown = self._shown
        hidden = shown.no_progress or (shown.as_json and not sys.stderr.isatty())
        chosen = VerboseProgress(run, self._stdout) if shown.verbose else make_progress(run, hidden=hidden)
        with chosen as progress:
            async with telling_of_start(stack, progress):
                return await drive_run(client, run, caller, progress.take, stack, include_answers=shown.verbose)

    async def _report(self, client: Client, run: Run) -> int:
        from assay.reports.json_report import JsonReport
        from assay_cli.output.console import ConsoleSummary
        from assay_cli.verdict_recording import recorded_on_the_way

        assert run.summary is not None
        folder = self._output_dir or _REPORTS / run.run_id
        console = ConsoleSummary(run, self._stdout)
        report = JsonReport(run, self._spec)
        path = folder / "results.json"
        rows = client.list_results(run.run_id)
        if self._record_verdicts is not None:
            rows = recorded_on_the_way(rows, run, self._dataset, self._record_verdicts)
        await report.write(path, rows, console.take)
        if self._shown.as_json:
            report.copy_to(path, self._stdout)
        else:
            self._stdout.write(console.render(path))
        self._stdout.flush()
        return exit_status_of(run)

    def _resume_hint(self, run: Run) -> str:
        return f"Continue with: {self._again} --resume {run.run_id}"


def _names(metrics: str | None) -> list[str] | None:
    """Return the names that --metrics lists; None where it is not given."""
    return [name.strip() for name in metrics.split(",") if name.strip()] if metrics is not None else None


def _find_failed(
    selection: CaseSelection, failed_of: str, server: str | None, *, is_new: bool
) -> tuple[CaseSelection, frozenset[str]]:
    """Return the selection with the id of the run that --failed-of means, and the cases that failed in it."""
    from assay.client.run_references import failed_cases

    async def find() -> tuple[CaseSelection, frozenset[str]]:
        async with connect(server) as (client, _):
            run_id = await find_run(client, failed_of)
            return dataclasses.replace(selection, failed_of=run_id), await failed_cases(client, run_id)

    if not failed_of or not is_new:  # a run that is resumed has its cases
        return selection, frozenset()
    found, failed = run_async(find())
    # The command that continues the run names this run, not the latest one of that time.
    click.get_current_context().params["failed_of"] = found.failed_of
    return found, failed


def _load_caller(spec: Spec) -> AgentCaller | None:
    from assay_cli.agent_process.user_agent import load_caller

    agent = spec.settings.agent
    return load_caller(agent.target, spec.base_dir) if agent.adapter == "python" else None


def _command_again(context: click.Context) -> str:
    """Return the command as it was given, without --resume, quoted for a shell."""
    words = ["assay", "run"]
    for parameter in context.command.params:
        name = str(parameter.name)
        value: Any = context.params.get(name)
        if not isinstance(parameter, click.Option):
            words.append(str(value))
        elif name != "resume_id" and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = parameter.opts[0]
            if parameter.is_flag:
                words.append(option)
            for item in () if parameter.is_flag else value if parameter.multiple else (value,):
                words += (option, str(item))
    return shlex.join(words)
