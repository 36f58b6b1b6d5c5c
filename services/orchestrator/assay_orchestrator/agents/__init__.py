"""The agents: one small protocol, one adapter per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay_orchestrator.agents.dry_run import DryRun
from assay_orchestrator.agents.protocol import NotAskedError
from assay_orchestrator.agents.replay import ReplayAgent
from assay_orchestrator.agents.retrying import RetryingAgent

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from assay.errors import Problem
    from assay.model.run import AgentSpec
    from assay_orchestrator.agents.access import AgentAccess
    from assay_orchestrator.agents.hosted import HostedAgent
    from assay_orchestrator.agents.protocol import Agent
    from assay_orchestrator.budgets.run_budget import RunBudget
    from assay_orchestrator.scorers.pool import ScorerPool

__all__ = ["NotAskedError", "RetryingAgent", "agent_problems", "build_agent"]


def build_agent(
    settings: AgentSpec,
    access: AgentAccess,
    *,
    hosted: HostedAgent | None,
    pausing: asyncio.Event | None = None,
    scorers: ScorerPool | None = None,
    has_answers: bool = False,
    budget: RunBudget | None = None,
) -> RetryingAgent:
    """Return the agent of a run, with the retries of its settings.

    Args:
        settings: Checked settings.
        access: Which hosts may be called, and which environment variables named.
        hosted: The broker of a client-hosted agent; None for the other adapters.
        pausing: Set when no more questions may be asked.
        scorers: Parse replies that take much work; None to parse all of them here.
        has_answers: Whether the run already has answers.
        budget: The run's share of its team's quotas; None for no limit.

    Raises:
        InvalidInputError: The agent may not be reached, or an environment variable is missing.
    """
    agent: Agent = ReplayAgent()
    if hosted is not None:
        agent = hosted
    elif settings.adapter == "http":
        # Imported here, and below: only these adapters need httpx2.
        from assay_orchestrator.agents.http import HttpAgent

        agent = HttpAgent(settings, access, scorers=scorers)
    elif settings.adapter == "a2a":
        from assay_orchestrator.agents.a2a import A2aAgent

        agent = A2aAgent(settings, access)
    elif settings.adapter == "adk":
        from assay_orchestrator.agents.adk_server import AdkServerAgent

        agent = AdkServerAgent(settings, access)
    elif settings.adapter == "grpc":
        from assay_orchestrator.agents.grpc import GrpcAgent  # imported here: most runs call no such service

        agent = GrpcAgent(settings, access)
    elif settings.fills_prompt:
        # Imported here: most runs fill no prompt. The provider's package is imported with the first question.
        from assay_orchestrator.agents.prompt import PromptAgent

        agent = PromptAgent(settings, access, budget)
    # A recorded error is the same however often it is read.
    retries = settings.retries if settings.adapter != "replay" else 0
    marks_cold = hosted is None and settings.adapter != "replay"
    dry_run = DryRun(is_right=has_answers) if settings.adapter == "http" else None
    return RetryingAgent(agent, retries, pausing=pausing, marks_cold=marks_cold, dry_run=dry_run)


async def agent_problems(settings: AgentSpec, access: AgentAccess) -> Sequence[Problem]:
    """Return why the service behind an agent will not answer; no call that costs anything is made.

    Args:
        settings: Checked settings.
        access: Which hosts may be called, and which environment variables named.

    Raises:
        InvalidInputError: The agent may not be reached, or an environment variable is missing.
    """
    # Each imported here: most runs call no such service.
    if settings.adapter == "grpc":
        from assay_orchestrator.agents.grpc import GrpcAgent
        from assay_orchestrator.agents.grpc_preflight import service_problems

        service = GrpcAgent(settings, access)
        try:
            return await service_problems(service)
        finally:
            await service.aclose()
    if settings.adapter == "replay" or settings.is_hosted:
        return ()
    if settings.adapter == "a2a" or settings.adapter == "adk":
        return await _reply_problems(settings, access)
    # No call is made: creating an agent fills in what the settings name, and reports what is wrong.
    await build_agent(settings, access, hosted=None).aclose()
    return ()


async def _reply_problems(settings: AgentSpec, access: AgentAccess) -> Sequence[Problem]:
    checked: A2aAgent | AdkServerAgent
    if settings.adapter == "a2a":
        from assay_orchestrator.agents.a2a import A2aAgent

        checked = A2aAgent(settings, access)
    else:
        from assay_orchestrator.agents.adk_server import AdkServerAgent

        checked = AdkServerAgent(settings, access)
    try:
        return await checked.problems()
    finally:
        await checked.aclose()
