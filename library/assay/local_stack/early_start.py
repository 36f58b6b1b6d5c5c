"""Services of the local stack that start while a run's input is still being read and checked.

Slow imports are not allowed here; a test lists the allowed ones.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.local_stack.home import Home
from assay.local_stack.model_files import is_on_disk
from assay.local_stack.stack import LocalStack, environment_for, running_services

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True, slots=True)
class EarlyStart:
    """The services started early, and the environments of the services.

    Args:
        stack: The local stack, whose orchestrator is starting. None if `connect` starts it, because starting failed,
            which `connect` reports after the problems of the input; and for a server.
        agent_environment: The environment that calls agents, as `environment_for` returns it.
        judge_environment: The environment of the judge.
    """

    stack: LocalStack | None
    agent_environment: Mapping[str, str] | None
    judge_environment: Mapping[str, str] | None

    def start_embedder(self, models: Collection[str]) -> None:
        """Start the embedder too, unless one is running; models that must be downloaded first are left to `connect`.

        Args:
            models: The models that the spec's metrics need.
        """
        if self.stack is None or not models or not all(is_on_disk(model, os.environ) for model in models):
            return
        if "embedder" not in running_services(Home.find()):
            with suppress(SetupError):  # `connect` reports it after what is wrong with the input
                self.stack.start(models=tuple(models))

    def abandon(self) -> None:
        """Stop the services started early, unless `connect` has taken them over."""
        if self.stack is not None:
            self.stack.abandon()


def early_start(server: str | None, *, starts: bool = True) -> EarlyStart:
    """Start the local orchestrator, which takes longer to be ready than a command takes to read and check its input.

    Args:
        server: The address of another orchestrator, which needs no start; None for the local stack.
        starts: Whether to start it.
    """
    # Before the start: those of services that run already.
    agent, judge = environment_for(server), environment_for(server, "judge")
    stack = None
    if starts and server is None:
        with suppress(SetupError):
            stack = LocalStack(Home.open())
            stack.start()
    return EarlyStart(stack, agent, judge)
