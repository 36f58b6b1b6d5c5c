"""The openai and anthropic adapters through the real packages: hosts, keys, headers, prices, and streams left open."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import InvalidInputError, SpecError
from assay.local_stack.install_hint import install_hint
from assay.metrics import METRICS, complete_parameters
from assay.metrics.core.score import Row
from assay.model.answers.agent_response import AgentResponse, response_to_json
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, MetricSpec, RunSpec
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider, Tokens
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.prompt import PromptAgent
from assay_orchestrator.agents.retrying import RetryingAgent
from assay_orchestrator.runs.admission import check_settings
from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Provide = Callable[..., ScriptedProvider]
    AgentAt = Callable[..., PromptAgent]
    Ask = Callable[..., Awaitable[AgentResponse]]
    from collections.abc import Awaitable, Callable


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
    settings = AgentSpec("openai", "m", options={"base_url": "http://127.0.0.1:1/v1", **options})
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


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
RESPONSES = {"api": "responses"}
CHAT = [{"choices": [{"index": 0, "delta": {"content": "Paris"}, "finish_reason": "stop"}]}, "[DONE]"]
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Paris"}}
MESSAGES = [{"type": "message_start", "message": {"content": []}}, BLOCK, {"type": "message_stop"}]
OUTPUT = [{"type": "message", "content": [{"type": "output_text", "text": "Paris"}]}]


def ending(status: str) -> list[Any]:
    """Return the events of a response that ends so."""
    return [{"type": f"response.{status}", "response": {"status": status, "output": OUTPUT}}]


def data(event: Any) -> bytes:
    """Return an event as it is sent."""
    return b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("adapter", "options", "events", "text", "error"),
    [
        ("openai", {}, CHAT, "Paris", None),
        ("anthropic", {}, MESSAGES, "Paris", None),
        ("openai", RESPONSES, ending("completed"), "Paris", None),
        ("openai", RESPONSES, ending("incomplete"), "Paris", "raised"),
        ("openai", RESPONSES, ending("cancelled"), "Paris", "raised"),
        ("openai", RESPONSES, ending("failed"), "", "http_status"),
        ("openai", RESPONSES, [{"type": "response.completed"}], "", "unreachable"),
    ],
)
async def test_a_stream_ends_with_the_mark_of_its_end(
    adapter: str, options: dict[str, Any], events: list[Any], text: str, error: str | None, agent_at: AgentAt, ask: Ask
) -> None:
    """The answer counts while the service still holds the connection open, which then is closed."""
    answered, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"".join(map(data, events)))
        await answered.wait()
        await reader.read()  # to its end
        writer.close()
        closed.set()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    agent = agent_at(
        adapter, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", stream=True, concurrency=1, **options
    )
    async with listener, asyncio.timeout(60):
        response = await ask(agent, timeout_s=20)
        answered.set()
        await closed.wait()
    assert (response.error and response.error.kind.value, response.text) == (error, text)


@pytest.mark.parametrize("adapter", ["openai", "anthropic"])
async def test_a_provider_that_sends_streams_twice_shifts_no_answer(adapter: str, agent_at: AgentAt, ask: Ask) -> None:
    """What follows a stream is not the answer to the next question of the connection."""
    with ScriptedProvider(lambda request: Reply(request.question, twice=True)) as provider:
        agent = agent_at(adapter, provider, stream=True)
        questions = [f"question {index}" for index in range(20)]
        assert [(await ask(agent, question)).text for question in questions] == questions
        assert len(provider.requests) == len(questions)


@both
async def test_a_key_goes_to_the_service_that_it_is_for_and_into_no_message(
    adapter: str,
    provide: Provide,
    agent_at: AgentAt,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another service gets no key of the provider's, nor anything else that the packages find in the environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_API_KEY",
                 "ANTHROPIC_AUTH_TOKEN"):  # fmt: skip
        monkeypatch.setenv(name, "environment-secret")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "x-team: environment-secret")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    provider = provide(lambda request: Reply(f"wrong key {request.headers.get('authorization')}", status=401))
    response = await ask(agent_at(adapter, provider))
    assert response.error is not None
    assert "environment-secret" not in str(provider.requests)
    response = await ask(agent_at(adapter, provider, {"BOT_KEY": "bot-secret-1"}, api_key="${BOT_KEY}"))
    assert response.error is not None
    assert "the key in ${BOT_KEY}" in response.error.message
    assert "bot-secret" not in response.error.message


@both
async def test_a_service_that_repeats_the_key_has_it_stored_nowhere(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with answers, errors and ids of requests, nor in a log, however talkative the packages are told to be."""
    key = "sk-proj-0123456789abcdef"

    def repeats(request: ProviderRequest) -> Reply:
        said = request.headers["authorization"]
        headers = {"x-request-id": said, "request-id": said}
        if "fail" in request.question:
            return Reply(said, status=500, error={"type": said, "code": said}, headers=headers)
        return Reply(f"you sent {said}", headers=headers, tool_calls=[(said, {"key": said})])

    for name in ("openai", "anthropic", "httpx2", "httpcore2"):
        caplog.set_level(logging.DEBUG, name)
    agent = RetryingAgent(agent_at(adapter, provide(repeats), {"BOT_KEY": key}, api_key="${BOT_KEY}"), 0)
    answers = [await ask(agent, question) for question in ("say", "fail")]
    assert "you sent Bearer [redacted]" in answers[0].text
    shown = [str(response_to_json(answer)) for answer in answers]
    assert [text for text in shown if "0123456789" in text] == []
    assert caplog.records == []


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"base_url": "http://10.0.0.1/v1"}, "agent.base_url", "--http-hosts"),
        ({"base_url": "http://127.0.0.1/v1", "api_key": "${HOME}"}, "agent.api_key", "--agent-env"),
        ({"base_url": "http://127.0.0.1/v1", "api_key": "${BOT_NONE}"}, "agent.api_key", "not set"),
        ({"base_url": "http://127.0.0.1/v1", "api_key": "${BOT_BAD}"}, "agent.api_key", "not a key"),
        ({"base_url": "http://127.0.0.1/v1", "api_key": "${BOT_SPACE}"}, "agent.api_key", "not a key"),
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
            AgentSpec(adapter, "m", options=options),
            AgentAccess(("127.0.0.1",), ("BOT_*",), {"BOT_BAD": "a\nb", "BOT_SPACE": "sk-1 sk-2"}),
        )
    assert [problem.field for problem in caught.value.problems] == [field]


@both
@pytest.mark.parametrize(
    ("base_url", "hosts", "allowed"),
    [
        (None, (), False),
        (None, ("api.*.com",), True),
        ("http://models.internal", ("api.*.com",), False),
        ("http://models.internal", ("*.internal",), True),
        ("http://169.254.169.254", ("*.internal",), False),
    ],
)
def test_a_server_admits_prompts_to_hosts_that_its_operator_allows(
    adapter: str, base_url: str | None, hosts: tuple[str, ...], allowed: bool
) -> None:
    """A run whose host is not allowed is refused at the door, before it is stored."""
    agent = AgentSpec(adapter, "m", options={"base_url": base_url} if base_url else {})
    settings = RunSpec("r", agent, (MetricSpec("exact_match"),))
    limits = Settings(listen="unix:/nowhere", database=Path("nowhere.db"), http_hosts=hosts)
    if allowed:
        assert check_settings(settings, limits).agent == agent
        return
    with pytest.raises(SpecError, match="--http-hosts") as caught:
        check_settings(settings, limits)
    assert [problem.field for problem in caught.value.problems] == ["agent.base_url"]


@both
def test_the_providers_own_service_needs_its_host_allowed_and_its_key_set(adapter: str) -> None:
    """Without a base URL everything that is missing is told at once."""
    with pytest.raises(InvalidInputError) as caught:
        PromptAgent(AgentSpec(adapter, "m"), AgentAccess((), ("*",), {}))
    assert [problem.field for problem in caught.value.problems] == ["agent.base_url", "agent.api_key"]
    assert f"api.{adapter}.com" in str(caught.value)
    assert f"{adapter.upper()}_API_KEY" in str(caught.value)


def test_the_packages_are_imported_by_the_first_question_only() -> None:
    """An orchestrator whose runs fill no prompt, and a run that has not asked yet, pay nothing for them."""
    program = (
        "import sys, assay_orchestrator.__main__, assay_orchestrator.service.registration\n"
        "import assay_orchestrator.runs.planner\n"
        "from assay.model.run import AgentSpec\n"
        "from assay_orchestrator.agents.access import AgentAccess\n"
        "from assay_orchestrator.agents.prompt import PromptAgent\n"
        "PromptAgent(AgentSpec('openai', 'm', options={'base_url': 'http://x'}), AgentAccess(['*'], []))\n"
        "print(sorted({'openai', 'anthropic', 'httpx2', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra to install is named before anything runs."""
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(InvalidInputError, match=re.escape(install_hint("providers"))):
        PromptAgent(AgentSpec("openai", "m", options={"base_url": "http://x"}), AgentAccess(("*",), ()))


@pytest.mark.parametrize(("adapter", "version"), [("openai", "2.14.0"), ("anthropic", "1.9")])
def test_a_package_that_is_too_old_is_a_sentence(
    adapter: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which version is there, and which is needed, before anything runs."""
    metadata = tmp_path / f"{adapter}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {adapter}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInputError, match=re.escape(f"runs, not {version}: {install_hint('providers')}")):
        PromptAgent(AgentSpec(adapter, "m", options={"base_url": "http://x"}), AgentAccess(("*",), ()))


def test_a_closed_provider_lets_go_of_who_waits() -> None:
    """Leaving the scripted provider ends every thread of it."""
    with ScriptedProvider(Reply(delay_s=math.inf)) as provider:
        assert provider.requests == []
