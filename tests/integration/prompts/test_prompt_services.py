"""The openai and anthropic adapters at compatible services: headers, keys and queries of their own, and prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import InvalidInputError
from assay.metrics import METRICS, complete_parameters
from assay.metrics.core.score import Row
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSettings
from assay.testing.providers import Reply, ScriptedProvider, Tokens
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.prompt import PromptAgent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Provide = Callable[..., ScriptedProvider]
    AgentAt = Callable[..., PromptAgent]
    Ask = Callable[..., Awaitable[AgentResponse]]

both = pytest.mark.parametrize("adapter", ["openai", "anthropic"])
STREAM = {"stream": True}
ENVIRON = {"BOT_KEY": "bot-secret-1", "BOT_TEAM": "team-secret-1"}


@both
@pytest.mark.parametrize("stream", [{}, STREAM])
async def test_a_service_without_a_key_is_sent_none(
    adapter: str, stream: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A gateway takes a placeholder for a wrong key, even beside a right one in a header of its own."""
    provider = provide(Reply("yes"))
    assert (await ask(agent_at(adapter, provider, **stream))).text == "yes"
    assert {"authorization", "x-api-key", "api-key"}.isdisjoint(provider.requests[0].headers)


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [{}, STREAM])
async def test_azure_is_asked_as_it_wants_to_be(
    api: str, stream: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """The deployment stands in the path, the version in the query, and the key in a header of its own, alone."""
    provider = provide(Reply("yes"))
    url = f"{provider.url}/openai/deployments/mini"
    agent = agent_at(
        "openai", url, ENVIRON, "mini", headers={"api-key": "${BOT_KEY}"}, query={"api-version": "2024-10-21"},
        api=api, **stream,
    )  # fmt: skip
    assert (await ask(agent)).text == "yes"
    (request,) = provider.requests
    path = "chat/completions" if api == "chat" else api
    assert request.path == f"/openai/deployments/mini/{path}?api-version=2024-10-21"
    assert request.headers["api-key"] == "bot-secret-1"
    assert "authorization" not in request.headers


@both
async def test_headers_of_the_spec_stand_beside_the_key_or_in_its_place(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """What the spec says is what is sent."""
    provider = provide(Reply("yes"))
    beside = agent_at(adapter, provider, ENVIRON, api_key="${BOT_KEY}", headers={"x-team": "a ${BOT_TEAM}"})
    assert (await ask(beside)).text == "yes"
    instead = agent_at(adapter, provider, ENVIRON, headers={"authorization": "Basic ${BOT_KEY}"})
    assert (await ask(instead)).text == "yes"
    first, second = (request.headers for request in provider.requests)
    assert (first["authorization"], first["x-team"]) == ("Bearer bot-secret-1", "a team-secret-1")
    assert second["authorization"] == "Basic bot-secret-1"


@both
async def test_a_header_that_a_service_repeats_is_stored_nowhere(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Values of variables are taken out of answers and errors, wherever the spec names them."""
    provider = provide(
        lambda request: Reply(f"you are {request.headers['x-team']}"),
        lambda request: Reply(f"wrong: {request.headers['x-team']}", status=403),
    )
    agent = agent_at(adapter, provider, ENVIRON, headers={"x-team": "${BOT_TEAM}"})
    assert (await ask(agent)).text == "you are [redacted]"
    error = (await ask(agent)).error
    assert error is not None
    assert "the service does not accept the key in ${BOT_TEAM}: wrong: [redacted]" in error.message


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"headers": {"x": "${OTHER}"}}, "agent.headers.x", "may not be used here"),
        ({"query": {"v": "${BOT_MISSING}"}}, "agent.query.v", "is not set"),
        ({"headers": {"x-key": "${BOT_KEY}"}}, "agent.headers.x-key", "printable ASCII"),
        ({"prices": "list"}, "agent.prices", "no list price"),
    ],
)
def test_a_service_that_cannot_be_asked_is_refused_before_anything_is_sent(
    options: dict[str, Any], field: str, words: str
) -> None:
    """All that the orchestrator's environment lacks is said when the run is made."""
    settings = AgentSettings("openai", "m", options={"base_url": "http://127.0.0.1:1/v1", **options})
    with pytest.raises(InvalidInputError, match=words) as caught:
        PromptAgent(settings, AgentAccess(("*",), ("BOT_*",), {"BOT_KEY": "läßt\nsich nicht"}))
    assert [problem.field for problem in caught.value.problems] == [field]


@both
@pytest.mark.parametrize("stream", [{}, STREAM])
async def test_prices_make_the_cost_of_each_answer(
    adapter: str, stream: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Cached tokens cost their share of the input's price; the metric `cost` has the sum without prices of its own."""
    provider = provide(Reply("yes", usage=Tokens(1_000, 200, cache_read=600, cache_write=100, reasoning=50)))
    prices = {"input": 2, "output": 10, "cache_read": 0.25, "cache_write": 1.5}
    response = await ask(agent_at(adapter, provider, prices=prices, **stream))
    assert response.usage is not None
    # (300 + 600 · 0.25 + 100 · 1.5) · 2 + 200 · 10 = 3,200 millionths
    assert response.usage.cost_usd == 0.0032
    metric = METRICS["cost"]("cost", complete_parameters("cost", {}, where="cost"))
    assert metric.score(Row(Case("c", (Turn("hello"),)), response)).value == 0.0032


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (None, None),
        ({"prompt_tokens": 7}, None),
        ({"completion_tokens": 7}, None),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ({"prompt_tokens": 101, "completion_tokens": 0}, 0.000202),
    ],
)
async def test_a_cost_is_known_where_the_tokens_are(
    usage: dict[str, int] | None, cost: float | None, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Without its tokens an answer has no cost: it is not free. A long request is dearer, all of it."""
    prices = {"input": 1, "output": 5, "long": 100, "long_input": 2}
    response = await ask(agent_at("openai", provide(Reply("yes", raw_usage=usage)), prices=prices))
    assert (None if response.usage is None else response.usage.cost_usd) == cost


async def test_an_answer_that_was_cut_off_has_its_cost(provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """A failed answer is paid for, too."""
    reply = Reply("As far as", stop="length", usage=Tokens(1_000_000, 0))
    response = await ask(agent_at("openai", provide(reply), prices={"input": 2, "output": 10}))
    assert response.error is not None
    assert response.usage is not None
    assert response.usage.cost_usd == 2.0
