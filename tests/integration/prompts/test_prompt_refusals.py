"""The openai and anthropic adapters: replies and refusals of services that differ from the providers' own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, Usage
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider, echo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay_orchestrator.agents.prompt import PromptAgent

    Provide = Callable[..., ScriptedProvider]
    AgentAt = Callable[..., PromptAgent]
    Ask = Callable[..., Awaitable[AgentResponse]]

both = pytest.mark.parametrize("adapter", ["openai", "anthropic"])


def extra_field(*place: str, given: Any) -> Reply:
    """Return the refusal of a service that is built on FastAPI: a field that it does not know."""
    problem = {"type": "extra_forbidden", "loc": ["body", *place], "msg": "Extra inputs are not permitted"}
    return Reply(status=422, raw=json.dumps({"detail": [{**problem, "input": given}]}).encode())


@both
async def test_a_temperature_that_is_refused_with_422_is_left_out(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Services that are built on FastAPI refuse with 422 what others refuse with 400."""
    provider = provide(extra_field("temperature", given=0.5), echo)
    agent = agent_at(adapter, provider, temperature=0.5)
    responses = [await ask(agent) for _ in range(2)]
    assert [response.text for response in responses] == ["hello", "hello"]
    assert ["temperature" in request.body for request in provider.requests] == [True, False, False]


async def test_the_other_name_of_max_tokens_is_tried_after_a_422(provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """The limit of tokens is sent in any case."""

    def picky(request: ProviderRequest) -> Reply:
        if "max_tokens" in request.body:
            return extra_field("max_tokens", given=9)
        return Reply(str(request.body["max_completion_tokens"]))

    assert (await ask(agent_at("openai", provide(picky), max_tokens=9))).text == "9"


@both
async def test_a_422_that_quotes_the_prompt_changes_nothing(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """What the service does not know is another field, whose value holds the word."""
    provider = provide(extra_field("messages", given="water at room temperature"), echo)
    agent = agent_at(adapter, provider, temperature=1)
    response = await ask(agent)
    assert response.error is not None
    assert response.error.http_status == 422
    assert (await ask(agent)).metadata["temperature"] == 1


async def test_a_refusal_among_the_parts_of_a_message_is_a_refusal(
    provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """It is no silence: the refusal is kept as text and in the error."""
    content = [{"type": "refusal", "refusal": "I will not."}]
    raw = json.dumps({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]})
    response = await ask(agent_at("openai", provide(Reply(raw=raw.encode()))))
    assert response.error is not None
    assert (response.error.type, response.text) == ("refusal", "I will not.")
    assert response.error.message == "the model refused to answer: I will not."


@pytest.mark.parametrize(
    ("adapter", "usage", "read"),
    [
        ("openai", {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 2**64 - 1}},
         Usage(100, cache_read_tokens=100, requests=1)),
        ("openai", {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 90}},
         Usage(100, cache_read_tokens=60, cache_write_tokens=40, requests=1)),
        ("openai", {"prompt_tokens": 2**64 - 1, "completion_tokens": 9}, Usage(output_tokens=9, requests=1)),
        ("openai", {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 10**30}},
         Usage(output_tokens=9, reasoning_tokens=9, requests=1)),
        ("anthropic", {"input_tokens": 10**30, "output_tokens": 9}, Usage(output_tokens=9, requests=1)),
        ("anthropic", {"input_tokens": 5, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 2**64 - 1}},
         Usage(5, 9, 14, cache_read_tokens=None, reasoning_tokens=9, requests=1)),
    ],
)  # fmt: skip
async def test_usage_that_cannot_be_true_costs_no_answer(
    adapter: str, usage: dict[str, Any], read: Usage, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Counters of gateways underflow: a part is cut to its whole, and what no number can be is not known."""
    response = await ask(agent_at(adapter, provide(Reply("hello", raw_usage=usage))))
    assert (response.text, response.error) == ("hello", None)
    assert response.usage == read


@both
@pytest.mark.parametrize("status", [200, 404])
async def test_a_web_page_names_the_address(
    adapter: str, status: int, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A URL of a site in place of a service is the usual mistake: the sentence says where to look."""
    page = b"<!doctype html>\n<html><title>Welcome</title></html>"
    response = await ask(agent_at(adapter, provide(Reply(raw=page, status=status))))
    assert response.error is not None
    assert "the reply is a web page and not a model's: check base_url" in response.error.message
    assert "\n" not in response.error.message


@both
async def test_a_conflict_may_pass(adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """The packages themselves retry HTTP 409."""
    response = await ask(agent_at(adapter, provide(Reply("again", status=409))))
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.HTTP_STATUS, True)


async def test_of_two_messages_none_is_the_answer(provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """One was asked for: a report does not show the first of several as if it were the only one."""
    choices = [{"index": n, "message": {"content": f"answer {n}"}, "finish_reason": "stop"} for n in range(2)]
    response = await ask(agent_at("openai", provide(Reply(raw=json.dumps({"choices": choices}).encode()))))
    assert response.error is not None
    assert response.error.kind is AgentErrorKind.MALFORMED
    assert response.error.message.startswith("the reply does not hold one message of a model: ")
