"""The openai and anthropic adapters through the real packages, against a provider on a port of this machine."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import subprocess
import sys
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from assay.answers import AgentErrorKind, AgentRequest, AgentResponse, AgentStatus, Message, ToolCall, Usage
from assay.cases import Case, Turn
from assay.errors import InvalidInputError
from assay.results import AgentSettings
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider, Tokens, echo
from assay_orchestrator.agents.prompt import PromptAgent
from assay_orchestrator.agents.retrying import RetryingAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

ADAPTERS = ("openai", "anthropic")
both = pytest.mark.parametrize("adapter", ADAPTERS)


@pytest.fixture
def provide() -> Iterator[Callable[..., ScriptedProvider]]:
    """Start a provider that answers with the given replies."""
    with ExitStack() as stack:
        yield lambda *replies: stack.enter_context(ScriptedProvider(*replies))


@pytest.fixture
async def agent_at() -> AsyncIterator[Callable[..., PromptAgent]]:
    """Make an agent of an adapter and a provider; what is given beside goes to its options."""
    async with AsyncExitStack() as stack:

        def make(
            adapter: str, provider: ScriptedProvider, environ: dict[str, str] | None = None, **options: Any
        ) -> PromptAgent:
            url = provider.openai_url if adapter == "openai" else provider.url
            agent = PromptAgent(
                AgentSettings(adapter, "some-model", options={"base_url": url, **options}),
                allowed_hosts=("127.0.0.1",),
                allowed_env=("BOT_*",),
                environ=environ or {},
            )
            stack.push_async_callback(agent.aclose)
            return agent

        yield make


async def ask(agent: PromptAgent | RetryingAgent, question: str = "hello", **changes: Any) -> AgentResponse:
    """Ask one question; `timeout_s` and `history` go to the request, everything else to the case's variables."""
    request = {name: changes.pop(name) for name in ("timeout_s", "history") if name in changes}
    case = Case("c", (Turn(question),), variables=changes)
    return await agent.answer(
        AgentRequest("r#0", "run", "c", question, idempotency_key="r", variables=changes, **request), case
    )


@both
async def test_a_prompt_is_filled_sent_and_answered(
    adapter: str, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
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
    adapter: str, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """A model alone is enough, and braces in a question are text."""
    response = await ask(agent_at(adapter, provide()), "What is {{this}}?")
    assert response.text == "What is {{this}}?"


@pytest.mark.parametrize(
    ("adapter", "usage"),
    [
        ("openai", Usage(100, 20, 120, cache_read_tokens=60, reasoning_tokens=5, requests=1)),
        ("anthropic", Usage(100, 20, 120, cache_read_tokens=60, cache_write_tokens=10, requests=1)),
    ],
)
async def test_usage_counts_cached_tokens_as_part_of_the_input(
    adapter: str, usage: Usage, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """One protocol counts them beside the input and the other within; a report has one meaning."""
    tokens = Tokens(100, 20, cache_read=60, cache_write=10, reasoning=5)
    response = await ask(agent_at(adapter, provide(Reply("x", usage=tokens))))
    assert response.usage == usage


@both
async def test_tool_calls_are_recorded(
    adapter: str, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """A model that calls a tool in place of an answer has not failed."""
    provider = provide(Reply(stop="tool_calls", tool_calls=[("search", {"query": "مرحبا"})]))
    response = await ask(agent_at(adapter, provider))
    call_id = "call_0" if adapter == "openai" else "toolu_0"
    assert (response.status, response.text) == (AgentStatus.SUCCESS, "")
    (call,) = response.tool_calls
    assert dataclasses.replace(call, arguments_json="") == ToolCall("search", call_id)
    assert '"query"' in call.arguments_json


@both
@pytest.mark.parametrize(("stop", "kind"), [("length", "truncated"), ("content_filter", "refusal"), ("stop", "")])
async def test_refused_and_cut_off_answers_are_failures_that_keep_their_text(
    adapter: str, stop: str, kind: str, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """Neither is scored as an answer nor asked again."""
    response = await ask(agent_at(adapter, provide(Reply("As far as", stop=stop, usage=Tokens(9, 3)))))
    assert response.text == "As far as"
    assert response.usage is not None
    if not kind:
        assert response.error is None
        return
    assert response.status is AgentStatus.ERROR
    assert response.error is not None
    assert (response.error.kind, response.error.type) == (AgentErrorKind.RAISED, kind)
    assert not response.error.retryable


async def test_a_refusal_field_is_a_refusal(
    provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """OpenAI's models refuse in a field of their own, with an ordinary finish reason."""
    raw = b'{"choices": [{"message": {"content": null, "refusal": "I cannot."}, "finish_reason": "stop"}]}'
    response = await ask(agent_at("openai", provide(Reply(raw=raw))))
    assert response.text == "I cannot."
    assert response.error is not None
    assert response.error.type == "refusal"


@both
@pytest.mark.parametrize(
    ("reply", "kind", "status", "retryable", "words"),
    [
        (Reply("busy", status=429, headers={"retry-after": "3"}), "http_status", 429, True, "busy"),
        (Reply("overloaded", status=529), "http_status", 529, True, "overloaded"),
        (Reply("slow", status=408), "http_status", 408, True, ""),
        (Reply("again", status=409), "http_status", 409, True, ""),
        (Reply("no", status=503, headers={"x-should-retry": "false"}), "http_status", 503, False, ""),
        (Reply("pay", status=429, error={"type": "insufficient_quota"}), "http_status", 429, False, ""),
        (Reply("bad", status=400), "http_status", 400, False, "bad"),
        (Reply("who", status=401), "http_status", 401, False, "name its variable with api_key"),
        (Reply("gone", status=404), "http_status", 404, False, "'some-model' is not available"),
        (Reply(status=302, headers={"location": "http://127.0.0.1:1/"}), "http_status", 302, False, "not followed"),
        (Reply(raw=b"<h1>Bad Gateway</h1>", status=502), "http_status", 502, True, "Bad Gateway"),
        (Reply("half an answer", cut=True), "unreachable", None, True, "cannot be reached"),
        (Reply(raw=b'{"choices": [{]}'), "malformed", None, False, "not JSON"),
        (Reply(raw=b'{"error": {"message": "upstream"}}'), "malformed", None, False, "upstream"),
        (Reply(raw=b"[]"), "malformed", None, False, "not a JSON object"),
        (Reply(raw=b'{"choices": [], "content": 3}'), "malformed", None, False, "no message"),
        (Reply(raw=b" " * 5_000_000), "too_large", None, False, "4 MiB"),
        (Reply(raw=b"\x1f\x8b", headers={"content-encoding": "gzip"}), "malformed", None, False, "compressed"),
    ],
)
async def test_every_failure_says_what_it_is_and_whether_it_may_pass(
    adapter: str,
    reply: Reply,
    kind: str,
    status: int | None,
    retryable: bool,
    words: str,
    provide: Callable[..., ScriptedProvider],
    agent_at: Callable[..., PromptAgent],
) -> None:
    """One attempt is one request: the package's own retries are off, and no failure is an exception."""
    provider = provide(reply)
    response = await ask(agent_at(adapter, provider))
    assert response.error is not None
    assert (response.error.kind.value, response.error.http_status) == (kind, status)
    assert response.error.retryable is retryable
    assert words in response.error.message
    assert response.error.retry_after_s == (3.0 if "retry-after" in reply.headers else None)
    assert len(provider.requests) == 1


@both
async def test_a_provider_that_is_not_there_is_unreachable(
    adapter: str, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """A refused connection may be a restart."""
    with ScriptedProvider() as gone:
        agent = agent_at(adapter, gone)
    response = await ask(agent)
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.UNREACHABLE, True)


@both
async def test_a_silent_provider_is_given_up_on(
    adapter: str, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """The time limit of the attempt is the only one."""
    agent = agent_at(adapter, provide(Reply(delay_s=100)))
    response = await ask(agent, timeout_s=0.2)
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.TIMEOUT, True)


@both
async def test_retries_are_recorded_and_wait_as_long_as_they_were_asked_to(
    adapter: str, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
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
    adapter: str, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """The refusal is no failed attempt, it comes once, and the answer says which temperature was used."""
    refused = Reply("temperature is not supported with this model", status=400, error={"param": "temperature"})
    provider = provide(Reply("warm"), refused, echo)
    agent = agent_at(adapter, provider, temperature=0.5)
    responses = [await ask(agent) for _ in range(3)]
    assert [response.metadata["temperature"] for response in responses] == [0.5, None, None]
    assert ["temperature" in request.body for request in provider.requests] == [True, True, False, False]
    assert not any(response.attempts for response in responses)


async def test_questions_that_are_refused_at_once_each_adapt(
    provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """Several questions under way when the first refusal comes are all answered."""

    def picky(request: ProviderRequest) -> Reply:
        if "temperature" in request.body:
            return Reply("no temperature, please", status=400)
        if "max_tokens" in request.body:
            return Reply("Unsupported parameter: 'max_tokens'", status=400, error={"code": "unsupported_parameter"})
        return Reply(str(request.body["max_completion_tokens"]))

    agent = agent_at("openai", provide(picky), temperature=1, max_tokens=55)
    responses = await asyncio.gather(*(ask(agent) for _ in range(8)))
    assert {response.text for response in responses} == {"55"}


async def test_a_limit_that_is_too_high_is_not_taken_for_an_unknown_field(
    provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
) -> None:
    """A 400 about the value of max_tokens is the user's to mend."""
    provider = provide(Reply("max_tokens is too large: 99", status=400, error={"param": "max_tokens"}))
    response = await ask(agent_at("openai", provider, max_tokens=99))
    assert response.error is not None
    assert "too large" in response.error.message
    assert len(provider.requests) == 1


@both
async def test_a_case_that_the_prompt_does_not_fit_is_never_sent(
    adapter: str, provide: Callable[..., ScriptedProvider], agent_at: Callable[..., PromptAgent]
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
async def test_a_key_goes_to_the_service_that_it_is_for_and_into_no_message(
    adapter: str,
    provide: Callable[..., ScriptedProvider],
    agent_at: Callable[..., PromptAgent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another service gets no key of the provider's, nor anything else that the packages find in the environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_API_KEY",
                 "ANTHROPIC_AUTH_TOKEN"):  # fmt: skip
        monkeypatch.setenv(name, "environment-secret")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "x-team: environment-secret")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    provider = provide(lambda request: Reply(f"wrong key {request.headers['authorization']}", status=401))
    response = await ask(agent_at(adapter, provider))
    assert response.error is not None
    assert "environment-secret" not in str(provider.requests)
    response = await ask(agent_at(adapter, provider, {"BOT_KEY": "bot-secret-1"}, api_key="${BOT_KEY}"))
    assert response.error is not None
    assert "the key in ${BOT_KEY}" in response.error.message
    assert "bot-secret" not in response.error.message


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"base_url": "http://10.0.0.1/v1"}, "agent.base_url", "--http-hosts"),
        ({"base_url": "http://127.0.0.1/v1", "api_key": "${HOME}"}, "agent.api_key", "--agent-env"),
        ({"base_url": "http://127.0.0.1/v1", "api_key": "${BOT_NONE}"}, "agent.api_key", "not set"),
        ({"base_url": "http://127.0.0.1/v1", "api_key": "${BOT_BAD}"}, "agent.api_key", "not a key"),
    ],
)
@both
def test_an_operator_decides_which_hosts_and_keys_are_used(
    adapter: str, options: dict[str, str], field: str, words: str
) -> None:
    """A run that may not be is refused before its first question."""
    options = options | {"base_url": options["base_url"].removesuffix("/v1")}
    with pytest.raises(InvalidInputError, match=words) as caught:
        PromptAgent(
            AgentSettings(adapter, "m", options=options),
            allowed_hosts=("127.0.0.1",),
            allowed_env=("BOT_*",),
            environ={"BOT_BAD": "a\nb"},
        )
    assert [problem.field for problem in caught.value.problems] == [field]


@both
def test_the_providers_own_service_needs_its_host_allowed_and_its_key_set(adapter: str) -> None:
    """Without a base URL everything that is missing is told at once."""
    with pytest.raises(InvalidInputError) as caught:
        PromptAgent(AgentSettings(adapter, "m"), allowed_hosts=(), allowed_env=("*",), environ={})
    assert [problem.field for problem in caught.value.problems] == ["agent.base_url", "agent.api_key"]
    assert f"api.{adapter}.com" in str(caught.value)
    assert f"{adapter.upper()}_API_KEY" in str(caught.value)


def test_the_packages_are_imported_by_the_first_question_only() -> None:
    """An orchestrator whose runs fill no prompt, and a run that has not asked yet, pay nothing for them."""
    program = (
        "import sys, assay_orchestrator.__main__, assay_orchestrator.service, assay_orchestrator.planning\n"
        "from assay.results import AgentSettings\n"
        "from assay_orchestrator.agents.prompt import PromptAgent\n"
        "PromptAgent(AgentSettings('openai', 'm', options={'base_url': 'http://x'}), allowed_hosts=['*'],"
        " allowed_env=[])\n"
        "print(sorted({'openai', 'anthropic', 'httpx2', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra to install is named before anything runs."""
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(InvalidInputError, match=r"assay\[providers\]"):
        PromptAgent(
            AgentSettings("openai", "m", options={"base_url": "http://x"}), allowed_hosts=("*",), allowed_env=()
        )


def test_a_closed_provider_lets_go_of_who_waits() -> None:
    """Leaving the scripted provider ends every thread of it."""
    with ScriptedProvider(Reply(delay_s=math.inf)) as provider:
        assert provider.requests == []
