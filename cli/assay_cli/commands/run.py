"""`assay run`: evaluate an agent, from the spec to the reports."""

from __future__ import annotations

import dataclasses
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.local_stack.early_start import EarlyStart, early_start
from assay_cli.exit_status import EXIT_INTERRUPTED
from assay_cli.options.cases import Marks, find_run, marks_options, selection_options
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
    bad_case_option,
    call_orchestrator,
    connect,
    dataset_overrides,
    format_option,
    json_client_options,
    map_option,
    overrides_option,
    prices_option,
    print_warnings,
    run_async,
    use_prices,
)
from assay_cli.output.output_kind import OutputKind
from assay_cli.resume_hint import repeated_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from assay.agent_host.user_code import UserCode
    from assay.client.client import Client
    from assay.client.dataset_upload import DatasetUpload
    from assay.client.encoded_cases import EncodedCases
    from assay.client.input_checks import TakeCase
    from assay.datasets import Dataset, DatasetInfo
    from assay.local_stack.stack import LocalStack
    from assay.model.run import CaseSelection, RowResult, Run
    from assay.reports.ci_outputs import CiOutputs
    from assay.specs.model import Spec
    from assay_cli.commands.runs.follow import OutputOptions, Recording
    from assay_cli.resumption import Resumption


_ON = ("1", "true", "yes", "on")
_GROUPS = {
    "Common": ("dataset", "quick", "limit", "overrides", "repeats", "metrics", "output_dir", "report_names", "against",
               "resume_id", "verbose", "server"),
    "Case": ("cases", "tags", "categories", "failed_of", "dataset_format", "mapping", "on_bad_case"),
    "Metric and spec": ("cluster", "name", "labels", "note", "prices"),
    "Output": ("record_verdicts", "record", "no_progress", "quiet", "as_json"),
    "CI": CI,
    "Comparison": COMPARISON,
}  # fmt: skip


@click.command(
    cls=GroupedCommand,
    groups=_GROUPS,
    epilog="\b\nExamples:\n  assay run\n  assay run assay.yaml --quick\n  assay run --failed-of latest\n\n"
    "Several values of --case, --tag or --category select cases that match any of them; different options must all "
    "match. To compute one metric of recorded answers, `assay score --file` is faster (docs/scoring.md says when to "
    "use which). Everything is checked before anything is stored or called. Without --server, the needed services run "
    "on this machine for as long as the run takes. Progress goes to stderr, results to stdout.\n\n"
    "Exit status: 0 all gates hold, 1 a gate fails or the run is worse than --against, 2 the input is wrong, 3 the run "
    "is incomplete, must not be compared or could not be reported, 4 undecided with --strict, 130 interrupted.",
)
@click.argument("spec", type=click.Path(path_type=Path), default=".")
@click.option("--dataset", type=click.Path(path_type=Path), help="Dataset to run over; default: the spec's.")
@output_dir_option
@report_option("--report", default="the spec's, else its preset's, else json and html")
@ci_options
@selection_options
@click.option(
    "--failed-of",
    metavar="RUN",
    default="",
    help="Only cases with a failed row or an error in this run; default: all.",
)
@click.option(
    "--metrics", metavar="A,B", help="Only these metrics, with the spec's parameters; default: all of the spec."
)
@click.option(
    "--repeats", type=click.IntRange(1, 100), metavar="N", help="Run each case N times; default: the spec's, else 1."
)
@overrides_option
@marks_options
@click.option("--resume", "resume_id", metavar="RUN", help="Run to continue; default: start a new one.")
@against_option
@against_options
@format_option
@map_option
@bad_case_option
@click.option(
    "--record-verdicts",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the judge's verdicts, for `judge: {replay: FILE}` in a spec; an existing file is replaced; default: "
    "none.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write all answers to FILE.jsonl, a dataset for `adapter: replay`; an existing file is replaced; default: "
    "none.",
)
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@click.option("--quiet", is_flag=True, help="Print only the verdict, and no progress.")
@click.option("--verbose", is_flag=True, help="Print each finished row: question, answer, scores, verdict.")
@prices_option
@json_client_options
def run(
    spec: Path,
    dataset: Path | None,
    output_dir: Path | None,
    report_names: tuple[str, ...],
    ci: CiOutputs | None,
    selection: CaseSelection,
    failed_of: str,
    metrics: str | None,
    repeats: int | None,
    overrides: tuple[str, ...],
    marks: Marks,
    resume_id: str | None,
    against: str,
    options: CompareOptions,
    dataset_format: str | None,
    mapping: tuple[str, ...],
    on_bad_case: str | None,
    record_verdicts: Path | None,
    record: Path | None,
    no_progress: bool,
    quiet: bool,
    verbose: bool,
    prices: Path | None,
    server: str | None,
    as_json: bool,
) -> int:
    """Evaluate an agent as SPEC says, print a summary and write the reports.

    SPEC is a file or a folder with an assay.yaml; the default is this folder.
    """
    output_kind = output_kind_of(ci, as_json=as_json, quiet=quiet, verbose=verbose)
    check_against(click.get_current_context(), against)
    if repeats is not None:
        overrides = (*overrides, f"repeats={repeats}")
    overrides = with_cluster(overrides, options)
    overrides = (*overrides, *dataset_overrides(dataset_format, mapping, on_bad_case), *marks.overrides)
    use_prices(prices, server)
    start = click.get_current_context().find_object(EarlyStart) or early_start(server)
    with ExitStack() as resources:
        resources.callback(start.abandon)
        # Imported here: the orchestrator starts meanwhile.
        from assay.client.encoded_cases import EncodedCases
        from assay.reports.atomic import check_folder
        from assay_cli.commands.runs.follow import OutputOptions
        from assay_cli.output.streams import agent_stdout
        from assay_cli.resumption import resumption_of

        checked = marks.label(_load_spec(spec, overrides, dataset, metrics, start))
        start.start_embedder(checked.embedding_models(()))
        selection, failed = _find_failed(selection, failed_of, server, is_new=resume_id is None)
        encoded = resources.enter_context(EncodedCases(checked.recorded_verdicts))
        cases, info = _open_cases(checked, selection, failed, encoded.add if resume_id is None else None)
        reports = chosen_reports(report_names, checked.reports)
        check_folder(output_dir or REPORTS_FOLDER)
        plain = partial(_load_spec, spec, (), None, None, start)
        resumption = resumption_of(click.get_current_context(), resume_id, checked, info, plain)
        output = OutputOptions(
            server,
            output_dir,
            output_kind,
            rerun_command=repeated_command(click.get_current_context(), without="resume_id"),
            no_progress=no_progress,
            verbose=verbose,
            spec=checked,
            reports=reports,
            recorded=_recording(checked, cases, info, record_verdicts, record),
            ci=ci,
        )
        # before importing the agent, which may change the current folder
        baseline = str(Path(against).absolute()) if against and Path(against).is_file() else against
        with agent_stdout():  # stdout is for results: the agent's output goes to stderr
            code = _load_code(checked, info)
            comparing = clustered_as(checked, options)
            work = _Work(checked, encoded, info, resumption, baseline, comparing, code, start.stack)
            with _traced():
                return run_async(_run(work, output))


@dataclass(frozen=True, slots=True)
class _Work:
    """The checked parts of a run."""

    spec: Spec
    cases: EncodedCases
    info: DatasetInfo
    resumption: Resumption | None
    baseline: str
    comparing: CompareOptions
    code: UserCode
    stack: LocalStack | None


def _load_spec(
    spec: Path, overrides: tuple[str, ...], dataset: Path | None, metrics: str | None, start: EarlyStart
) -> Spec:
    from assay.specs.loader import find_spec_file, load_spec

    return load_spec(
        find_spec_file(spec),
        overrides=overrides,
        dataset=dataset,
        metrics=listed_names(metrics),
        environ=start.agent_environment,
        judge_environ=start.judge_environment,
    )


def output_kind_of(ci: CiOutputs | None, *, as_json: bool, quiet: bool, verbose: bool = False) -> OutputKind:
    """Return the kind of output.

    Raises:
        click.UsageError: Two options contradict each other.
    """
    options = [name for name, on in (("--json", as_json), ("--quiet", quiet), ("--verbose", verbose)) if on]
    if len(options) > 1:
        raise click.UsageError(f"{options[0]} and {options[1]} ask for different output: leave one out")
    if as_json and ci is not None and ci.annotations:
        raise click.UsageError("--annotations prints lines for GitHub: leave out --annotations or --json")
    return OutputKind.REPORT if as_json else OutputKind.VERDICT if quiet else OutputKind.TEXT


def _open_cases(
    spec: Spec, selection: CaseSelection, failed: frozenset[str], take: TakeCase | None
) -> tuple[Dataset, DatasetInfo]:
    """Return the dataset, checked with the spec; print its warnings.

    Args:
        take: Receives the cases; None if they are stored already.
    """
    from assay.client.input_checks import check_inputs

    cases = spec.open_dataset(selection, failed)
    info = check_inputs(spec, cases, take)
    print_warnings(info)
    return cases, info


def _recording(
    spec: Spec, dataset: Dataset, info: DatasetInfo, verdicts: Path | None, answers: Path | None
) -> Recording | None:
    """Return the writer of the --record-verdicts and --record files; None without either."""
    from assay.reports.atomic import check_folder
    from assay_cli.recording.answers import AnswerRecording, check_record_file
    from assay_cli.recording.verdicts import VerdictRecording, check_recording
    from assay_cli.recording.writer import recorded_rows

    recordings: list[tuple[Path, Callable[[Run], AnswerRecording | VerdictRecording]]] = []
    if verdicts is not None:
        check_recording(spec, info)
        check_folder(verdicts.parent, option="--record-verdicts")
        recordings.append((verdicts, VerdictRecording))
    if answers is not None:
        check_record_file(answers, dataset=spec.dataset, verdicts=verdicts)
        recordings.append((answers, AnswerRecording))
    if not recordings:
        return None

    paths = [
        (path.absolute(), path, recording) for path, recording in recordings
    ]  # the agent may change the current folder

    def record(rows: AsyncIterator[RowResult], run: Run) -> AsyncIterator[RowResult]:
        for path, shown, recording in paths:
            rows = recorded_rows(rows, dataset, path, shown, recording(run))
        return rows

    return record


async def _run(work: _Work, options: OutputOptions) -> int:
    import asyncio

    from assay.client.dataset_upload import DatasetUpload
    from assay.client.run_driver import StartInterruptedError, pause_left_run
    from assay_cli.baseline_comparison import read_baseline
    from assay_cli.commands.runs.follow import follow_to_end, prepare_to_follow, report_interruption

    upload = DatasetUpload(work.cases, work.info)
    preparing = asyncio.ensure_future(asyncio.to_thread(prepare_to_follow, options.reports))
    spec, info = work.spec, work.info
    judge_keys = spec.judge_keys if spec.needs_judge(info.checks) else None
    models = spec.embedding_models(info.checks)
    try:
        async with (
            connect(
                options.server,
                models,
                judge_keys=judge_keys,
                stack=work.stack,
                on_listening=upload.begin if work.resumption is None else None,
            ) as (client, stack),
            read_baseline(client, work.baseline, work.comparing, spec.settings.baseline_name) as against,
        ):
            try:
                run = await _start(client, spec, upload, info, work.resumption)
            except StartInterruptedError as interrupted:
                await pause_left_run(client, interrupted.run.run_id, stack)
                return report_interruption(interrupted.run, options)
            if against is not None:
                against.server, against.verbose = options.server or "", options.verbose
            place = options.output_dir or REPORTS_FOLDER / run.run_id
            options = dataclasses.replace(options, output_dir=place, against=against)
            return await follow_to_end(client, run, options, code=work.code, stack=stack)
    except asyncio.CancelledError:
        click.echo("\ninterrupted: no run was started", err=True)
        return EXIT_INTERRUPTED
    finally:  # the code that needs the module reports a failed import
        await upload.aclose()
        await asyncio.gather(preparing, return_exceptions=True)


async def _start(
    client: Client, spec: Spec, upload: DatasetUpload, info: DatasetInfo, resumption: Resumption | None
) -> Run:
    from assay.client.run_driver import start_run
    from assay_cli.commands.runs.follow import check_functions

    if resumption is None:
        return await start_run(client, spec, upload, info)
    stored = await client.get_run(await find_run(client, resumption.reference), partial=False)
    resumption.check(stored)
    check_functions(stored, spec)
    return stored if stored.finished else await client.resume_run(stored.run_id)


def listed_names(metrics: str | None) -> list[str] | None:
    """Return the names in --metrics; None without it."""
    return [name.strip() for name in metrics.split(",") if name.strip()] if metrics is not None else None


def _find_failed(
    selection: CaseSelection, failed_of: str, server: str | None, *, is_new: bool
) -> tuple[CaseSelection, frozenset[str]]:
    """Return the selection with the id of the --failed-of run, and its failed cases."""
    from assay.client.run_references import failed_cases

    async def find(client: Client) -> tuple[CaseSelection, frozenset[str]]:
        run_id = await find_run(client, failed_of)
        return dataclasses.replace(selection, failed_of=run_id), await failed_cases(client, run_id)

    if not failed_of or not is_new:  # a resumed run keeps its cases
        return selection, frozenset()
    selection_of_run, failed = call_orchestrator(server, find)
    # The command to continue must name this run, since `latest` will then be another one.
    click.get_current_context().params["failed_of"] = selection_of_run.failed_of
    return selection_of_run, failed


def _load_code(spec: Spec, info: DatasetInfo) -> UserCode:
    from assay.client.input_checks import check_questions
    from assay_cli.agent_process import load_user_code

    code = load_user_code(spec.settings, spec.base_dir)
    check_questions(code.agent, info, spec.settings)
    return code


@contextmanager
def _traced() -> Iterator[None]:
    """Record a span around the command, and export it when the command ends, if $ASSAY_TRACES asks for it.

    Raises:
        SetupError: The OpenTelemetry SDK is not installed.
    """
    if os.environ.get("ASSAY_TRACES", "").lower() not in _ON:
        yield
        return
    from assay.process.telemetry import traced  # imported here: most commands are not traced
    from assay.telemetry.tracing import span

    with traced("command", asked_by="ASSAY_TRACES"), span("assay run"):
        yield
