"""The a2a adapter against the server of a2a-sdk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import AgentRequest, AgentResponse
from assay.model.case import Case, Turn

if TYPE_CHECKING:
    from assay_orchestrator.agents.a2a import A2aAgent

pytestmark = pytest.mark.frameworks


def serving(*arguments: str) -> Any:
    """Serve the agent on a free port; the context is what calls it."""
    # Imported here: the package is not in every environment.
    from tests.frameworks.a2a_agents import Echo
    from tests.frameworks.a2a_agents import serving as serve

    return serve(Echo(), *arguments)


async def ask(agent: A2aAgent, *texts: str) -> AgentResponse:
    """Ask the turns of one case, and return the last answer."""
    case, row = Case("c", tuple(Turn(text) for text in texts)), f"run/{texts[0]}/0"
    for index, text in enumerate(texts):
        request = AgentRequest(f"{row}/{index}#0", "run", "c", text, turn_index=index, session_id=row)
        response = await agent.answer(request, case)
    return response


async def test_messages_and_tasks_of_the_sdk_are_answers() -> None:
    """Texts and the usage in their metadata; each question has a context of its own, turns share one."""
    async with serving() as agent:
        assert await agent.problems() == []
        for text, wanted in (("message a", "message a"), ("task b", "part one\ntask b")):
            response = await ask(agent, text)
            assert (response.text, response.error) == (wanted, None)
            assert response.usage is not None
            assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 4)
        assert (await ask(agent, "message c", "message d")).text == "message c | message d"
        assert (await ask(agent, "input e", "Oslo")).text == "part one\ninput e | Oslo"


async def test_states_and_errors_of_the_sdk_are_errors() -> None:
    """Each with its state, and with what the agent said; what an agent raises may pass."""
    async with serving() as agent:
        for text, kind in (
            ("fail", "failed"),
            ("reject", "rejected"),
            ("auth", "auth_required"),
        ):
            response = await ask(agent, text)
            assert response.error is not None
            assert (response.error.type, f"because of {text}" in response.error.message) == (kind, True)
        response = await ask(agent, "raise")
        assert response.error is not None
        assert (response.error.type, response.error.retryable) == ("-32603", True)


async def test_an_agent_of_another_version_is_refused_by_its_card() -> None:
    """Before it is asked."""
    async with serving("0.3") as agent:
        (problem,) = await agent.problems()
        assert "offers JSONRPC 0.3, and this adapter speaks JSONRPC 1.0" in problem.message
