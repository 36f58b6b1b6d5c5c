"""The openai and anthropic adapters through the real packages: what is sent, and what is asked again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import AgentResponse, AgentStatus, Message
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider, echo
from assay_orchestrator.agents.retrying import RetryingAgent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay_orchestrator.agents.prompt import PromptAgent

    Provide = Callable[..., ScriptedProvider]
    AgentAt = Callable[..., PromptAgent]
    Ask = Callable[..., Awaitable[AgentResponse]]

both = pytest.mark.parametrize("adapter", ["openai", "anthropic"])


@both
async def test_a_prompt_is_filled_sent_and_answered(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """System, history and filled prompt arrive in the protocol's own shape, with the key, and with nothing unasked."""
    provider = provide(Reply("positive", thinking="hm …", headers={"request-id": "q1", "x-request-id": "q1"}))
    agent = agent_at(
        adapter,
        provider,
        {"BOT_KEY": "k-1", "OPENAI_API_KEY": "no", "ANTHROPIC_API_KEY": "no"},
        api_key="${BOT_KEY}",
        system="You label {{what}}.",
        prompt="Review: {{review}}\nفئة؟",
        extra={"seed": 7},
    )
    history = (Message("user", "hi"), Message("assistant", "yes?"))
    response = await ask(agent, what="reviews", review='"Good" {{x}}', history=history)
    assert (response.status, response.text, response.model) == (AgentStatus.SUCCESS, "positive", "scripted")
    assert response.metadata == {"request_id": "q1", "temperature": None}
    assert response.usage is None
    assert response.latency_ms is not None
    (request,) = provider.requests
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": 'Review: "Good" {{x}}\nفئة؟'},
    ]
    system = "You label reviews."
    shape: dict[str, Any] = {"messages": said, "system": system}
    if adapter == "openai":
        shape = {"messages": [{"role": "system", "content": system}, *said]}
    assert request.body == {"model": "some-model", "max_tokens": 1024, "seed": 7, **shape}
    sent = {request.headers.get("authorization"), request.headers.get("x-api-key")}
    assert sent <= {"Bearer k-1", "k-1", None}
    assert sent != {None}


@both
async def test_without_a_prompt_the_question_is_the_message(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A model alone is enough, and braces in a question are text."""
    response = await ask(agent_at(adapter, provide()), "What is {{this}}?")
    assert response.text == "What is {{this}}?"


@both
async def test_retries_are_recorded_and_wait_as_long_as_they_were_asked_to(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A rate limit passes once the provider's own time is kept."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    busy = Reply("busy", status=429, headers={"retry-after-ms": "1500"})
    inner = agent_at(adapter, provide(busy, Reply("yes")))
    response = await ask(RetryingAgent(inner, 2, sleep=sleep, jitter=lambda: 0.0))
    assert (response.text, waits) == ("yes", [1.5])
    assert [attempt.error.http_status for attempt in response.attempts] == [429]


@both
async def test_a_model_without_temperature_is_asked_without_it_from_then_on(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """The refusal is no failed attempt, it comes once, and the answer says which temperature was used."""
    refused = Reply("temperature is not supported with this model", status=400, error={"param": "temperature"})
    provider = provide(Reply("warm"), refused, echo)
    agent = agent_at(adapter, provider, temperature=0.5)
    responses = [await ask(agent) for _ in range(3)]
    assert [response.metadata["temperature"] for response in responses] == [0.5, None, None]
    assert ["temperature" in request.body for request in provider.requests] == [True, True, False, False]
    assert not any(response.attempts for response in responses)


async def test_questions_that_are_refused_at_once_each_adapt(provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """Several questions under way when the first refusal comes are all answered."""

    def picky(request: ProviderRequest) -> Reply:
        if "temperature" in request.body:
            return Reply("temperature: extra inputs are not permitted", status=400)
        if "max_tokens" in request.body:
            return Reply("Unsupported parameter: 'max_tokens'", status=400, error={"code": "unsupported_parameter"})
        return Reply(str(request.body["max_completion_tokens"]))

    agent = agent_at("openai", provide(picky), temperature=1, max_tokens=55)
    responses = await asyncio.gather(*(ask(agent) for _ in range(8)))
    assert {response.text for response in responses} == {"55"}


async def test_a_limit_that_is_too_high_is_not_taken_for_an_unknown_field(
    provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A 400 about the value of max_tokens is the user's to mend."""
    provider = provide(Reply("max_tokens is too large: 99", status=400, error={"param": "max_tokens"}))
    response = await ask(agent_at("openai", provider, max_tokens=99))
    assert response.error is not None
    assert "too large" in response.error.message
    assert len(provider.requests) == 1


@both
async def test_a_case_that_the_prompt_does_not_fit_is_never_sent(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A missing variable is the case's error, named, and costs nothing."""
    provider = provide()
    response = await ask(agent_at(adapter, provider, prompt="{{ticket}}"), tickets="x")
    assert response.error is not None
    assert (response.error.type, response.error.retryable) == ("template", False)
    assert "did you mean 'tickets'" in response.error.message
    tool = await ask(agent_at(adapter, provider), history=(Message("tool", "42"),))
    assert tool.error is not None
    assert tool.error.type == "history"
    assert provider.requests == []


@both
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("temperature must be at most 1", {"param": "temperature", "code": "invalid_value"}),
        ("temperature: input should be less than or equal to 1", {}),
        ("unsupported content in 'water at room temperature'", {"param": "messages"}),
        ("unknown model", {}),
    ],
)
async def test_a_refusal_for_another_reason_does_not_change_how_later_questions_are_asked(
    adapter: str, text: str, error: dict[str, str], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A value that is wrong is the spec's to mend, and a sentence that quotes the prompt names no parameter."""
    provider = provide(Reply(text, status=400, error=error), echo)
    agent = agent_at(adapter, provider, temperature=1)
    response = await ask(agent)
    assert response.error is not None
    assert text in response.error.message
    assert (await ask(agent)).metadata["temperature"] == 1
    assert [request.body["temperature"] for request in provider.requests] == [1, 1]


@both
@pytest.mark.parametrize("prefix", ["", "/gateway/team-a", "/gateway/"])
async def test_any_place_of_a_compatible_service_is_a_base_url(
    adapter: str, prefix: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A service may be below a path; each header that may carry the key of its protocol does."""
    provider = provide(echo)
    end = "v1" if adapter == "openai" else ""
    url = f"{provider.url}{prefix.rstrip('/')}/{end}"
    agent = agent_at(adapter, url, {"BOT_KEY": "k-1"}, api_key="${BOT_KEY}")
    assert (await ask(agent)).text == "hello"
    (request,) = provider.requests
    own = "/v1/chat/completions" if adapter == "openai" else "/v1/messages"
    assert request.path == prefix.rstrip("/") + own
    assert request.headers["authorization"] == "Bearer k-1"
    assert request.headers.get("x-api-key") == (None if adapter == "openai" else "k-1")


@both
async def test_nothing_of_a_case_is_read_as_a_template_or_breaks_the_request(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Braces, variables of the environment, quotes and broken characters of a case arrive as text."""
    provider = provide(echo)
    agent = agent_at(adapter, provider, prompt="<{{mail}}> {{input}}", system="{{mail}}")
    mail = '{{input}} ${BOT_KEY} {{system}} "}]} \\ \u202e'
    response = await ask(agent, "lone \ud800 \0", mail=mail)
    assert response.text == f"<{mail}> lone \ufffd \ufffd"
    body = provider.requests[0].body
    assert (body["system"] if adapter == "anthropic" else body["messages"][0]["content"]) == mail


@both
async def test_a_history_keeps_its_order_and_its_system_text(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """One protocol knows messages of the system; for the other they join the system text. Empty ones are left out."""
    provider = provide(echo)
    said = [("system", "Be brief."), ("user", "a"), ("assistant", " "), ("assistant", "b")]
    history = tuple(Message(role, text) for role, text in said)
    await ask(agent_at(adapter, provider, system="You help."), history=history)
    body = provider.requests[0].body
    talk = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "hello"},
    ]
    if adapter == "anthropic":
        assert (body["system"], body["messages"]) == ("You help.\n\nBe brief.", talk)
    else:
        systems = [{"role": "system", "content": text} for text in ("You help.", "Be brief.")]
        assert body["messages"] == [*systems, *talk]
