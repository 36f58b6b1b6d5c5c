"""The Python API `assay.evaluate`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from assay.agent_host.user_code import UserCode, open_user_code
from assay.client.api.arguments import Arguments
from assay.client.api.evaluation import Evaluation
from assay.client.api.loop_thread import run_to_end
from assay.client.client import Client
from assay.client.dataset_upload import DatasetUpload
from assay.client.encoded_cases import EncodedCases
from assay.client.input_checks import check_inputs, check_questions
from assay.client.progress.run_progress import make_progress
from assay.client.run_driver import drive_run, start_run, wait_for_stack, with_report_hint
from assay.client.run_references import failed_cases, find_run_id
from assay.client.service_start import showing_start, wait_for_downloads
from assay.datasets import Dataset, DatasetInfo, records_dataset
from assay.datasets.warnings import warn_of_dataset
from assay.errors import AssayError, InvalidInputError, Problem, SetupError, SpecError
from assay.local_stack.early_start import early_start
from assay.local_stack.home import Home
from assay.local_stack.stack import LocalStack
from assay.model.report_settings import ReportSettings
from assay.model.run import CaseSelection, RowResult, Run, StateChanged
from assay.model.views import RowView
from assay.parsing.names import unknown_name
from assay.reports.atomic import check_folder
from assay.reports.document.prepared_rows import PreparedRows
from assay.reports.writing import check_formats, row_preparation, write_prepared
from assay.specs.loader import load_spec, spec_from_mapping
from assay.specs.model import Spec
from assay.specs.reports import read_reports

P = ParamSpec("P")
T = TypeVar("T")


def _naming_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Refuse an unknown argument with an error that names the nearest argument, or all of them."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs:
            if name not in parameters:
                raise TypeError(f"{function.__name__}(): {unknown_name('argument', name, parameters)}")
        return function(*args, **kwargs)

    return call


@_naming_arguments
def evaluate(
    spec: str | Path | Mapping[str, Any],
    agent: Callable[..., Any] | None = None,
    *,
    metrics: Mapping[str, Callable[..., Any] | Mapping[str, Any]] | None = None,
    dataset: str | Path | Iterable[Any] | None = None,
    select: CaseSelection | None = None,
    server: str | None = None,
    on_event: Callable[[Run | StateChanged | RowResult], None] | None = None,
    progress: bool | None = None,
    output_dir: str | Path | None = None,
    reports: Sequence[str] | None = None,
) -> Evaluation:
    """Run an evaluation and return its summary and rows.

    Within a running event loop, as in a notebook, it runs in a separate thread. Ctrl-C stops it.

    Args:
        spec: Path of a spec, or a mapping with its content.
        agent: A function of a request or of its text, called in this process instead of the spec's agent.
        metrics: Functions by metric name, called in this process instead of the spec's; a spec given as a mapping may
            leave them out. With parameters, which override the spec's: {"off_by": {"function": off_by,
            "higher_is_better": False}}.
        dataset: A file, cases as mappings, or a data frame; replaces the spec's dataset.
        select: Selection of cases; None for all.
        server: Address of an orchestrator; None for the local stack.
        on_event: Called with every snapshot and event.
        progress: Whether to show progress on stderr; None shows it unless `on_event` is given.
        output_dir: Folder for the reports; None for no reports.
        reports: Formats to write, e.g. ["json"]; None for the spec's.

    Raises:
        InvalidInputError: An argument, the spec, the dataset or the agent is wrong; lists every problem.
        AssayError: The run did not finish; the message gives its state.

    Warns:
        DatasetWarning: The dataset is suspicious.

    Example:
        >>> result = evaluate({"metrics": ["exact_match"]}, agent=answer, dataset=cases)  # doctest: +SKIP
        >>> result.summary.pass_rate  # doctest: +SKIP
    """
    return run_to_end(
        _checked(Arguments(spec, agent, metrics, dataset, select, server, on_event, progress, output_dir, reports))
    )


async def evaluate_async(
    spec: str | Path | Mapping[str, Any],
    agent: Callable[..., Any] | None = None,
    *,
    metrics: Mapping[str, Callable[..., Any] | Mapping[str, Any]] | None = None,
    dataset: str | Path | Iterable[Any] | None = None,
    select: CaseSelection | None = None,
    server: str | None = None,
    on_event: Callable[[Run | StateChanged | RowResult], None] | None = None,
    progress: bool | None = None,
    output_dir: str | Path | None = None,
    reports: Sequence[str] | None = None,
) -> Evaluation:
    """Run `evaluate` in the current event loop, which also calls an asynchronous agent."""
    return await _checked(
        Arguments(spec, agent, metrics, dataset, select, server, on_event, progress, output_dir, reports)
    )


def _checked(arguments: Arguments) -> Coroutine[Any, Any, Evaluation]:
    """Return the evaluation to await, after checking the inputs in the caller's thread, so that warnings name the
    caller's line."""
    arguments.check()
    select, server = arguments.select, arguments.server
    start = early_start(
        server, starts=select is None or not select.failed_of
    )  # otherwise the --failed-of run must be read first
    try:
        environs = start.agent_environment, start.judge_environment
        functions = _functions(arguments.metrics or {})
        checked = _spec(arguments, environs)
        if arguments.reports is not None:
            checked = replace(checked, reports=named_reports(arguments.reports))
        start.start_embedder(checked.embedding_models(()))

        def job(selection: CaseSelection, failed: Collection[str]) -> _Job:
            with contextlib.ExitStack() as resources:
                cases = resources.enter_context(EncodedCases(checked.recorded_verdicts))
                info = check_inputs(checked, _dataset(checked, arguments.dataset, selection, failed), cases.add)
                folder = Path(arguments.output_dir) if arguments.output_dir is not None else None
                if folder is not None:
                    check_folder(folder, option="output_dir")
                    check_formats(checked.reports)
                    folder = folder.absolute()  # the agent may change the current folder
                warn_of_dataset(info)
                code = open_user_code(checked.settings, checked.base_dir, agent=arguments.agent, metrics=functions)
                check_questions(code.agent, info, checked.settings)
                following = Following(checked, code, server, folder, arguments.on_event, arguments.shows_progress)
                resources.pop_all()  # the job's upload closes the cases
                return _Job(checked, cases, info, following, start.stack, arguments.agent)

        if select is not None and select.failed_of:
            return _run_failed_of(select, server, job)
        return job(select or CaseSelection(), ()).run()
    except BaseException:
        start.abandon()
        raise


async def _run_failed_of(
    select: CaseSelection, server: str | None, job: Callable[[CaseSelection, Collection[str]], _Job]
) -> Evaluation:
    async with connected(server) as (client, _):
        run_id = await find_run_id(client, select.failed_of)
        failed = await failed_cases(client, run_id)
    return await job(replace(select, failed_of=run_id), failed).run()


@dataclass(frozen=True, slots=True)
class Following:
    """Follows a started run to its end, reports it and returns it.

    Args:
        spec: Spec of the run.
        code: The user's agent and metrics in this process.
        server: Orchestrator as the caller named it; None for the local stack.
        output_dir: Folder for the reports; None for no reports.
        on_event: Called with every snapshot and event, if given.
        shown: Whether to show progress.
    """

    spec: Spec
    code: UserCode
    server: str | None
    output_dir: Path | None
    on_event: Callable[[Run | StateChanged | RowResult], None] | None
    shown: bool

    async def to_end(self, client: Client, stack: LocalStack | None, run: Run) -> Evaluation:
        """Follow a run until it ends, write its reports and return it.

        Raises:
            AssayError: The run did not finish.
        """
        watched = _WatchedRows()
        with contextlib.ExitStack() as resources:
            prepared = None
            if self.output_dir is not None:
                # A failure is tried again and reported once the rows are known.
                with contextlib.suppress(SetupError):
                    prepared = resources.enter_context(row_preparation(run, self.spec.reports, self.output_dir))
            with make_progress(run, hidden=not self.shown) as progress:
                if self.server is None:
                    progress.judge_environ = os.environ

                def take(event: Run | StateChanged | RowResult) -> None:
                    progress.take(event)
                    watched.take(event)
                    if prepared is not None and isinstance(event, RowResult):
                        prepared.take_soon(event)
                    if self.on_event is not None:
                        self.on_event(event)

                async with showing_start(stack, progress):
                    run = await drive_run(client, run, self.code, take, stack, left_to=stack, view=RowView.FULL)
            if run.summary is None:
                raise AssayError(f"run {run.run_id} {run.state.value}: {run.state_message}", reason="RUN_UNFINISHED")
            rows = await watched.rows(client, run)
            if self.output_dir is not None:
                await self._report(run, rows, prepared, self.output_dir)
        return Evaluation(run, rows)

    async def _report(
        self, run: Run, rows: Sequence[RowResult], prepared: PreparedRows | None, output_dir: Path
    ) -> None:
        """Write the requested reports of a finished run."""
        with contextlib.ExitStack() as resources, with_report_hint(run, self.server):
            if prepared is None or not await prepared.is_complete(run):
                prepared = resources.enter_context(row_preparation(run, self.spec.reports, output_dir))
                for row in rows:
                    prepared.take(row)
            reports = await write_prepared(
                run,
                prepared,
                self.spec.reports,
                output_dir,
                spec=self.spec,
                option="output_dir",
                server=self.server,
            )
        reports.attempts.warn()


@dataclass(frozen=True, slots=True)
class _Job:
    """An evaluation with checked inputs."""

    spec: Spec
    cases: EncodedCases
    info: DatasetInfo
    following: Following
    stack: LocalStack | None
    agent: Callable[..., Any] | None

    async def run(self) -> Evaluation:
        judge_keys = self.spec.judge_keys if self.spec.needs_judge(self.info.checks) else None
        models = self.spec.embedding_models(self.info.checks)
        upload = DatasetUpload(self.cases, self.info)
        async with (
            contextlib.aclosing(upload),
            connected(self.following.server, models, judge_keys, stack=self.stack, on_listening=upload.begin) as (
                client,
                stack,
            ),
        ):
            run = await start_run(client, self.spec, upload, self.info, self.agent)
            return await self.following.to_end(client, stack, run)


@asynccontextmanager
async def connected(
    server: str | None,
    models: Sequence[str] = (),
    judge_keys: Sequence[str] | None = None,
    *,
    stack: LocalStack | None = None,
    on_listening: Callable[[Client], None] | None = None,
) -> AsyncIterator[tuple[Client, LocalStack | None]]:
    """Connect to a server, or to a local stack that is started for the run and kept until this process ends.

    Args:
        server: Address of the server; None for the local stack.
        models: Embedding models that the run needs.
        judge_keys: Variables with the judge's API keys; None if no judge is needed.
        stack: A stack that was started early; None to start one here.
        on_listening: Called when a local orchestrator accepts connections, before it is ready.
    """
    if server is None and stack is None:
        stack = LocalStack(Home.open())
    try:
        if stack is not None:
            stack.start(models=models, judge=judge_keys is not None, judge_keys=judge_keys or ())
        async with Client(server or (stack.address if stack is not None else "")) as client:
            await wait_for_stack(client, stack, on_listening)
            if stack is not None:
                await wait_for_downloads(stack)
            yield client, stack
    except BaseException:
        if stack is not None:  # a run that was left active must not continue unseen
            await asyncio.shield(stack.wait_until_stopped())
        raise
    if stack is not None:
        await asyncio.shield(stack.leave())


def _spec(arguments: Arguments, environs: tuple[Mapping[str, str] | None, Mapping[str, str] | None]) -> Spec:
    environ, judge_environ = environs
    file = Path(arguments.dataset) if isinstance(arguments.dataset, str | Path) else None
    if isinstance(arguments.spec, str | Path):
        overrides = ["agent={adapter: python, target: 'caller:agent'}"] if arguments.agent is not None else []
        path = Path(arguments.spec)
        spec = load_spec(path, overrides=overrides, dataset=file, environ=environ, judge_environ=judge_environ)
        _check_named(spec, arguments.metrics or {})
        return spec
    data = _with_metrics(arguments.spec, arguments.metrics or {})
    agent = data.get("agent") or {}
    if arguments.agent is not None and isinstance(agent, Mapping):
        data["agent"] = {**agent, "adapter": "python", "target": "caller:agent"}
    return spec_from_mapping(
        data, dataset=file, needs_dataset=arguments.dataset is None, environ=environ, judge_environ=judge_environ
    )


def _functions(metrics: Mapping[str, Callable[..., Any] | Mapping[str, Any]]) -> dict[str, Callable[..., Any]]:
    """Return the functions of metrics, which may come with parameters."""
    return {name: metric["function"] if isinstance(metric, Mapping) else metric for name, metric in metrics.items()}


def _parameters(metric: object) -> dict[str, Any]:
    return {key: value for key, value in metric.items() if key != "function"} if isinstance(metric, Mapping) else {}


def _with_metrics(spec: Mapping[str, Any], metrics: Mapping[str, object]) -> dict[str, Any]:
    """Add the caller's functions as metrics to a spec; metrics that it lists keep their parameters."""
    data = dict(spec)
    listed = data.get("metrics") or []
    if not metrics or not isinstance(listed, list):
        return data
    merged: list[Any] = []
    missing = dict.fromkeys(metrics)
    for item in listed:
        name = next(iter(item), None) if isinstance(item, dict) else item
        if not isinstance(name, str) or name not in metrics:
            merged.append(item)
            continue
        missing.pop(name, None)
        parameters = (item[name] if isinstance(item, dict) else None) or {}
        function = {} if "kind" in parameters else {"function": f"caller:{name}"}
        merged.append({name: {**function, **parameters, **_parameters(metrics[name])}})
    more = ({name: {"function": f"caller:{name}", **_parameters(metrics[name])}} for name in missing)
    return {**data, "metrics": [*merged, *more]}


def _check_named(spec: Spec, metrics: Mapping[str, object]) -> None:
    """Check that a spec file lists the metrics of all given functions."""
    named = spec.settings.function_targets
    problems = [
        Problem(f"is not a Python metric of the spec: list it as `- {name}: {{function: 'metrics:{name}'}}`", name)
        for name in metrics
        if name not in named
    ]
    problems += [
        Problem(f"is set in the spec's file: write {', '.join(parameters)} there", name)
        for name, metric in metrics.items()
        if (parameters := _parameters(metric))
    ]
    if problems:
        raise SpecError(problems)


def named_reports(names: Sequence[str]) -> tuple[ReportSettings, ...]:
    """Return reports by format names.

    Raises:
        InvalidInputError: A name is unknown or repeated.
    """
    problems: list[Problem] = []
    settings = read_reports(list(names), problems)
    if problems:
        raise InvalidInputError(problems)
    return settings


def _dataset(
    spec: Spec,
    dataset: str | Path | Iterable[Any] | None,
    selection: CaseSelection,
    failed: Collection[str],
) -> Dataset:
    if dataset is not None and not isinstance(dataset, str | Path):
        return records_dataset(
            dataset,
            selection=selection,
            failed_cases=failed,
            on_bad_case=spec.on_bad_case,
            format=spec.dataset_format,
        )
    if spec.dataset is None:
        raise SpecError("name a dataset in the spec, or pass one")
    return spec.open_dataset(selection, failed)


class _WatchedRows:
    """Collects the rows of a watch with answers; a resumed watch may repeat or replace rows."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], RowResult] = {}

    def take(self, event: Run | StateChanged | RowResult) -> None:
        """Add an event of the watch."""
        if isinstance(event, RowResult):
            self._rows[event.case_index, event.repeat] = event

    async def rows(self, client: Client, run: Run) -> tuple[RowResult, ...]:
        """Return all rows of an ended run in dataset order: the collected rows if complete, else the stored ones."""
        if run.finished and len(self._rows) == run.counts.finished_count:
            return tuple(self._rows[key] for key in sorted(self._rows))
        return tuple([row async for row in client.list_rows(run.run_id)])
