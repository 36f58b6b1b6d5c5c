"""What a run waits for at its beginning: services of the local stack that were started for it."""

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
async def telling_of_start(stack: LocalStack | None, progress: StartProgress) -> AsyncIterator[None]:
    """Let the progress of a run show which services are still starting, during the run."""
    sockets = stack.started if stack is not None else {}
    # The run is there, so the orchestrator takes work.
    starting = {service: socket for service, socket in sockets.items() if service != "orchestrator"}
    telling = asyncio.ensure_future(_tell(starting, progress))
    try:
        yield
    finally:
        telling.cancel()
        # What keeps a service from starting is reported by the task that guards the stack.
        await asyncio.gather(telling, return_exceptions=True)


async def wait_for_downloads(stack: LocalStack) -> None:
    """Wait until the embedder has loaded models that are not on this machine yet, before anything is asked or paid.

    Whether they can be loaded is known only then. Models that are here are loaded while the agent is asked.

    Raises:
        SetupError: One cannot be loaded.
    """
    if not stack.models_to_download:
        return
    waiting = asyncio.ensure_future(_until_ready(stack.socket("embedder"), _DOWNLOAD_TIMEOUT_S))
    try:
        while not waiting.done():
            stack.check()
            await asyncio.wait({waiting}, timeout=_LOOK_S)
        await waiting
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


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

    # A connection that is refused is tried again only after a pause that grows.
    while not socket.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it, and a look takes no time
        await asyncio.sleep(_LOOK_S)
    async with open_channel(f"unix:{socket}") as channel:
        await wait_for_ready(channel, "", timeout_s)


def start_services_of(stack: LocalStack, spec: Spec) -> None:
    """Start the embedder and the judge of a local stack where the metrics of a stored run need them.

    Raises:
        SetupError: One is not installed or cannot be started.
    """
    from assay.metrics.checks.judged_checks import JUDGED_CHECKS
    from assay.metrics.checks.similar_checks import SIMILAR_CHECKS

    reading = spec.settings.dataset
    # Where the client did not say how it read the cases, they may bring any checks along.
    checks = reading.checks if reading is not None else [*SIMILAR_CHECKS, *JUDGED_CHECKS]
    models, judge = spec.embedding_models(checks), spec.needs_judge(checks)
    if models or judge:
        stack.start(models=models, judge=judge, judge_keys=spec.judge_keys)
