"""The behaviours' agents in the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

from tests.frameworks.behaviours.behaviour import Agent, Lacks
from tests.frameworks.behaviours.world import WORLD

PRELUDE = (
    WORLD
    + '''
import json

from contextlib import asynccontextmanager

import httpx
import openai
from agents import Agent, GuardrailFunctionOutput, RunContextWrapper, Runner, SQLiteSession
from agents import function_tool, input_guardrail, output_guardrail
from agents.items import ModelResponse
from agents.mcp import MCPServerStdio
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage
from openai.types.responses import ResponseOutputRefusal, ResponseOutputText
from pydantic import BaseModel


class City(BaseModel):
    answer: str
    people: int


TYPED = json.dumps(CITY).replace("{", "{{").replace("}", "}}")


def told(context, error):
    return str(error)


def call(name, **arguments):
    return (name, json.dumps(arguments))


class Scripted(Model):
    """Replies with its steps, one a reply: texts, calls, lists of calls, exceptions. Counts later questions."""

    def __init__(self, steps):
        self.steps, self.model = steps, "scripted"

    async def get_response(self, system_instructions, input, *_, **__):
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        questions = sum(item.get("role") == "user" for item in items)
        replied, in_reply = 0, False
        for item in items:
            is_reply = item.get("role") == "assistant" or item.get("type") == "function_call"
            replied += is_reply and not in_reply
            in_reply = is_reply
        step = self.steps[min(replied, len(self.steps) - 1)] if questions == 1 else "{questions} questions"
        step = self.steps[0](str(items)) if callable(self.steps[0]) else step
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str):
            said = step.format(result=items[-1].get("output"), questions=questions)
            part = ResponseOutputText(type="output_text", text=said, annotations=[])
            output = [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed",
                                            content=[part])]
        else:
            calls = step if isinstance(step, list) else [step]
            output = [
                ResponseFunctionToolCall(call_id=f"c{len(items)}-{index}", type="function_call", name=name,
                                         arguments=arguments)
                for index, (name, arguments) in enumerate(calls)
            ]
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=output, usage=usage, response_id=None)

    async def stream_response(self, *_, **__):
        raise NotImplementedError
        yield


def scripted(*steps):
    return Scripted(steps)


def refused(status):
    response = httpx.Response(status, request=httpx.Request("POST", "https://model.example"))
    return openai.APIStatusError("refused", response=response, body=None)
'''
)


def agent(*steps: str, before: str = "", more: str = "", **options: Any) -> Agent:
    return Agent(f'{before}\nagent = Agent("a", model=scripted({", ".join(steps)}), {more})', options)


def failing(status: int) -> Agent:
    return agent(f"refused({status})")


TRACKING = "tools=[function_tool(track)]"
TOLD = "tools=[function_tool(track, failure_error_function=told)]"
RAISING = "tools=[function_tool(track, failure_error_function=None)]"
PAYING = "tools=[function_tool(pay, needs_approval=True)]"
TRACKER = """
tracker = Agent("tracker", model=scripted(call("track", parcel=7), "{result}"), tools=[function_tool(track)])
"""
AS_TOOL = 'tools=[tracker.as_tool("tracker", "Track a parcel.")]'
FUNCTION = """
inner = tracker


@function_tool
async def tracker(where: str) -> str:
    return (await Runner.run(inner, where)).final_output
"""
TRACKED = ('call("tracker", input="7")', '"It is in {result}."')
MCP = """
sums = MCPServerStdio({"command": MCP_COMMAND[0], "args": MCP_COMMAND[1:]}, client_session_timeout_seconds=60)
"""
LIFESPAN = """
@asynccontextmanager
async def opened():
    log("opened")
    try:
        yield {7: "Lima"}
    finally:
        log("closed")


@function_tool(name_override="track")
def find(context: RunContextWrapper[dict], parcel: int) -> str:
    return context.context[parcel]
"""
GUARDRAIL = """
@{kind}
async def guardrail(context, agent, found) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, True)
"""
REFUSES = """
class Refusing(Scripted):
    async def get_response(self, *args, **options):
        response = await super().get_response(*args, **options)
        response.output[0].content = [ResponseOutputRefusal(type="refusal", refusal="I will not.")]
        return response
"""
UNCOUNTED = """
class Uncounted(Scripted):
    async def get_response(self, *args, **options):
        response = await super().get_response(*args, **options)
        response.usage = Usage()
        return response
"""
OUTPUT_TOOL = Lacks("typed output is the text of a model, and no tool delivers it")
NOTHING_WAITS = Lacks("only the approval of a call waits; what a tool asks a person for, it asks by itself")
AGENTS: dict[str, Agent | Lacks] = {
    "last_answer": agent('"Lima."'),
    "tool_call": agent('call("track", parcel=7)', '"It is in {result}."', more=TRACKING),
    "direct_return": agent(
        'call("quote", city="Lima")', more='tools=[function_tool(quote)], tool_use_behavior="stop_on_first_tool"'
    ),
    "structured_output": agent("TYPED", more="output_type=City"),
    "structured_output_after_a_tool": agent('call("track", parcel=7)', "TYPED", more=f"{TRACKING}, output_type=City"),
    "output_tool": OUTPUT_TOOL,
    "output_tool_refused": OUTPUT_TOOL,
    "no_answer": agent('call("track", parcel=7)', '""', more=TRACKING),
    "no_usage": Agent(f'{UNCOUNTED}\nagent = Agent("a", model=Uncounted(["Lima."]))'),
    "stream": Lacks("`Runner.run` asks a model for its whole reply; a nested agent may stream, which its tests have"),
    "middleware": Lacks("hooks see the calls of a model, and none can answer them"),
    "handoff": Agent(
        """
refunds = Agent("refunds", model=scripted("", call("pay", amount=5), "Refunded: {result}"), tools=[function_tool(pay)])
agent = Agent("support", model=scripted(call("transfer_to_refunds")), handoffs=[refunds])
""",
        names={"transfer_to_refunds": "handoff"},
    ),
    "conversation_after_handoff": Agent(
        """
refunds = Agent("refunds", model=scripted("", "Refunded."))
agent = Agent("support", model=scripted(call("transfer_to_refunds")), handoffs=[refunds])
""",
        names={"transfer_to_refunds": "handoff"},
    ),
    "nested_agent": agent(*TRACKED, before=TRACKER, more=AS_TOOL),
    "nested_run": agent('call("tracker", where="7")', TRACKED[1], before=TRACKER + FUNCTION, more="tools=[tracker]"),
    "nested_agents_at_once": agent(f"[{TRACKED[0]}, {TRACKED[0]}]", '"It is in Lima."', before=TRACKER, more=AS_TOOL),
    "nested_agent_fails": agent(
        'call("tracker", input="9")',
        before=TRACKER.replace("parcel=7", "parcel=9").replace("function_tool(track)", RAISING[7:-1]),
        more=AS_TOOL.replace('parcel."', 'parcel.", failure_error_function=None'),
    ),
    "parallel_tools": agent('[call("track", parcel=7), call("track", parcel=8)]', '"Lima and Quito."', more=TRACKING),
    "failing_tool": agent('call("track", parcel=9)', '"I do not know."', more=TOLD),
    "raising_tool": agent('call("track", parcel=9)', more=RAISING),
    "parallel_tools_one_fails": agent(
        '[call("track", parcel=7), call("track", parcel=9)]', '"One is in Lima."', more=TOLD
    ),
    "retried_tool": agent('call("track", parcel=9)', 'call("track", parcel=7)', '"It is in {result}."', more=TOLD),
    "wrong_arguments": agent(
        'call("track", parcel="seven")', 'call("track", parcel=7)', '"It is in {result}."', more=TRACKING
    ),
    "mcp_server": agent('call("add", a=2, b=3)', '"It is 5."', before=MCP, more="mcp_servers=[sums]"),
    "mcp_failing_tool": agent('call("add", a=10, b=3)', '"I cannot add."', before=MCP, more="mcp_servers=[sums]"),
    "approval": agent('call("pay", amount=5)', '"Done: {result}"', more=PAYING),
    "approval_given": agent('call("pay", amount=5)', '"Done: {result}"', more=PAYING),
    "approval_denied": agent('call("pay", amount=5)', '"Not paid."', more=PAYING),
    "approval_edited": agent('call("pay", amount=5)', '"Done: {result}"', more=PAYING),
    "approvals_at_once": agent('[call("pay", amount=5), call("pay", amount=6)]', '"Done: {result}"', more=PAYING),
    "approvals_one_after_the_other": agent(
        'call("pay", amount=5)', 'call("pay", amount=6)', '"Done: {result}"', more=PAYING
    ),
    "approval_in_a_nested_agent": agent(
        'call("payer", input="5")',
        '"Done: {result}"',
        before=f'payer = Agent("payer", model=scripted(call("pay", amount=5), "{{result}}"), {PAYING})',
        more='tools=[payer.as_tool("payer", "Pay.")]',
    ),
    "conversation_after_approval": agent('call("pay", amount=5)', '"Done: {result}"', more=PAYING),
    "static_interrupt": Lacks("only graphs of LangGraph have breakpoints"),
    "static_interrupt_passed": Lacks("only graphs of LangGraph have breakpoints"),
    "question_to_a_person": NOTHING_WAITS,
    "question_answered": NOTHING_WAITS,
    "long_running_tool": NOTHING_WAITS,
    "long_running_tool_answered": NOTHING_WAITS,
    "limit": agent('call("track", parcel=7)', more=TRACKING, max_turns=3),
    "input_guardrail": agent(
        '"Lima."',
        before=GUARDRAIL.format(kind="input_guardrail(run_in_parallel=False)"),
        more="input_guardrails=[guardrail]",
    ),
    "output_guardrail": agent(
        '"Lima."', before=GUARDRAIL.format(kind="output_guardrail"), more="output_guardrails=[guardrail]"
    ),
    "refusal": Agent(f'{REFUSES}\nagent = Agent("a", model=Refusing(["Lima."]))'),
    "model_400": failing(400),
    "model_401": failing(401),
    "model_404": failing(404),
    "model_422": failing(422),
    "model_429": failing(429),
    "model_503": failing(503),
    "model_fails_later": agent('call("track", parcel=7)', "refused(503)", more=TRACKING),
    "timeout": agent(
        'call("track", parcel=7)', 'call("hang")', more="tools=[function_tool(track), function_tool(hang)]"
    ),
    "timeout_in_a_nested_agent": agent(
        TRACKED[0],
        before=TRACKER.replace('"{result}"', 'call("hang")').replace("tools=[", "tools=[function_tool(hang), "),
        more=AS_TOOL,
    ),
    "conversation": agent('call("track", parcel=7)', '"It is in {result}."', more=TRACKING),
    "saver": agent(
        'call("track", parcel=7)',
        '"It is in {result}."',
        before="def session(request):\n    return SQLiteSession(request.session_id)",
        more=TRACKING,
        session="agent.py:session",
    ),
    "store": Lacks("it has none"),
    "turn_that_cannot_be_held": Lacks("every run is given the items of the earlier ones"),
    "lifespan": agent(
        'call("track", parcel=7)', TRACKED[1], before=LIFESPAN, more="tools=[find]", lifespan="agent.py:opened"
    ),
    "lifespan_per_case": agent(
        'call("track", parcel=7)',
        TRACKED[1],
        before=LIFESPAN,
        more="tools=[find]",
        lifespan="agent.py:opened",
        lifespan_per="case",
    ),
}
