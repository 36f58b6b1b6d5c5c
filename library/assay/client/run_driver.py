"""Driver of an evaluation, from the dataset check to the last row, shared by `assay run` and `assay.evaluate`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import tempfile
import uuid
from typing import IO, TYPE_CHECKING, Any

from assay.agent_host.concurrency.event_loop import until_user_exit
from assay.client.unfed_metrics import unfed_metrics
from assay.comparison.stopping import shuffled
from assay.datasets.counts import count_cases
from assay.datasets.unused_fields import unscored_turns, unused_fields
from assay.errors import (
    AssayError,
    DatasetError,
    NotFoundError,
    Problem,
    SpecError,
    UnavailableError,
    further_problems,
)
from assay.judging.recorded_verdicts import CasesWithVerdicts
from assay.metrics.assertions import why_unmade
from assay.metrics.checks.unmade_checks import NO_JUDGE_FOR_IT, not_made
from assay.model.cluster_key import cluster_of, missing_cluster
from assay.model.run import DatasetReading, PauseCause, RowResult, Run, RunState, StateChanged
from assay.model.views import RowView
from assay.process.failpoints import failpoint
from assay.specs.approvals import why_unusable
from assay.specs.doubtful_criteria import doubtful_criteria, missing_groups
from assay.v1 import case_pb2 as pb
from assay.wire.case import case_from_wire, case_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from assay.agent_host.protocol import Caller
    from assay.agent_host.user_code import UserCode
    from assay.client.client import Client
    from assay.client.dataset_upload import DatasetUpload
    from assay.datasets import Dataset, DatasetInfo
    from assay.local_stack.stack import LocalStack
    from assay.model.case import Case
    from assay.model.run_spec import RunSpec
    from assay.model.stored_dataset import StoredDataset
    from assay.specs.model import Spec

STARTUP_TIMEOUT_S = 120.0
_SERVER_TIMEOUT_S = 5.0
_CREATE_GRACE_S = 5.0
_PAUSE_S = 2.0
_MOST_PROBLEMS = 50
_MOST_WARNINGS = 100
_MAX_WARNING_CHARS = 1000
_MAX_FIELD_CHARS = 500


def check_inputs(spec: Spec, dataset: Dataset) -> DatasetInfo:
    """Read and check the whole dataset, before anything is started or called; return its description.

    Warnings cover data that no metric reads, metrics and checks that cannot be computed, and gates and thresholds that
    cannot fail or cannot hold.

    Raises:
        DatasetError: The dataset is wrong or does not fit the spec; lists every problem.
        SpecError: The checks need a judge that cannot be called.
    """
    info = dataset.check()
    if spec.judge_problems and spec.needs_judge(info.checks):
        raise SpecError(spec.judge_problems)
    if spec.settings.agent.adapter == "replay" and info.recorded_count < info.case_count:
        missing = info.case_count - info.recorded_count
        raise DatasetError(
            [
                Problem(
                    f"the replay adapter needs a recorded answer in every case, and {missing} of {info.case_count} "
                    "have none: add a `recorded` field, or use another adapter",
                    file=info.name,
                )
            ]
        )
    _check_approvals(spec, info)
    _check_cluster(spec, dataset)
    repeated = _check_repeats(spec, dataset, info)
    _check_prompts(spec, dataset, info)
    warnings = [
        *repeated,
        *unused_fields(info.optional_fields, spec.settings.metrics, info.name),
        *_unmade(spec, info),
        *unfed_metrics(spec, info),
        *doubtful_criteria(spec),
        *_missing_groups(spec, dataset),
    ]
    if spec.recorded_verdicts is not None:
        warnings += spec.recorded_verdicts.warnings(dataset, spec.settings.metrics)
    if spec.settings.agent.adapter == "replay" and spec.settings.turns != "last":
        warnings += unscored_turns(info.optional_fields, info.name)
    return dataclasses.replace(info, warnings=(*info.warnings, *warnings)) if warnings else info


def _check_approvals(spec: Spec, info: DatasetInfo) -> None:
    """Refuse cases with approvals if the agent cannot receive them."""
    if info.approvals_count and (unusable := why_unusable(spec.settings.agent)):
        message = f"{info.approvals_count:,} of {info.case_count:,} cases have `approvals`: {unusable}"
        raise DatasetError([Problem(message, file=info.name)])


def _check_cluster(spec: Spec, dataset: Dataset) -> None:
    """Refuse a cluster key that no case has: every case would be its own cluster."""
    key = spec.settings.cluster
    if key and not any(cluster_of(key, case.category, case.tags) for case in dataset.cases()):
        raise SpecError([spec.place("cluster", missing_cluster(key))])


def _unmade(spec: Spec, info: DatasetInfo) -> Iterator[Problem]:
    """Yield a warning about checks that no answer can satisfy or fail, such as judged checks without a judge."""
    if not any(metric.kind == "assertions" for metric in spec.settings.metrics):
        return
    reasons = {kind: why_unmade(kind, has_judge=bool(spec.settings.judges)) for kind in info.checks}
    unmade = {kind: {why: info.checks[kind]} for kind, why in reasons.items() if why}
    if reason := not_made(unmade, sum(info.checks.values())):
        remedy = ". Name a judge under `judge` in the spec" if NO_JUDGE_FOR_IT in reasons.values() else ""
        yield Problem(
            f"{reason}; rows with such a check are undecided, and the run is INCOMPLETE{remedy}", file=info.name
        )


def _missing_groups(spec: Spec, dataset: Dataset) -> Iterator[Problem]:
    """Yield a warning for every gate on a category or tag that no case has."""
    if not any(gate.startswith(("category.", "tag.")) for gate in spec.settings.gates):
        return
    counts, _ = count_cases(dataset.cases())
    if not counts.uncounted_categories and not counts.uncounted_tags:
        yield from missing_groups(spec, {"category": counts.categories, "tag": counts.tags})


def check_questions(agent: Caller | None, info: DatasetInfo, settings: RunSpec | None = None) -> None:
    """Refuse cases without a question, and approvals, if the agent receives only the question.

    Args:
        agent: Caller of the agent in this process; None if the orchestrator calls it.
        info: Description of the dataset.
        settings: Settings of the run; None to check only the agent.

    Raises:
        DatasetError: A case has variables but no question, or approvals that the agent does not receive.
        SpecError: The spec has approvals that the agent does not receive.
    """
    asks_with_text = getattr(agent, "asks_with_text", False)
    if asks_with_text and settings is not None and settings.agent.adapter == "python":
        # An adapter of a framework asks with the text, and resumes the agent itself.
        remedy = "the agent receives the question alone: name its parameter `request` to receive them, or remove them"
        if settings.approvals:
            raise SpecError([Problem(remedy, "approvals")])
        if info.approvals_count:
            remedy = f"{info.approvals_count:,} of {info.case_count:,} cases have `approvals`, and {remedy}"
            raise DatasetError([Problem(remedy, file=info.name)])
    if info.textless_count and asks_with_text:
        message = (
            f"{info.textless_count:,} of {info.case_count:,} cases have variables and no question, and the agent "
            "receives the question alone: name its parameter `request` to receive the variables too, or map a "
            "field to `input`"
        )
        raise DatasetError([Problem(message, file=info.name)])


def _check_repeats(spec: Spec, dataset: Dataset, info: DatasetInfo) -> list[Problem]:
    """Refuse recorded answers that are fewer than the repeats of the run; warn where one stands for all of them."""
    repeats = spec.settings.repeats
    if spec.settings.agent.adapter != "replay" or repeats == 1:
        return []
    single = short = 0
    problems: list[Problem] = []
    for case in dataset.cases():
        count = len(case.recordings)
        single += count <= 1
        short += 1 < count < repeats
        if 1 < count < repeats and short <= _MOST_PROBLEMS:
            message = (
                f"holds {count} recorded answers, and the run has {repeats} repeats: record as many, or one for all"
            )
            problems.append(Problem(message, f"case {case.case_id}", file=info.name))
    if problems:
        raise DatasetError([*problems, *further_problems(short - len(problems), file=info.name)])
    is_compared = any(metric.kind == "consistency" for metric in spec.settings.metrics)
    if not single or not is_compared:
        return []
    said = f"{single:,} of {info.case_count:,} cases have a single recorded answer, which all repeats share"
    return [Problem(f"{said}: consistency is always 1 there", file=info.name)]


def _check_prompts(spec: Spec, dataset: Dataset, info: DatasetInfo) -> None:
    """Refuse cases that lack a variable of the spec's prompt."""
    agent = spec.settings.agent
    if not agent.fills_prompt:
        return
    from assay.specs.prompt_options import PromptOptions
    from assay.specs.prompt_template import case_problems

    templates = PromptOptions.from_options(agent.adapter, agent.options, []).templates
    problems = (
        Problem(f"does not fit the prompt: {message}", f"case {case.case_id}", file=info.name)
        for case in dataset.cases()
        for message in case_problems(templates, case)
    )
    if shown := list(itertools.islice(problems, _MOST_PROBLEMS)):
        raise DatasetError([*shown, *further_problems(sum(1 for _ in problems), file=info.name)])


async def wait_for_stack(
    client: Client, stack: LocalStack | None, on_listening: Callable[[Client], None] | None = None
) -> None:
    """Wait until the orchestrator is ready.

    Args:
        client: Client of the orchestrator.
        stack: The local stack; None for a server.
        on_listening: Called as soon as a local orchestrator accepts connections; it answers calls once it is ready.

    Raises:
        SetupError: The local orchestrator exited.
        UnavailableError: The orchestrator cannot be reached.
    """
    if stack is None:
        try:
            await client.wait_for_ready(_SERVER_TIMEOUT_S)
        except UnavailableError as error:
            raise UnavailableError(
                f"no orchestrator answers at {client.address}: check that it runs and that the address is right",
                reason=error.reason,
            ) from error
        return
    # gRPC retries a refused connection only after a growing backoff, so connect once the socket exists.
    give_up_at = asyncio.get_running_loop().time() + STARTUP_TIMEOUT_S
    while not stack.listens and asyncio.get_running_loop().time() < give_up_at:
        stack.check()
        stack.start_missing()  # a stack that another command started may have stopped meanwhile
        await asyncio.sleep(0.01)
    if on_listening is not None and stack.listens:
        on_listening(client)
    await stack.watched(client.wait_for_ready(STARTUP_TIMEOUT_S))


async def start_run(
    client: Client,
    spec: Spec,
    upload: DatasetUpload,
    info: DatasetInfo,
    agent: Callable[..., object] | None = None,
) -> Run:
    """Upload the dataset and create the run.

    Args:
        client: Client of the orchestrator.
        spec: Spec of the run.
        upload: Upload of its dataset.
        info: Description of the dataset.
        agent: A function that replaces the spec's agent.
    """
    identifying = asyncio.ensure_future(_with_code(spec, agent))
    stored = await upload.finish(client)
    (run,) = await _create_runs(client, [await identifying], stored, upload.cases, info)
    return run


async def _with_code(spec: Spec, agent: Callable[..., object] | None = None) -> Spec:
    """Return the spec with the identity of its agent's code."""
    from assay.agent_host.code_identity import code_identity  # imported here: the upload continues meanwhile

    code = await asyncio.to_thread(code_identity, spec.settings.agent, spec.base_dir, agent)
    return dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, code=code))


async def start_runs(client: Client, specs: Sequence[Spec], dataset: Dataset, info: DatasetInfo) -> list[Run]:
    """Upload the dataset once and create a run per spec; all specs share dataset and judge.

    Runs that may stop early get the cases in the order of their settings. If a run is refused, the runs before it are
    cancelled.
    """
    recorded, stopping = specs[0].recorded_verdicts, specs[0].settings.stopping
    cases = dataset if recorded is None else CasesWithVerdicts(dataset, recorded)
    with contextlib.ExitStack() as stack:
        ordered = cases if stopping is None else stack.enter_context(shuffled_cases(cases, stopping.seed))
        stored = await client.upload_dataset(ordered, name=info.name)
        coded = [await _with_code(spec) for spec in specs]
        return await _create_runs(client, coded, stored, ordered, info)


async def _create_runs(
    client: Client, specs: Sequence[Spec], stored: StoredDataset, cases: Iterable[Case], info: DatasetInfo
) -> list[Run]:
    failpoint("client.dataset_uploaded")
    runs: list[Run] = []
    try:
        for spec in specs:
            request_id = str(uuid.uuid4())
            settings = settings_of_run(spec, info)
            try:
                run = await created(client.create_run(settings, stored.dataset_id, request_id=request_id))
            except NotFoundError:
                # The dataset was deleted just now, by another client or by retention.
                stored = await client.upload_dataset(cases, name=info.name)
                run = await created(client.create_run(settings, stored.dataset_id, request_id=request_id))
            runs.append(run)
    except AssayError:
        for run in runs:
            with contextlib.suppress(AssayError):  # report the error of the refused run
                await client.cancel_run(run.run_id)
        raise
    failpoint("client.run_created")
    return runs


class StartInterruptedError(asyncio.CancelledError):
    """The task was cancelled while a run was being created; the run exists."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.run_id)
        self.run = run


async def created(creating: Coroutine[Any, Any, Run]) -> Run:
    """Return the run that a call creates; if the caller is cancelled, raise with the run.

    Raises:
        StartInterruptedError: The caller was cancelled.
    """
    call = asyncio.ensure_future(creating)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        finished, _ = await asyncio.wait([call], timeout=_CREATE_GRACE_S)
        if finished and call.exception() is None:
            raise StartInterruptedError(call.result()) from None
        call.cancel()
        raise


def settings_of_run(spec: Spec, info: DatasetInfo) -> RunSpec:
    """Return the settings of a spec's run over its dataset."""
    return dataclasses.replace(spec.settings, dataset=_reading(info), selection=info.selection)


def _reading(info: DatasetInfo) -> DatasetReading:
    """Return the stored description of the source of the cases, with long texts cut.

    The verdict depends on it: a run that left out bad records cannot pass.
    """
    return DatasetReading(
        file=info.name[-_MAX_FIELD_CHARS:],
        format=info.format,
        sha256=info.sha256,
        mapping={name: source[:_MAX_FIELD_CHARS] for name, source in info.mapping.items()},
        skipped_count=info.skipped_count,
        left_out_count=info.left_out_count,
        warnings=tuple(str(warning)[:_MAX_WARNING_CHARS] for warning in info.warnings[:_MOST_WARNINGS]),
        checks=info.checks,
        copy_count=info.copy_count,
        first_copy=info.first_copy,
        approvals_count=info.approvals_count,
    )


async def drive_run(
    client: Client,
    run: Run,
    code: UserCode,
    listener: Callable[[Run | StateChanged | RowResult], None],
    stack: LocalStack | None = None,
    *,
    resume: bool = True,
    left_to: LocalStack | None = None,
    view: RowView = RowView.BASIC,
) -> Run:
    """Host the run's agent and metrics, if they are the user's code, and follow the run until it ends or pauses.

    Args:
        client: Client of the orchestrator.
        run: The active run.
        code: The user's agent and metrics in this process.
        listener: Called with every snapshot and event.
        stack: The local stack, watched for services that exit.
        resume: Whether to resume the run if a restart of the orchestrator interrupts it.
        left_to: The local stack that would continue the run after a cancellation or an error; the run is then paused.
            None to leave the run unchanged.
        view: Which fields the listener\'s rows have.

    Returns:
        The run in its last state.

    Raises:
        UserExitError: The user's code asked the process to exit.
    """
    watching = asyncio.ensure_future(follow(client, run.run_id, listener, resume=resume, view=view))
    tasks: set[asyncio.Future[None]] = {watching}
    if not code.is_empty:
        concurrency = run.spec.agent.concurrency
        hosting = client.host_agent(run.run_id, code.agent, concurrency=concurrency, metrics=code.metrics)
        tasks |= {asyncio.ensure_future(hosting), asyncio.ensure_future(until_user_exit(run.run_id))}
    if stack is not None:
        tasks.add(asyncio.ensure_future(guard_stack(stack)))
    is_left = False
    try:
        while not watching.done():
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in finished - {watching}:
                tasks.discard(task)
                task.result()
        watching.result()
    except BaseException:
        is_left = True
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if is_left:
            await pause_left_run(client, run.run_id, left_to)
    failpoint("client.run_followed")
    return await client.get_run(run.run_id, partial=False)


async def pause_left_run(client: Client, run_id: str, stack: LocalStack | None) -> None:
    """Pause a run whose command was interrupted, if the local stack lives on and would continue it unseen.

    Args:
        client: Client of the orchestrator.
        run_id: Id of the run.
        stack: The local stack; None for a server, whose runs continue.
    """
    if stack is None or not stack.outlives_command:
        return
    with contextlib.suppress(AssayError, TimeoutError):
        async with asyncio.timeout(_PAUSE_S):
            await client.pause_run(run_id)


async def follow(
    client: Client,
    run_id: str,
    listener: Callable[[Run | StateChanged | RowResult], None],
    *,
    resume: bool = True,
    view: RowView = RowView.BASIC,
) -> None:
    """Pass every snapshot and event of a run to the listener until the run ends or pauses.

    A run that waits for storage resumes by itself, so following continues.

    Args:
        client: Client of the orchestrator.
        listener: Called with every snapshot and event.
        resume: Whether to resume a run that paused because of a restart of the orchestrator or a missing host; a run
            that its owner paused stays paused.
        view: Which fields the rows have.
    """
    may_resume = False
    async for event in client.watch_run(run_id, view=view):
        listener(event)
        if isinstance(event, Run):
            # Another snapshot means that the connection was lost, perhaps by a restart of the orchestrator.
            may_resume = resume
        paused = await _paused(client, run_id, event)
        if paused is None or paused.waits_for_storage:
            continue
        if not may_resume or paused.pause_cause not in (PauseCause.INTERRUPTED, PauseCause.UNATTENDED):
            return
        may_resume = False
        await client.resume_run(run_id)


async def _paused(client: Client, run_id: str, event: Run | StateChanged | RowResult) -> Run | None:
    """Return the run if it is still paused; after a resumed run's earlier pause, more events follow."""
    if isinstance(event, RowResult) or event.state is not RunState.PAUSED:
        return None
    run = event if isinstance(event, Run) else await client.get_run(run_id, partial=False)
    return run if run.state is RunState.PAUSED else None


async def guard_stack(stack: LocalStack) -> None:
    """Restart local services that exit; give up on a service that keeps exiting."""
    while True:
        await asyncio.sleep(0.25)
        stack.restart_killed()


@contextlib.contextmanager
def with_report_hint(run: Run, server: str | None) -> Iterator[None]:
    """Add the command that writes the report later to an error while reporting a finished run.

    Raises:
        AssayError: The rows cannot be read, or the report cannot be written; the message names the command.
    """
    try:
        yield
    except AssayError as error:
        where = f" --server {server}" if server else ""
        raise type(error)(
            f"{error.message}\nThe run itself is finished and stored; `assay runs watch {run.run_id}{where} "
            "--output-dir FOLDER` writes its report",
            reason=error.reason,
        ) from error


class ShuffledCases:
    """Cases in random order with their positions in the dataset; can be iterated repeatedly.

    Args:
        file: File with the messages of the cases.
        spans: Start and end of each message, in the order of the dataset.
        order: Positions in the dataset, in the random order.
    """

    def __init__(self, file: IO[bytes], spans: Sequence[tuple[int, int]], order: Sequence[int]) -> None:
        self._file = file
        self._spans = spans
        self._order = order

    def __iter__(self) -> Iterator[Case]:
        """Yield the cases."""
        for place in self._order:
            start, end = self._spans[place]
            self._file.seek(start)
            yield case_from_wire(pb.Case.FromString(self._file.read(end - start)))


@contextlib.contextmanager
def shuffled_cases(cases: Iterable[Case], seed: int) -> Iterator[ShuffledCases]:
    """Yield the cases in the random order of a seed, stored in a temporary file."""
    with tempfile.TemporaryFile(prefix="assay-cases-") as file:
        spans: list[tuple[int, int]] = []
        case_ids: list[str] = []
        for place, case in enumerate(cases):
            start = file.tell()
            file.write(case_to_wire(dataclasses.replace(case, place=place)).SerializeToString())
            spans.append((start, file.tell()))
            case_ids.append(case.case_id)
        yield ShuffledCases(file, spans, shuffled(case_ids, seed))
