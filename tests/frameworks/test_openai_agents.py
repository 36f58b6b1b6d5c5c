"""The openai_agents adapter against the real OpenAI Agents SDK, with its own scripted model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.answers import calls
from tests.frameworks.asking import ask, opened

from assay.agent_host.loader import load_object
from assay.agent_host.user_code import open_caller
from assay.errors import InvalidInputError
from assay.model.answers.agent_request import Message
from assay.model.answers.agent_response import AgentStatus, Source, ToolCall, Usage
from assay.model.answers.approvals import read_approvals
from assay.model.run import AgentSpec

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
    elif last.get("role") == "user":
        output = [function_call("search", {"query": word}, call_id=f"{word}-{len(call.input)}") for word in
                  question.split()]
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


agent = Agent("support", model=Script(), instructions="Be brief.", tools=[search])


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
        ("agent.py:agent", {"session": "agent.py:nothing"}, "agent.session: must be a function of the request that"),
    ],
)
def test_wrong_objects_are_refused(tmp_path: Path, target: str, options: dict[str, str], message: str) -> None:
    """Before a question is asked, at the field that names the object."""
    (tmp_path / "agent.py").write_text(AGENT)
    with pytest.raises(InvalidInputError) as caught:
        open_caller(AgentSpec("openai_agents", target, options=options), tmp_path)
    assert message in str(caught.value)


async def test_a_handoff_whose_input_is_filtered_has_its_result(tmp_path: Path) -> None:
    """The filter takes the call and its result out of what the next agent sees, not out of what happened."""
    source = """
        from agents import Agent, handoff
        from agents.extensions.handoff_filters import remove_all_tools
        from agents.testing import ScriptedModel, assistant_message, function_call

        refunds = Agent("refunds", model=ScriptedModel([[assistant_message("Done.")]]))
        model = ScriptedModel([[function_call("transfer_to_refunds", {}, call_id="h1")]])
        agent = Agent("a", model=model, handoffs=[handoff(refunds, input_filter=remove_all_tools)])
    """
    answer = await ask(opened(tmp_path, "openai_agents", source), "q")
    assert (answer.error, answer.text) == (None, "Done.")
    assert [(call.name, call.result_json) for call in calls(answer)] == [
        ("transfer_to_refunds", '{"assistant": "refunds"}')
    ]


async def test_hooks_streams_and_threads_of_nested_runs_are_seen(tmp_path: Path) -> None:
    """An agent as a tool that streams, and one that a synchronous tool runs; the user's hooks are called, too."""
    source = """
        import asyncio
        from agents import Agent, RunHooks, Runner, function_tool
        from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
        from agents.usage import Usage

        def steps(*outputs):
            usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
            return ScriptedModel([ModelStep(output=[each], usage=usage) for each in outputs])

        seen = []

        class Hooks(RunHooks):
            async def on_llm_end(self, context, agent, response):
                seen.append(agent.name)

        @function_tool
        def track(parcel: int) -> str:
            return "Lima"

        def inner(name):
            return Agent(name, tools=[track], model=steps(
                function_call("track", {"parcel": 7}, call_id="c1"), assistant_message(name)))

        @function_tool
        def sync() -> str:
            config = {"workflow_name": "w"}
            try:
                return Runner.run_sync(inner("sync"), "q", hooks=Hooks(), run_config=config).final_output
            finally:  # the SDK leaves its loop open
                asyncio.get_event_loop_policy().get_event_loop().close()

        @function_tool
        async def streams() -> str:
            result = Runner.run_streamed(inner("streams"), "q", hooks=Hooks())
            async for _ in result.stream_events():
                pass
            return result.final_output

        @function_tool
        def names() -> str:
            return ",".join(seen)

        streamed = inner("streamed").as_tool("streamed", "Stream.", on_stream=lambda event: None, hooks=Hooks())
        agent = Agent("a", tools=[sync, streams, streamed, names], model=steps(
            function_call("streamed", {"input": "q"}, call_id="c1"), function_call("sync", {}, call_id="c2"),
            function_call("streams", {}, call_id="c3"), function_call("names", {}, call_id="c4"),
            assistant_message("Done.")))
    """
    answer = await ask(opened(tmp_path, "openai_agents", source), "q")
    assert (answer.error, answer.text) == (None, "Done.")
    assert [(call.name, call.result_json, call.is_error) for call in calls(answer)] == [
        ("streamed", '"streamed"', False),
        ("track", '"Lima"', False),
        ("sync", '"sync"', False),
        ("track", '"Lima"', False),
        ("streams", '"streams"', False),
        ("track", '"Lima"', False),
        ("names", '"streamed,streamed,sync,sync,streams,streams"', False),
    ]
    assert answer.usage == Usage(110, 55, 165, requests=11)


@pytest.mark.parametrize(
    ("decision", "status", "error"),
    [
        ({"approve": True}, AgentStatus.SUCCESS, ""),
        ({"deny": "no"}, AgentStatus.SUCCESS, ""),
        ({"edit": {"a": 2}}, AgentStatus.ERROR, "UnusableDecision"),
    ],
)
async def test_a_hosted_tool_waits_for_approval(
    tmp_path: Path, decision: dict[str, Any], status: AgentStatus, error: str
) -> None:
    """One that OpenAI runs is approved or denied; its arguments are not the agent's to change."""
    source = """
        from agents import Agent, HostedMCPTool
        from agents.testing import ScriptedModel, assistant_message
        from openai.types.responses.response_output_item import McpApprovalRequest

        wanted = McpApprovalRequest(
            id="r1", type="mcp_approval_request", name="delete", server_label="s", arguments='{"a": 1}')
        server = {"type": "mcp", "server_label": "s", "server_url": "https://s.example", "require_approval": "always"}
        agent = Agent("a", model=ScriptedModel([[wanted], [assistant_message("Done.")]]), tools=[HostedMCPTool(server)])
    """
    approvals, _ = read_approvals([{"tool": "delete", **decision}], times=1)
    answer = await ask(opened(tmp_path, "openai_agents", source), "q", approvals=approvals)
    assert (answer.status, answer.error.type if answer.error else "") == (status, error)
    (stop,) = answer.interrupts
    assert (stop.id, stop.tool, stop.arguments_json) == ("r1", "delete", '{"a": 1}')
    assert stop.decision == next(iter(decision))


async def test_tools_that_run_late_or_not_at_all_have_failed(tmp_path: Path) -> None:
    """A time limit of a tool, in the SDK's words and in the user's, and a guardrail that refuses the arguments."""
    source = """
        import asyncio
        from agents import Agent, ToolGuardrailFunctionOutput, function_tool, tool_input_guardrail
        from agents.testing import ScriptedModel, assistant_message, function_call

        @tool_input_guardrail
        def guardrail(data):
            return ToolGuardrailFunctionOutput.reject_content("not allowed")

        @function_tool(timeout=0.01)
        async def late() -> str:
            await asyncio.Event().wait()

        @function_tool(timeout=0.01, timeout_error_function=lambda context, error: "too late")
        async def later() -> str:
            await asyncio.Event().wait()

        @function_tool(tool_input_guardrails=[guardrail])
        def refused() -> str:
            return "x"

        names = ("late", "later", "refused")
        model = ScriptedModel([[function_call(name, {}, call_id=name) for name in names], [assistant_message("Done.")]])
        agent = Agent("a", model=model, tools=[late, later, refused])
    """
    answer = await ask(opened(tmp_path, "openai_agents", source), "q")
    assert (answer.error, answer.text) == (None, "Done.")
    assert [(call.name, call.result_json, call.is_error) for call in calls(answer)] == [
        ("late", "\"Tool 'late' timed out after 0.01 seconds.\"", True),
        ("later", '"too late"', True),
        ("refused", '"not allowed"', True),
    ]


async def test_a_session_of_an_agent_as_a_tool_passes_nothing_on(tmp_path: Path) -> None:
    """Each conversation sees what it had at first; a turn that is asked again sees nothing of what failed."""
    source = """
        import asyncio
        from agents import Agent, SQLiteSession
        from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

        failed = []

        def outer(call):
            last = call.input[-1]
            if "output" not in last:
                return [function_call("inner", {"input": last["content"]}, call_id=f"c{len(call.input)}")]
            if last["output"].endswith("fails") and not failed:
                failed.append(last)
                raise ConnectionError("down")
            return [assistant_message(last["output"])]

        def nested(call):
            return [assistant_message("|".join(item["content"] for item in call.input if item.get("role") == "user"))]

        def scripted(model):
            return ScriptedModel(ModelStep.respond(model) for _ in range(50))

        session = SQLiteSession("shared")
        asyncio.run(session.add_items([{"role": "user", "content": "first"}]))
        inner = Agent("inner", model=scripted(nested))
        agent = Agent("a", model=scripted(outer), tools=[inner.as_tool("inner", "Ask.", session=session)])
    """
    caller = await asyncio.to_thread(opened, tmp_path, "openai_agents", source)
    first = await ask(caller, "one")
    said = (Message("user", "one"), Message("assistant", first.text))
    assert first.text == "first|one"
    assert (await ask(caller, "fails", history=said, turn_index=1)).error is not None
    assert (await ask(caller, "fails", history=said, turn_index=1)).text == "first|one|fails"
    assert (await ask(caller, "two", session="run/0/1")).text == "first|two"


async def test_runs_of_no_question_are_left_alone(tmp_path: Path) -> None:
    """The process of a test may run agents of its own."""
    caller = opened(tmp_path, "openai_agents", AGENT)
    from agents import RunConfig, Runner

    assert (await ask(caller, "peru")).usage == Usage(20, 8, 28, requests=2)
    result = await Runner.run(
        load_object("agent.py:agent", tmp_path), "peru", run_config=RunConfig(tracing_disabled=True)
    )
    assert result.final_output == "It is 42."


async def test_a_session_is_one_conversations_own(tmp_path: Path) -> None:
    """It is made for the first turn, has the history of a case, and loses what a failed attempt left in it."""
    source = """
        from agents import Agent, SQLiteSession
        from agents.testing import ModelStep, ScriptedModel, assistant_message

        failed = []

        def model(call):
            said = [item["content"] for item in call.input if item.get("role") == "user"]
            if said[-1] == "fails" and not failed:
                failed.append(said)
                raise ConnectionError("down")
            return [assistant_message("|".join(said))]

        agent = Agent("a", model=ScriptedModel(ModelStep.respond(model) for _ in range(20)))

        async def session(request):
            return SQLiteSession(request.session_id)
    """
    caller = opened(tmp_path, "openai_agents", source, session="agent.py:session")
    first = await ask(caller, "one")
    said = (Message("user", "one"), Message("assistant", first.text))
    assert (await ask(caller, "fails", history=said, turn_index=1)).error is not None
    assert (await ask(caller, "fails", history=said, turn_index=1)).text == "one|fails"
    assert (await ask(caller, "two", session="run/0/1")).text == "two"
    assert (await ask(caller, "three", session="run/0/2", history=said)).text == "one|three"


async def test_a_server_that_broke_off_is_connected_again(tmp_path: Path) -> None:
    """The row that met it fails and may be asked again; a server that answers keeps its connection after an error."""
    source = """
        from types import SimpleNamespace
        from agents import Agent
        from agents.mcp import MCPServer
        from agents.testing import ModelStep, ScriptedModel, assistant_message

        log = []

        class Server(MCPServer):
            name = "server"
            session = None

            async def connect(self):
                log.append("connect")
                self.session = SimpleNamespace(send_ping=self.list_tools, works=True)

            async def cleanup(self):
                log.append("cleanup")
                self.session = None

            async def list_tools(self, *_):
                if not self.session.works:
                    raise ConnectionError("broken")
                return []

            async def call_tool(self, *_): ...
            async def list_prompts(self): ...
            async def get_prompt(self, *_): ...

        server = Server()

        def model(call):
            question = call.input[-1]["content"]
            if question == "fail":
                raise ValueError("no")
            server.session.works = question != "break"
            return [assistant_message(",".join(log))]

        agent = Agent("a", model=ScriptedModel(ModelStep.respond(model) for _ in range(9)), mcp_servers=[server])
    """
    caller = opened(tmp_path, "openai_agents", source)
    assert (await ask(caller, "fail")).error is not None
    assert (await ask(caller, "break", "run/1/0")).text == "connect"
    broken = await ask(caller, "q", "run/2/0")
    assert broken.error is not None
    assert (broken.error.message, broken.error.retryable) == ("ConnectionError: broken", True)
    assert (await ask(caller, "q", "run/3/0")).text == "connect,cleanup,connect"
    await caller.aclose()


async def test_a_server_that_does_not_start_fails_each_row(tmp_path: Path) -> None:
    """A row says why, the next one tries again, and nothing is left when the agent is closed."""
    source = """
        import sys
        from agents import Agent
        from agents.mcp import MCPServerStdio
        from agents.testing import ScriptedModel, assistant_message

        server = MCPServerStdio({"command": "no-such-command-of-assay"})
        inner = Agent("inner", model=ScriptedModel([]), mcp_servers=[server])
        agent = Agent("a", model=ScriptedModel([[assistant_message("x")]]), handoffs=[inner])
    """
    caller = opened(tmp_path, "openai_agents", source)
    for _ in range(2):
        answer = await ask(caller, "q")
        assert answer.error is not None
        assert answer.error.type == "FileNotFoundError"
        assert "no-such-command-of-assay" in answer.error.message
    await caller.aclose()
