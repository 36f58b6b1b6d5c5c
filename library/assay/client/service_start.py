"""The local services that a run starts and waits for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from assay.client.run_driver import STARTUP_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from assay.client.progress.run_progress import StartProgress
    from assay.local_stack.stack import LocalStack
    from assay.specs.model import Spec

_LOOK_S = 0.05
_SHOW_S = 1.0
_DOWNLOAD_TIMEOUT_S = 3600.0


@asynccontextmanager
async def showing_start(stack: LocalStack | None, progress: StartProgress) -> AsyncIterator[None]:
    """Show the services that are still starting in a run's progress."""
    sockets = stack.started if stack is not None else {}
    # The run exists, so the orchestrator is ready.
    starting = {service: socket for service, socket in sockets.items() if service != "orchestrator"}
    telling = asyncio.ensure_future(_tell(starting, progress))
    try:
        yield
    finally:
        telling.cancel()
        # The task that guards the stack reports a service that does not start.
        await asyncio.gather(telling, return_exceptions=True)


async def wait_for_downloads(stack: LocalStack) -> None:
    """Wait until the embedder has downloaded models that are missing on this machine, before the run costs anything.

    Only then is it known that they load. Models on this machine load while the agent is called.

    Raises:
        SetupError: A model cannot be loaded.
    """
    if not stack.models_to_download:
        return
    await stack.watched(_until_ready(stack.socket("embedder"), _DOWNLOAD_TIMEOUT_S))


async def _tell(starting: Mapping[str, Path], progress: StartProgress) -> None:
    waiting = list(starting)

    async def wait(service: str) -> None:
        await _until_ready(starting[service], STARTUP_TIMEOUT_S)
        waiting.remove(service)
        progress.wait_for(waiting)

    async def show_seconds() -> None:
        while waiting:
            await asyncio.sleep(_SHOW_S)
            progress.show_wait()

    if waiting:
        progress.wait_for(waiting)
    async with asyncio.TaskGroup() as group:
        for service in starting:
            group.create_task(wait(service))
        if waiting:
            group.create_task(show_seconds())


async def _until_ready(socket: Path, timeout_s: float) -> None:
    from assay.rpc.channel import open_channel, wait_for_ready

    # gRPC retries a refused connection only after a growing backoff, so connect once the socket exists.
    while not socket.exists():  # noqa: ASYNC110, ASYNC240 - another process creates it, and the check is quick
        await asyncio.sleep(_LOOK_S)
    async with open_channel(f"unix:{socket}") as channel:
        await wait_for_ready(channel, "", timeout_s)


def start_services_of(stack: LocalStack, spec: Spec) -> None:
    """Start the embedder and the judge of a local stack if the metrics of a stored run need them.

    Raises:
        SetupError: A service is not installed or cannot be started.
    """
    from assay.metrics.checks.judged_checks import JUDGED_CHECKS
    from assay.metrics.checks.similar_checks import SIMILAR_CHECKS

    reading = spec.settings.dataset
    # Without the client's description of the cases, any checks are possible.
    checks = reading.checks if reading is not None else [*SIMILAR_CHECKS, *JUDGED_CHECKS]
    models, judge = spec.embedding_models(checks), spec.needs_judge(checks)
    if models or judge:
        stack.start(models=models, judge=judge, judge_keys=spec.judge_keys)
