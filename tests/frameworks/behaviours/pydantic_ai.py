"""The behaviours' agents in pydantic-ai."""

from __future__ import annotations

from typing import Any

from tests.frameworks.behaviours.behaviour import Agent, Lacks
from tests.frameworks.behaviours.world import WORLD

PRELUDE = (
    WORLD
    + '''
from contextlib import asynccontextmanager

from mcp import Client, StdioServerParameters
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ContentFilterError, ModelHTTPError, ToolFailed
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel, FunctionStreamedResponse
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage


class City(BaseModel):
    answer: str
    people: int


def call(name, **arguments):
    return (name, arguments)


def scripted(*steps):
    """Return a model that replies with its steps, one a reply: texts, calls, lists of calls, exceptions; it counts
    questions after the first."""

    def reply(messages, info):
        questions = sum(part.part_kind == "user-prompt" for message in messages for part in message.parts)
        step = steps[min(sum(message.kind == "response" for message in messages), len(steps) - 1)]
        if questions > 1:
            step = "{questions} questions"
        step = steps[0](str(messages)) if callable(steps[0]) else step
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str):
            result = getattr(messages[-1].parts[-1], "content", None)
            parts = [TextPart(step.format(result=result, questions=questions))]
        else:
            calls = step if isinstance(step, list) else [step]
            parts = [
                ToolCallPart(name, arguments, f"c{len(messages)}-{index}")
                for index, (name, arguments) in enumerate(calls)
            ]
        return ModelResponse(parts, usage=RequestUsage(input_tokens=10, output_tokens=5))

    return FunctionModel(reply, model_name="scripted")
'''
)


TRACKER = """
inner = Agent(scripted(call("track", parcel={parcel}), {then}), tools=[track, hang])


async def tracker(context: RunContext, where: str) -> str:
    return (await inner.run(where{more})).output
"""
NESTED = TRACKER.format(parcel=7, then='"It is in {result}."', more="")
WAITING = ", output_type=[str, DeferredToolRequests]"
PAYING = f"tools=[Tool(pay, requires_approval=True)]{WAITING}"
PAYER = """
inner = Agent(scripted(call("pay", amount=5), "{result}"), tools=[Tool(pay, requires_approval=True)])


async def payer(amount: int) -> str:
    return (await inner.run(f"Pay {amount}")).output
"""
SHIP = """
from pydantic_ai.exceptions import CallDeferred


def ship(parcel: int) -> str:
    raise CallDeferred
"""
TOLD = """
def find(parcel: int) -> str:
    try:
        return track(parcel)
    except LookupError as problem:
        raise {raised}(str(problem)) from problem
"""
FIND = 'tools=[Tool(find, name="track")]'
MCP = """
class Sums(FunctionToolset):
    \"\"\"The tools of an MCP server, which runs while an agent or a run is entered.\"\"\"

    entered = 0

    async def __aenter__(self):
        self.entered += 1
        if self.entered == 1:
            server = StdioServerParameters(command=MCP_COMMAND[0], args=MCP_COMMAND[1:])
            self.client = await Client(server).__aenter__()
        return self

    async def __aexit__(self, *details):
        self.entered -= 1
        if self.entered == 0:
            await self.client.__aexit__(*details)


sums = Sums()


@sums.tool_plain
async def add(a: int, b: int) -> str:
    result = await sums.client.call_tool("add", {"a": a, "b": b})
    if result.is_error:
        raise ToolFailed(result.content[0].text)
    return result.content[0].text
"""
STREAMED = """
class Counted(FunctionStreamedResponse):
    async def _get_event_iterator(self):
        async for event in super()._get_event_iterator():
            yield event
        self._usage = RequestUsage(input_tokens=10, output_tokens=5)


class Streaming(FunctionModel):
    @asynccontextmanager
    async def request_stream(self, messages, settings, parameters, context=None):
        yield Counted(model_request_parameters=parameters, _model_name="s", _iter=self.stream_function(messages, None))


async def pieces(messages, info):
    for piece in ("Li", "ma."):
        yield piece


class Watching(AbstractCapability):
    async def wrap_run_event_stream(self, ctx, *, stream):
        async for event in stream:
            yield event


agent = Agent(Streaming(stream_function=pieces), capabilities=[Watching()])
"""
LIFESPAN = """
@asynccontextmanager
async def opened():
    log("opened")
    try:
        yield {7: "Lima"}
    finally:
        log("closed")


def find(context: RunContext[dict], parcel: int) -> str:
    return context.deps[parcel]
"""


def agent(*steps: str, before: str = "", more: str = "", **options: Any) -> Agent:
    return Agent(f"{before}\nagent = Agent(scripted({', '.join(steps)}), {more})", options)


def failing(status: int) -> Agent:
    return agent(f'ModelHTTPError({status}, "scripted")')


BY_FUNCTIONS = Lacks("an agent is no tool; a function that runs it is one, as in nested_run")
HANDED_OVER = Lacks("agents hand over in the function of an output, which is no tool call")
AGENTS: dict[str, Agent | Lacks] = {
    "last_answer": agent('"Lima."'),
    "tool_call": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[track]"),
    "direct_return": Lacks("a tool whose result is the answer is the function of an output, which is no tool call"),
    "structured_output": agent('call("final_result", **CITY)', more="output_type=City"),
    "structured_output_after_a_tool": agent(
        'call("track", parcel=7)', 'call("final_result", **CITY)', more="output_type=City, tools=[track]"
    ),
    "output_tool": agent('call("deliver", **CITY)', more='output_type=ToolOutput(City, name="deliver")'),
    "output_tool_refused": agent(
        'call("deliver", answer="Lima")', more='output_type=ToolOutput(City, name="deliver"), retries=1'
    ),
    "no_answer": agent('call("track", parcel=7)', '""', more="output_type=[str, None], tools=[track]"),
    "no_usage": Agent(
        "agent = Agent(FunctionModel(lambda messages, info: "
        'ModelResponse([TextPart("Lima.")], usage=RequestUsage(unmeasured_requests=1))))'
    ),
    "stream": Agent(STREAMED),
    "middleware": agent(
        '"Lima."',
        before="""
class Cache(AbstractCapability):
    async def wrap_model_request(self, ctx, *, request_context, handler):
        return ModelResponse([TextPart("From the cache.")])
""",
        more="capabilities=[Cache()]",
    ),
    "handoff": HANDED_OVER,
    "conversation_after_handoff": HANDED_OVER,
    "nested_agent": BY_FUNCTIONS,
    "nested_run": agent(
        'call("tracker", where="7")',
        '"{result}"',
        before=TRACKER.format(parcel=7, then='"It is in {result}."', more=", usage=context.usage"),
        more="tools=[tracker]",
    ),
    "nested_agents_at_once": agent(
        '[call("tracker", where="7"), call("tracker", where="7")]',
        '"It is in Lima."',
        before=NESTED,
        more="tools=[tracker]",
    ),
    "nested_agent_fails": agent(
        'call("tracker", where="9")', before=TRACKER.format(parcel=9, then='""', more=""), more="tools=[tracker]"
    ),
    "parallel_tools": agent(
        '[call("track", parcel=7), call("track", parcel=8)]', '"Lima and Quito."', more="tools=[track]"
    ),
    "failing_tool": agent(
        'call("track", parcel=9)', '"I do not know."', before=TOLD.format(raised="ToolFailed"), more=FIND
    ),
    "raising_tool": agent('call("track", parcel=9)', more="tools=[track]"),
    "parallel_tools_one_fails": agent(
        '[call("track", parcel=7), call("track", parcel=9)]',
        '"One is in Lima."',
        before=TOLD.format(raised="ModelRetry"),
        more=FIND,
    ),
    "retried_tool": agent(
        'call("track", parcel=9)',
        'call("track", parcel=7)',
        '"It is in {result}."',
        before=TOLD.format(raised="ModelRetry"),
        more=FIND,
    ),
    "wrong_arguments": agent(
        'call("track", parcel="seven")', 'call("track", parcel=7)', '"It is in {result}."', more="tools=[track]"
    ),
    "mcp_server": agent('call("add", a=2, b=3)', '"It is {result}."', before=MCP, more="toolsets=[sums]"),
    "mcp_failing_tool": agent('call("add", a=10, b=3)', '"I cannot add."', before=MCP, more="toolsets=[sums]"),
    "approval": agent('call("pay", amount=5)', '"Done: {result}"', more=PAYING),
    "approval_given": agent('call("pay", amount=5)', '"Done: {result}"', more=PAYING),
    "approval_denied": agent('call("pay", amount=5)', '"Not paid."', more=PAYING),
    "approval_edited": agent('call("pay", amount=5)', '"Done: {result}"', more=PAYING),
    "approvals_at_once": agent('[call("pay", amount=5), call("pay", amount=6)]', '"Done."', more=PAYING),
    "approvals_one_after_the_other": agent(
        'call("pay", amount=5)', 'call("pay", amount=6)', '"Done: {result}"', more=PAYING
    ),
    "approval_in_a_nested_agent": agent(
        'call("payer", amount=5)', '"Done: {result}"', before=PAYER, more="tools=[payer]"
    ),
    "conversation_after_approval": agent('call("pay", amount=5)', '"Done: {result}"', more=PAYING),
    "static_interrupt": Lacks("only graphs of LangGraph have breakpoints"),
    "static_interrupt_passed": Lacks("only graphs of LangGraph have breakpoints"),
    "question_to_a_person": Lacks("a person is asked by a tool that the model calls"),
    "question_answered": Lacks("a person is asked by a tool that the model calls"),
    "long_running_tool": agent(
        'call("ship", parcel=7)', '"Done: {result}"', before=SHIP, more=f"tools=[ship]{WAITING}"
    ),
    "long_running_tool_answered": agent(
        'call("ship", parcel=7)', '"Done: {result}"', before=SHIP, more=f"tools=[ship]{WAITING}"
    ),
    "limit": agent('call("track", parcel=7)', more="tools=[track]", request_limit=3),
    "input_guardrail": agent(
        '"Lima."',
        before="""
class Guardrail(AbstractCapability):
    async def before_run(self, ctx):
        raise ContentFilterError("not allowed")
""",
        more="capabilities=[Guardrail()]",
    ),
    "output_guardrail": Agent("""
agent = Agent(scripted("Lima."))


@agent.output_validator
def guardrail(text: str) -> str:
    raise ContentFilterError("not allowed")
"""),
    "refusal": Agent(
        "agent = Agent(FunctionModel(lambda messages, info: ModelResponse("
        '[TextPart("I will not.")], finish_reason="content_filter", '
        "usage=RequestUsage(input_tokens=10, output_tokens=5))))"
    ),
    "model_400": failing(400),
    "model_401": failing(401),
    "model_404": failing(404),
    "model_422": failing(422),
    "model_429": failing(429),
    "model_503": failing(503),
    "model_fails_later": agent('call("track", parcel=7)', 'ModelHTTPError(503, "scripted")', more="tools=[track]"),
    "timeout": agent('call("track", parcel=7)', 'call("hang")', more="tools=[track, hang]"),
    "timeout_in_a_nested_agent": agent(
        'call("tracker", where="7")',
        before=TRACKER.format(parcel=7, then='call("hang")', more=""),
        more="tools=[tracker]",
    ),
    "conversation": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[track]"),
    "saver": Lacks("it keeps nothing itself: each run is given the messages of the earlier ones"),
    "store": Lacks("it has none"),
    "turn_that_cannot_be_held": Lacks("every run is given the messages of the earlier ones"),
    "lifespan": agent(
        'call("track", parcel=7)',
        '"It is in {result}."',
        before=LIFESPAN,
        more=f"deps_type=dict, {FIND}",
        lifespan="agent.py:opened",
    ),
    "lifespan_per_case": agent(
        'call("track", parcel=7)',
        '"It is in {result}."',
        before=LIFESPAN,
        more=f"deps_type=dict, {FIND}",
        lifespan="agent.py:opened",
        lifespan_per="case",
    ),
}
