"""The openai and anthropic adapters through the real packages: keys, hosts, and the packages themselves."""

from __future__ import annotations

import logging
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.errors import InvalidInputError, SpecError
from assay.local_stack.install_hint import install_hint
from assay.model.answers.agent_response import AgentResponse, response_to_json
from assay.model.run import AgentSettings, MetricSettings, RunSettings
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider
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

both = pytest.mark.parametrize("adapter", ["openai", "anthropic"])


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
            AgentSettings(adapter, "m", options=options),
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
    agent = AgentSettings(adapter, "m", options={"base_url": base_url} if base_url else {})
    settings = RunSettings("r", agent, (MetricSettings("exact_match"),))
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
        PromptAgent(AgentSettings(adapter, "m"), AgentAccess((), ("*",), {}))
    assert [problem.field for problem in caught.value.problems] == ["agent.base_url", "agent.api_key"]
    assert f"api.{adapter}.com" in str(caught.value)
    assert f"{adapter.upper()}_API_KEY" in str(caught.value)


def test_the_packages_are_imported_by_the_first_question_only() -> None:
    """An orchestrator whose runs fill no prompt, and a run that has not asked yet, pay nothing for them."""
    program = (
        "import sys, assay_orchestrator.__main__, assay_orchestrator.service.registration\n"
        "import assay_orchestrator.runs.planner\n"
        "from assay.model.run import AgentSettings\n"
        "from assay_orchestrator.agents.access import AgentAccess\n"
        "from assay_orchestrator.agents.prompt import PromptAgent\n"
        "PromptAgent(AgentSettings('openai', 'm', options={'base_url': 'http://x'}), AgentAccess(['*'], []))\n"
        "print(sorted({'openai', 'anthropic', 'httpx2', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra to install is named before anything runs."""
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(InvalidInputError, match=re.escape(install_hint("providers"))):
        PromptAgent(AgentSettings("openai", "m", options={"base_url": "http://x"}), AgentAccess(("*",), ()))


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
        PromptAgent(AgentSettings(adapter, "m", options={"base_url": "http://x"}), AgentAccess(("*",), ()))


def test_a_closed_provider_lets_go_of_who_waits() -> None:
    """Leaving the scripted provider ends every thread of it."""
    with ScriptedProvider(Reply(delay_s=math.inf)) as provider:
        assert provider.requests == []
