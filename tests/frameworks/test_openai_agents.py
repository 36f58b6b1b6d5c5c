"""The openai_agents adapter against the real OpenAI Agents SDK, with its own scripted model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.frameworks.answers import calls
from tests.frameworks.asking import ask, opened

from assay.agent_host.opening import open_caller
from assay.errors import InvalidInputError
from assay.model.agent_request import Message
from assay.model.agent_response import AgentErrorKind, AgentStatus, Source, ToolCall, Usage
from assay.model.run import AgentSettings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

AGENT = """
from agents import Agent, RunContextWrapper, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.usage import Usage


def model(call):
    question = [item["content"] for item in call.input if item.get("role") == "user"][-1]
    last = call.input[-1]
    if question == "what was said":
        parts = [item.get("type", item.get("role")) for item in call.input]
        output = [assistant_message(f"{call.system_instructions}: {'|'.join(parts)}")]
    elif question == "down":
        raise ConnectionError("the provider is down")
    elif last.get("role") == "user" and question == "refund":
        output = [function_call("transfer_to_refunds", {}, call_id="h1")]
    elif last.get("role") == "user" or question == "loop":
        output = [function_call("search", {"query": word}, call_id=f"{word}-{len(call.input)}") for word in
                  question.split()]
    elif question == "later down":
        raise ConnectionError("the provider is down")
    else:
        output = [assistant_message("It is 42.")]
    return ModelStep(output=output, usage=Usage(requests=1, input_tokens=10, output_tokens=4, total_tokens=14))


class Script(ScriptedModel):
    def __init__(self):
        super().__init__(ModelStep.respond(model) for _ in range(200))
        self.model = "scripted"


@function_tool
def search(context: RunContextWrapper, query: str) -> dict:
    if query == "broken":
        raise ValueError("the index is broken")
    return {"found": query, "context": context.context}


refunds = Agent("refunds", model=Script(), instructions="Refund.")
agent = Agent("support", model=Script(), instructions="Be brief.", tools=[search], handoffs=[refunds])


def context(request):
    return request.parameters


class Context:
    pass


nothing = 3
"""


async def test_an_answer_has_text_tool_calls_usage_and_model(tmp_path: Path) -> None:
    """Each call has its arguments, its result, and whether it failed."""
    caller = opened(tmp_path, "openai_agents", AGENT, context="agent.py:context")
    answer = await ask(caller, "peru broken", parameters={"area": "south"})
    assert (answer.error, answer.status, answer.text) == (None, AgentStatus.SUCCESS, "It is 42.")
    found, failed = calls(answer)
    assert (found.name, found.id, found.arguments_json) == ("search", "peru-1", '{"query":"peru"}')
    assert (found.result_json, found.is_error) == ('{"found": "peru", "context": {"area": "south"}}', False)
    assert (failed.arguments_json, failed.is_error) == ('{"query":"broken"}', True)
    assert found.duration_ms is not None
    assert answer.usage == Usage(20, 8, 28, requests=2)
    assert answer.model == "scripted"


async def test_typed_output_is_the_output(tmp_path: Path) -> None:
    """A model of pydantic is structured output, and its text is where an answer has it."""
    source = """
        from agents import Agent
        from agents.testing import ScriptedModel, assistant_message
        from pydantic import BaseModel

        class City(BaseModel):
            answer: str
            people: int

        model = ScriptedModel([[assistant_message('{"answer": "Lima", "people": 10}')]])
        agent = Agent("a", model=model, output_type=City)
    """
    answer = await ask(opened(tmp_path, "openai_agents", source), "largest city of Peru?")
    assert (answer.text, answer.output) == ("Lima", {"answer": "Lima", "people": 10})
    assert answer.usage == Usage(requests=1)


async def test_a_conversation_keeps_its_items(tmp_path: Path) -> None:
    """The second turn sees the first with its tool calls; another session, and another history, see none of it."""
    caller = opened(tmp_path, "openai_agents", AGENT)
    first = await ask(caller, "peru")
    said = (Message("user", "peru"), Message("assistant", first.text))
    second = await ask(caller, "what was said", history=said)
    assert second.text == "Be brief.: user|function_call|function_call_output|message|user"
    assert second.tool_calls == ()
    assert (await ask(caller, "what was said", session="run/0/1")).text == "Be brief.: user"
    elsewhere = await ask(caller, "what was said", session="run/0/2", history=(Message("system", "x"), *said))
    assert elsewhere.text == "Be brief.: system|user|assistant|user"


async def test_an_agent_that_took_over_keeps_the_conversation(tmp_path: Path) -> None:
    """A handoff is a tool call, and the next turn is asked to the agent that answered."""
    caller = opened(tmp_path, "openai_agents", AGENT)
    first = await ask(caller, "refund")
    assert [(call.name, call.result_json) for call in calls(first)] == [
        ("transfer_to_refunds", '{"assistant": "refunds"}')
    ]
    said = (Message("user", "refund"), Message("assistant", first.text))
    assert (await ask(caller, "what was said", history=said)).text.startswith("Refund.: user|function_call")
    assert (await ask(caller, "what was said", session="run/0/1")).text == "Be brief.: user"


async def test_a_failed_run_keeps_what_it_did(tmp_path: Path) -> None:
    """The row of an agent that raised has its tool calls and its tokens, and the error is its own."""
    caller = opened(tmp_path, "openai_agents", AGENT)
    answer = await ask(caller, "later down")
    assert answer.error is not None
    assert (answer.error.kind, answer.error.type) == (AgentErrorKind.RAISED, "ConnectionError")
    assert answer.error.message == "ConnectionError: the provider is down"
    assert [call.result_json for call in calls(answer)] == [
        '{"found": "later", "context": null}',
        '{"found": "down", "context": null}',
    ]
    assert answer.usage == Usage(10, 4, 14, requests=1)
    at_once = await ask(caller, "down")
    assert at_once.error is not None
    assert at_once.tool_calls == ()


async def test_max_turns_end_a_run(tmp_path: Path) -> None:
    """An agent that calls its tool for ever is ended after `max_turns` calls of the model."""
    answer = await ask(opened(tmp_path, "openai_agents", AGENT, max_turns=3), "loop")
    assert answer.error is not None
    assert (answer.error.type, answer.error.retryable) == ("MaxTurnsExceeded", False)
    assert answer.usage == Usage(30, 12, 42, requests=3)


async def test_nothing_is_traced_unless_asked_for(tmp_path: Path) -> None:
    """The SDK's processors, which send traces to OpenAI by default, see a run with the option `tracing` alone."""
    source = f"""{AGENT}
from agents import set_trace_processors
from agents.tracing import TracingProcessor

seen = []


class Processor(TracingProcessor):
    def on_trace_start(self, trace):
        seen.append(trace.name)
    def on_trace_end(self, trace): pass
    def on_span_start(self, span): pass
    def on_span_end(self, span): pass
    def shutdown(self): pass
    def force_flush(self): pass


set_trace_processors([Processor()])



async def invoke(context, arguments):
    return seen


search.on_invoke_tool = invoke
"""
    for tracing, result in ((False, "[]"), (True, '["Agent workflow"]')):
        folder = tmp_path / str(tracing)
        folder.mkdir()
        answer = await ask(opened(folder, "openai_agents", source, tracing=tracing), "q")
        assert [call.result_json for call in calls(answer)] == [result]


async def test_a_call_that_waits_for_approval_is_an_error(tmp_path: Path) -> None:
    """An agent that cannot end without a person says which call it waits for, and is not asked again."""
    source = """
        from agents import Agent, function_tool
        from agents.testing import ScriptedModel, function_call

        @function_tool(needs_approval=True)
        def pay(amount: int) -> str:
            return "paid"

        agent = Agent("a", model=ScriptedModel([[function_call("pay", {"amount": 1}, call_id="p1")]]), tools=[pay])
    """
    answer = await ask(opened(tmp_path, "openai_agents", source), "pay")
    assert answer.error is not None
    assert answer.error.message == "the agent waits for the approval of tool calls: pay"
    assert not answer.error.retryable


async def test_hosted_tools_and_citations(tmp_path: Path) -> None:
    """Tools that OpenAI runs are tool calls with their results; what they found and what texts cite are sources."""
    source = """
        from agents import Agent, FileSearchTool, HostedMCPTool, WebSearchTool
        from agents.testing import ScriptedModel
        from openai.types.responses import (
            ResponseFileSearchToolCall, ResponseFunctionWebSearch, ResponseOutputMessage
        )
        from openai.types.responses.response_output_item import McpCall

        search = ResponseFileSearchToolCall.model_validate({"id": "f1", "type": "file_search_call",
            "status": "completed", "queries": ["q"],
            "results": [{"file_id": "d1", "filename": "a.pdf", "score": 0.5, "text": "page"}]})
        web = ResponseFunctionWebSearch.model_validate({"id": "w1", "type": "web_search_call",
            "status": "completed", "action": {"type": "search", "query": "q"}})
        mcp = McpCall.model_validate({"id": "m1", "type": "mcp_call", "name": "ask", "server_label": "s",
            "arguments": '{"a": 1}', "error": {"type": "http_error", "code": 500, "message": "no"}})
        cited = [{"type": "url_citation", "start_index": 0, "end_index": 1, "title": "T", "url": "https://t.example"},
            {"type": "file_citation", "file_id": "d1", "filename": "a.pdf", "index": 1},
            {"type": "file_citation", "file_id": "d2", "filename": "b.pdf", "index": 1}]
        text = ResponseOutputMessage.model_validate({"id": "t1", "type": "message", "role": "assistant",
            "status": "completed", "content": [{"type": "output_text", "text": "Yes.", "annotations": cited}]})
        agent = Agent("a", model=ScriptedModel([[search, web, mcp, text]]), tools=[FileSearchTool(["v"]),
            WebSearchTool(), HostedMCPTool({"type": "mcp", "server_label": "s", "server_url": "https://s.example",
            "require_approval": "never"})])
    """
    answer = await ask(opened(tmp_path, "openai_agents", source), "q")
    assert (answer.error, answer.text) == (None, "Yes.")
    assert answer.sources == (
        Source(id="d1", title="a.pdf", content="page", score=0.5),
        Source(title="T", uri="https://t.example"),
        Source(id="d2", title="b.pdf"),
    )
    files, web, mcp = calls(answer)
    assert (files.name, files.id, files.arguments_json) == ("file_search", "f1", '{"queries": ["q"]}')
    assert '"text": "page"' in files.result_json
    assert (web.name, web.arguments_json) == ("web_search", '{"action": {"type": "search", "query": "q"}}')
    error = '{"code": 500, "message": "no", "type": "http_error"}'
    assert mcp == ToolCall("ask", "m1", '{"a": 1}', error, is_error=True)


async def test_a_shell_of_the_users_is_a_tool(tmp_path: Path) -> None:
    """A local tool that is no function has its call and its result, too."""
    source = """
        from agents import Agent, LocalShellTool
        from agents.testing import ScriptedModel, assistant_message
        from openai.types.responses.response_output_item import LocalShellCall

        call = LocalShellCall.model_validate({"id": "i1", "call_id": "s1", "type": "local_shell_call",
            "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}})
        model = ScriptedModel([[call], [assistant_message("Done.")]])
        agent = Agent("a", model=model, tools=[LocalShellTool(executor=lambda request: "a file")])
    """
    answer = await ask(opened(tmp_path, "openai_agents", source), "q")
    assert (answer.error, answer.text) == (None, "Done.")
    (call,) = calls(answer)
    assert (call.name, call.id, call.result_json) == ("local_shell", "s1", '"a file"')
    assert '"command": ["ls"]' in call.arguments_json


async def test_a_case_of_variables_alone_is_an_error(tmp_path: Path) -> None:
    """No model is called for it."""
    answer = await ask(opened(tmp_path, "openai_agents", AGENT), "", variables={"city": "Lima"})
    assert answer.error is not None
    assert "the case has variables and no text" in answer.error.message
    assert answer.usage is None


async def test_questions_at_once_do_not_meet(tmp_path: Path) -> None:
    """Each of many questions at once has its own tool calls and its own tokens."""
    caller = opened(tmp_path, "openai_agents", AGENT)
    answers = await asyncio.gather(*(ask(caller, f"w{i}", session=f"run/{i}/0") for i in range(50)))
    assert [calls(answer)[0].arguments_json for answer in answers] == [f'{{"query":"w{i}"}}' for i in range(50)]
    assert {(len(calls(answer)), answer.usage) for answer in answers} == {(1, Usage(20, 8, 28, requests=2))}


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("agent.py:nothing", {}, "agent.target: names a builtins.int, not an agent of OpenAI Agents SDK"),
        ("agent.py:agent", {"context": "agent.py:Context"}, "agent.context: names the class Context"),
    ],
)
def test_wrong_objects_are_refused(tmp_path: Path, target: str, options: dict[str, str], message: str) -> None:
    """Before a question is asked, at the field that names the object."""
    (tmp_path / "agent.py").write_text(AGENT)
    with pytest.raises(InvalidInputError) as caught:
        open_caller(AgentSettings("openai_agents", target, options=options), tmp_path)
    assert message in str(caught.value)
