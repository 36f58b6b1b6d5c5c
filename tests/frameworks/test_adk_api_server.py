"""The adk adapter with a URL, and the http adapter's recipe, against ADK's own server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.docs.guides import blocks

from assay.model.answers.agent_response import AgentRequest, AgentResponse, AgentStatus, Message
from assay.model.answers.approvals import Approval, read_approvals
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec
from assay_orchestrator.agents.a2a import A2aAgent
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.adk_server import AdkServerAgent
from assay_orchestrator.agents.http import HttpAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL:UserWarning"),  # of what ADK's server uses itself
]

AGENT = '''
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.tools import FunctionTool
from google.genai import types

USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=40, candidates_token_count=9, thoughts_token_count=2, total_token_count=51
)


def weather(city: str) -> dict:
    """Return the weather."""
    return {"city": city, "sky": "clear"}


def pay(amount: int) -> dict:
    """Pay."""
    return {"sky": f"paid {amount}"}


def content(*parts):
    return types.Content(role="model", parts=list(parts))


class Scripted(BaseLlm):
    model: str = "scripted-1"

    async def generate_content_async(self, llm_request, stream=False):
        said = [part.text for one in llm_request.contents if one.role == "user" for part in one.parts if part.text]
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            thought = types.Part(text="thinking", thought=True)
            parts = [thought, types.Part(text=f"It is {last.function_response.response['sky']}.")]
        elif last.text.startswith("weather"):
            parts = [types.Part(function_call=types.FunctionCall(id="c1", name="weather", args={"city": "Oslo"}))]
        elif last.text.startswith("pay"):
            parts = [types.Part(function_call=types.FunctionCall(name="pay", args={"amount": 5}))]
        elif last.text.startswith("overload"):
            yield LlmResponse(error_code="503", error_message="overloaded")
            return
        elif last.text.startswith("raise"):
            raise RuntimeError("boom")
        else:
            parts = [types.Part(text=" | ".join(said))]
        if stream:
            for part in parts:
                yield LlmResponse(content=content(part), partial=True)
        yield LlmResponse(
            content=content(*parts), usage_metadata=USAGE, model_version="m-1", finish_reason=types.FinishReason.STOP
        )


root_agent = LlmAgent(name="my_agent", model=Scripted(), instruction="answer",
                      tools=[weather, FunctionTool(pay, require_confirmation=True)])
'''


@asynccontextmanager
async def serving(folder: Path, source: str = AGENT, name: str = "my_agent", **options: Any) -> AsyncIterator[str]:
    """Serve an agent as `adk api_server` does, on a free port; yields its URL."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("from . import agent\n")
    (folder / name / "agent.py").write_text(source)
    # Imported here: the packages are not in every environment.
    from google.adk.cli.fast_api import get_fast_api_app
    from tests.frameworks.serving import serving_app

    app = get_fast_api_app(agents_dir=str(folder), web=False, session_service_uri="memory://", **options)
    async with serving_app(lambda url: app) as url:
        yield url


ACCESS = AgentAccess(("127.0.0.1",), ())


async def ask(
    agent: AdkServerAgent | HttpAgent | A2aAgent,
    *texts: str,
    history: tuple[Message, ...] = (),
    attempt: int = 0,
    approvals: tuple[Approval, ...] = (),
) -> AgentResponse:
    """Ask the turns of one case, and return the last answer."""
    case, row = Case("c", tuple(Turn(text) for text in texts)), f"run/{len(history)}{texts[0][0]}/0"
    for index, text in enumerate(texts):
        request = AgentRequest(
            f"{row}/{index}#{attempt}",
            "run",
            "c",
            text,
            turn_index=index,
            session_id=row,
            idempotency_key=f"{row}/{index}",
            history=history,
            timeout_s=120.0,
            approvals=approvals,
        )
        response = await agent.answer(request, case)
    return response


async def test_events_of_the_server_are_answers(tmp_path: Path) -> None:
    """Text, tool calls with results, tokens; sessions of their own; turns that remember; errors as errors."""
    async with serving(tmp_path) as url:
        agent = AdkServerAgent(AgentSpec("adk", url, options={"app_name": "my_agent"}), ACCESS)
        wrong = AdkServerAgent(AgentSpec("adk", url, options={"app_name": "other"}), ACCESS)
        try:
            assert await agent.problems() == []
            assert "it has 'my_agent'" in (await wrong.problems())[0].message
            response = await ask(agent, "weather?")
            assert (response.text, response.error, response.model) == ("It is clear.", None, "m-1")
            ((name, arguments, result),) = [
                (c.name, c.arguments_json, c.result_json) for c in response.tool_calls or ()
            ]
            assert (name, arguments, result) == ("weather", '{"city": "Oslo"}', '{"city": "Oslo", "sky": "clear"}')
            assert response.usage is not None
            assert (response.usage.input_tokens, response.usage.output_tokens) == (80, 22)
            assert [(await ask(agent, "hello", attempt=n)).text for n in (0, 0, 1)] == ["hello"] * 3
            assert [(await ask(agent, "first", "second")).text for _ in range(2)] == ["first | second"] * 2
            before = (Message("user", "one"), Message("assistant", "two"))
            assert (await ask(agent, "three", history=before)).text == "one | three"
            overloaded = await ask(agent, "overload")
            assert overloaded.error is not None
            assert (overloaded.error.message, overloaded.error.retryable) == ("503: overloaded", True)
            waiting = await ask(agent, "pay")
            assert [(one.tool, one.arguments_json) for one in waiting.interrupts] == [("pay", '{"amount": 5}')]
            approve = read_approvals([{"approve": True}], times=None)[0]
            assert (await ask(agent, "pay", "pay", approvals=approve)).text == "It is paid 5."
            raised = await ask(agent, "raise")
            assert raised.error is not None
            assert raised.error.http_status == 500
        finally:
            await agent.aclose()
            await wrong.aclose()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what ADK's A2A server uses itself
async def test_an_agent_behind_the_a2a_server_of_adk_is_resumed() -> None:
    """Its tool calls, what it waits for, and the function responses that its server takes are those of ADK."""
    from google.adk.a2a.utils.agent_to_a2a import to_a2a
    from tests.frameworks.serving import serving_app

    names: dict[str, Any] = {"__name__": "my_agent"}
    exec(AGENT, names)

    apps: list[Any] = []

    def app(url: str) -> Any:
        apps.append(to_a2a(names["root_agent"], host="127.0.0.1", port=int(url.rpartition(":")[2])))
        return apps[0]

    async with serving_app(app) as url, apps[0].router.lifespan_context(apps[0]):
        agent = A2aAgent(AgentSpec("a2a", url), ACCESS)
        try:
            assert await agent.problems() == []
            waiting = await ask(agent, "pay")
            assert (waiting.status, waiting.output) == (AgentStatus.INTERRUPTED, None)
            assert [(one.tool, one.arguments_json) for one in waiting.interrupts] == [("pay", '{"amount": 5.0}')]
            approve = read_approvals([{"approve": True}], times=None)[0]
            paid = await ask(agent, "pay again", approvals=approve)
            assert (paid.text, paid.thoughts) == ("It is paid 5.", "thinking")
            assert [(one.tool, one.decision) for one in paid.interrupts] == [("pay", "approve")]
            assert [(call.name, call.result_json) for call in paid.tool_calls or ()] == [("pay", '{"sky": "paid 5"}')]
        finally:
            await agent.aclose()


async def test_the_recipe_of_the_guide_reads_its_stream(tmp_path: Path) -> None:
    """The spec of docs/http.md for /run_sse: no text twice, the first token's time, errors after HTTP 200."""
    (recipe,) = [block.text for block in blocks("docs/http.md", "yaml") if "/run_sse" in block.text]
    options = yaml.safe_load(recipe)["agent"]
    options = {name: options[name] for name in ("stream", "body", "response")}
    async with serving(tmp_path, auto_create_session=True) as url:
        agent = HttpAgent(AgentSpec("http", f"{url}/run_sse", options=options), ACCESS)
        try:
            response = await ask(agent, "weather?")
            assert (response.text, response.error) == ("It is clear.", None)
            assert response.time_to_first_token_ms is not None
            assert response.usage is not None
            assert (response.usage.input_tokens, response.usage.output_tokens) == (80, 18)
            assert [call.name for call in response.tool_calls or ()] == ["weather"]
            for text, said in (("overload", "overloaded"), ("raise", "boom")):
                failed = await ask(agent, text)
                assert failed.error is not None
                assert said in failed.error.message
        finally:
            await agent.aclose()
