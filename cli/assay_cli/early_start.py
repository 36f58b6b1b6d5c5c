"""The local orchestrator, started while the command still imports its own modules.

Nothing that takes long may be imported here: a test lists it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.local.home import Home
from assay.local.stack import LocalStack, environment_for
from assay.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class EarlyStart:
    """What was started early, and what was true before.

    Args:
        stack: The local stack, of which the orchestrator starts; None where `connect` has to start it: for the first
            command of a state directory, so that one whose input is wrong makes none, where starting it fails, which
            `connect` reports after what is wrong with the input, and for a server.
        agent_environment: The environment in which agents are called, as `environment_for` returns it.
        judge_environment: That of the judge.
    """

    stack: LocalStack | None
    agent_environment: Mapping[str, str] | None
    judge_environment: Mapping[str, str] | None

    def abandon(self) -> None:
        """End what was started, unless `connect` has taken it over."""
        if self.stack is not None:
            self.stack.abandon()


def early_start(server: str | None) -> EarlyStart:
    """Start the local orchestrator, which needs longer to be ready than a command to read and check its input.

    Args:
        server: The address of another orchestrator, for which nothing is started; None for the local stack.
    """
    # Before the start: those of services that run already.
    agent, judge = environment_for(server), environment_for(server, "judge")
    stack = None
    if server is None and Home.find().sockets.is_dir():
        with suppress(SetupError):
            stack = LocalStack(Home.open())
            stack.start()
    return EarlyStart(stack, agent, judge)


def start_for(arguments: Sequence[str]) -> EarlyStart | None:
    """Start the local orchestrator for a command line that is not parsed yet; None for one that may not need it.

    Args:
        arguments: Those after `assay`.
    """
    if arguments[:1] != ["run"] or os.environ.get("ASSAY_SERVER"):
        return None
    if any(argument in ("-h", "--help") or argument.startswith("--server") for argument in arguments):
        return None
    return early_start(None)
