"""Agents of the openai and anthropic adapters with the real packages, and a provider on a local port."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import AgentRequest, AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec
from assay.testing.providers import ScriptedProvider
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.prompt import PromptAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from assay_orchestrator.agents.protocol import Agent


@pytest.fixture
def provide() -> Iterator[Callable[..., ScriptedProvider]]:
    """Start a provider that answers with the given replies."""
    with ExitStack() as stack:
        yield lambda *replies: stack.enter_context(ScriptedProvider(*replies))


@pytest.fixture
async def agent_at() -> AsyncIterator[Callable[..., PromptAgent]]:
    """Return a factory of agents for an adapter and a provider or URL; keyword arguments become options."""
    async with AsyncExitStack() as stack:

        def make(
            adapter: str,
            provider: ScriptedProvider | str,
            environ: dict[str, str] | None = None,
            target: str = "some-model",
            concurrency: int = 16,
            **options: Any,
        ) -> PromptAgent:
            if isinstance(provider, ScriptedProvider):
                provider = provider.openai_url if adapter == "openai" else provider.url
            agent = PromptAgent(
                AgentSpec(adapter, target, concurrency=concurrency, options={"base_url": provider, **options}),
                AgentAccess(("127.0.0.1",), ("BOT_*",), environ or {}),
            )
            stack.push_async_callback(agent.aclose)
            return agent

        yield make


@pytest.fixture
def ask() -> Callable[..., Any]:
    """Ask a question; `timeout_s` and `history` go to the request, other arguments to the case's variables."""

    async def asking(agent: Agent, question: str = "hello", **changes: Any) -> AgentResponse:
        request = {name: changes.pop(name) for name in ("timeout_s", "history") if name in changes}
        case = Case("c", (Turn(question),), variables=changes)
        return await agent.answer(
            AgentRequest("r#0", "run", "c", question, idempotency_key="r", variables=changes, **request), case
        )

    return asking
