"""Agents as the orchestrator sees them: one small protocol, one adapter a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.spec.prompt_options import PROVIDERS
from assay_orchestrator.agents.protocol import NotAskedError
from assay_orchestrator.agents.replay import ReplayAgent
from assay_orchestrator.agents.retrying import RetryingAgent

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from assay.model.run import AgentSettings
    from assay_orchestrator.agents.hosted import HostedAgent
    from assay_orchestrator.agents.protocol import Agent
    from assay_orchestrator.scoring.pool import ScorerPool

__all__ = ["NotAskedError", "RetryingAgent", "build_agent"]


def build_agent(
    settings: AgentSettings,
    *,
    hosted: HostedAgent | None,
    allowed_hosts: Sequence[str],
    allowed_env: Sequence[str],
    pausing: asyncio.Event | None = None,
    scorers: ScorerPool | None = None,
) -> RetryingAgent:
    """Return the agent of a run, retrying as its settings say.

    Args:
        settings: Checked settings.
        hosted: The broker of a client-hosted agent; None for the other adapters.
        allowed_hosts: Patterns of hosts that agents may have.
        allowed_env: Patterns of environment variables that agents may name.
        pausing: Set when nothing more is to be asked.
        scorers: Read replies that are much work to read; None to read all of them here.

    Raises:
        InvalidInputError: The agent may not be reached, or an environment variable is missing.
    """
    agent: Agent = ReplayAgent()
    if hosted is not None:
        agent = hosted
    elif settings.adapter == "http":
        # Imported here: httpx2 is needed by this adapter alone.
        from assay_orchestrator.agents.http import HttpAgent

        agent = HttpAgent(settings, allowed_hosts=allowed_hosts, allowed_env=allowed_env, scorers=scorers)
    elif settings.adapter == "grpc":
        from assay_orchestrator.agents.grpc import GrpcAgent  # imported here: most runs call no such service

        agent = GrpcAgent(settings, allowed_hosts=allowed_hosts, allowed_env=allowed_env)
    elif settings.adapter in PROVIDERS:
        # Imported here: most runs fill no prompt. The provider's package follows with the first question.
        from assay_orchestrator.agents.prompt import PromptAgent

        agent = PromptAgent(settings, allowed_hosts=allowed_hosts, allowed_env=allowed_env)
    # A recorded error is the same however often it is read.
    retries = settings.retries if settings.adapter != "replay" else 0
    return RetryingAgent(agent, retries, pausing=pausing)
