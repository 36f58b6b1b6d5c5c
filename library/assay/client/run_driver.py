"""Driver of an evaluation, from the dataset check to the last row, shared by `assay run` and `assay.evaluate`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from typing import TYPE_CHECKING, Any

from assay.agent_host.concurrency.event_loop import until_user_exit
from assay.errors import (
    AssayError,
    NotFoundError,
    UnavailableError,
)
from assay.model.run import DatasetReading, PauseCause, RowResult, Run, RunState, StateChanged
from assay.model.views import RowView
from assay.process.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from assay.agent_host.user_code import UserCode
    from assay.client.client import Client
    from assay.client.dataset_upload import DatasetUpload
    from assay.client.encoded_cases import EncodedCases
    from assay.datasets import DatasetInfo
    from assay.local_stack.stack import LocalStack
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
        upload: Upload of its dataset; closed once the run exists.
        info: Description of the dataset.
        agent: A function that replaces the spec's agent.
    """
    identifying = asyncio.ensure_future(_with_code(spec, agent))
    stored = await upload.finish(client)
    (run,) = await _create_runs(client, [await identifying], stored, upload.cases, info)
    await upload.aclose()
    return run


async def _with_code(spec: Spec, agent: Callable[..., object] | None = None) -> Spec:
    """Return the spec with the identity of its agent's code."""
    from assay.agent_host.code_identity import code_identity  # imported here: the upload continues meanwhile

    code = await asyncio.to_thread(code_identity, spec.settings.agent, spec.base_dir, agent)
    return dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, code=code))


async def start_runs(client: Client, specs: Sequence[Spec], cases: EncodedCases, info: DatasetInfo) -> list[Run]:
    """Upload the dataset once and create a run per spec; all specs share dataset and judge.

    Runs that may stop early get the cases in the order of their settings. If a run is refused, the runs before it are
    cancelled.
    """
    stopping = specs[0].settings.stopping
    with contextlib.ExitStack() as stack:
        ordered = cases if stopping is None else stack.enter_context(cases.shuffled(stopping.seed))
        stored = await ordered.upload(client, name=info.name)
        coded = [await _with_code(spec) for spec in specs]
        return await _create_runs(client, coded, stored, ordered, info)


async def _create_runs(
    client: Client, specs: Sequence[Spec], stored: StoredDataset, cases: EncodedCases, info: DatasetInfo
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
                stored = await cases.upload(client, name=info.name)
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
