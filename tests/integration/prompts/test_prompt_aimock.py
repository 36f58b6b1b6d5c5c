"""The openai and anthropic adapters against @copilotkit/aimock (tests/support/services/aimock.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.aimock import serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from assay.model.answers.agent_response import AgentResponse
    from assay_orchestrator.agents.prompt import PromptAgent

    AgentAt = Callable[..., PromptAgent]
    Ask = Callable[..., Awaitable[AgentResponse]]

pytestmark = [
    pytest.mark.aimock,
    pytest.mark.parametrize("stream", [False, True]),
    pytest.mark.parametrize(
        ("adapter", "options"), [("openai", {}), ("openai", {"api": "responses"}), ("anthropic", {})]
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of the other server; its process ends when its input does."""
    with serving(Path(__file__).with_name("aimock_agent.mjs")) as url:
        yield url


@pytest.fixture
def agent(server: str, agent_at: AgentAt, adapter: str, options: dict[str, Any], stream: bool) -> PromptAgent:
    """An agent of each API, whole and in pieces."""
    return agent_at(adapter, f"{server}/v1" if adapter == "openai" else server, stream=stream, **options)


async def test_an_answer_is_read_as_from_our_own_server(agent: PromptAgent, ask: Ask, stream: bool) -> None:
    """Request, reply and usage of every API, as another project understands them."""
    response = await ask(agent, "text")
    assert (response.error, response.text) == (None, "Paris is the capital of France. باريس")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (1_200, 150)
    assert (response.time_to_first_token_ms is not None) is stream


async def test_an_answer_that_was_cut_off_is_truncated(agent: PromptAgent, ask: Ask) -> None:
    """Its text is kept."""
    response = await ask(agent, "cut")
    assert response.error is not None
    assert (response.text, response.error.type) == ("Paris is", "truncated")


async def test_calls_of_tools_are_read(agent: PromptAgent, ask: Ask) -> None:
    """In their order, with their arguments."""
    response = await ask(agent, "tools")
    calls = [(call.name, json.loads(call.arguments_json)) for call in (response.tool_calls or ())]
    assert (response.error, calls) == (None, [("search", {"query": "Paris"}), ("open", {})])
