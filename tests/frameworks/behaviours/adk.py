"""The behaviours' agents in Google ADK."""

from __future__ import annotations

from typing import Any

from tests.frameworks.behaviours.behaviour import Agent, Lacks
from tests.frameworks.behaviours.world import WORLD

PRELUDE = (
    WORLD
    + '''
from contextlib import asynccontextmanager

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.events import Event
from google.adk.events.request_input import RequestInput
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from google.adk.workflow import Workflow
from google.genai import errors, types
from mcp import StdioServerParameters
from pydantic import BaseModel


class City(BaseModel):
    answer: str
    people: int


def call(name, **arguments):
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments))


def content(*parts):
    return types.Content(role="model", parts=[types.Part(text=one) if isinstance(one, str) else one for one in parts])


def refused(code):
    kind = errors.ClientError if code < 500 else errors.ServerError
    return kind(code, {"error": {"code": code, "message": "refused", "status": "REFUSED"}})


def blocked(**_):
    return LlmResponse(error_code="PROHIBITED_CONTENT", error_message="by the guardrail")


def handled(error, **_):
    """Tell the model what a tool raised."""
    return {"error": str(error)}


class Scripted(BaseLlm):
    """Replies with its steps, one a reply: texts, calls, lists of calls, exceptions. Counts later questions."""

    model: str = "scripted"
    steps: tuple = ()
    is_counted: bool = True
    is_streamed: bool = False

    async def generate_content_async(self, request, stream=False):
        texts = [[part.text for part in content.parts if part.text] for content in request.contents]
        users = [text for content, text in zip(request.contents, texts) if content.role == "user"]
        questions = sum(bool(text) and not text[0].startswith("For context:") for text in users)
        replies = sum(content.role == "model" for content in request.contents)
        step = self.steps[min(replies, len(self.steps) - 1)] if questions == 1 else "{questions} questions"
        step = self.steps[0](str(request.contents)) if callable(self.steps[0]) else step
        if isinstance(step, Exception):
            raise step
        if isinstance(step, LlmResponse):
            reply = step.model_copy()
        elif isinstance(step, str):
            results = [part.function_response for part in request.contents[-1].parts if part.function_response]
            result = results[-1].response.get("result", results[-1].response) if results else None
            said = step.replace("{result}", str(result)).replace("{questions}", str(questions))
            reply = LlmResponse(content=content(said))
            for piece in ("Li", "ma.") if self.is_streamed else ():
                yield LlmResponse(content=content(piece), partial=True)
        else:
            reply = LlmResponse(content=content(*(step if isinstance(step, list) else [step])))
        if self.is_counted:
            reply.usage_metadata = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=10, candidates_token_count=5, total_token_count=15)
        yield reply


def scripted(*steps, **more):
    return Scripted(steps=steps, **more)


def quote_at_once(city: str, tool_context: ToolContext) -> str:
    tool_context.actions.skip_summarization = True
    return quote(city)


quote_at_once.__name__ = "quote"


def ship(parcel: int) -> None:
    """Ship a parcel: something outside does."""


def mcp_tools():
    command, *args = MCP_COMMAND
    server = StdioServerParameters(command=command, args=args)
    return McpToolset(connection_params=StdioConnectionParams(server_params=server, timeout=30))


def tracker_of(*steps):
    return LlmAgent(name="tracker", description="Tracks.", model=scripted(*steps), tools=[track, hang])


async def ask_city(node_input):
    yield RequestInput(message="Which city?", interrupt_id="city")
'''
)


def agent(*steps: str, more: str = "", **options: Any) -> Agent:
    return Agent(f'agent = LlmAgent(name="a", model=scripted({", ".join(steps)}), {more})', options)


def manager(*tracker: str, calls: str = 'call("tracker", request="parcel 7")') -> Agent:
    return agent(calls, '"It is in Lima."', more=f"tools=[AgentTool(tracker_of({', '.join(tracker)}))]")


def handoff(*refunds: str) -> Agent:
    return Agent(
        f"""
refunds = LlmAgent(name="refunds", description="Refunds.", model=scripted({", ".join(refunds)}), tools=[pay])
agent = LlmAgent(name="support", model=scripted(call("transfer_to_agent", agent_name="refunds")), sub_agents=[refunds])
""",
        names={"transfer_to_agent": "handoff"},
    )


TRACK, TRACK_8, LOST = (f'call("track", parcel={parcel})' for parcel in (7, 8, 9))
PAY, PAY_6 = (f'call("pay", amount={amount})' for amount in (5, 6))
DONE = '"Done: {result}"'
HANDLED = "tools=[track], on_tool_error_callback=handled"
LIFESPAN = """
import threading


class Places:
    def __init__(self):
        self.lock = threading.Lock()  # no copy can be made of it

    def find(self, parcel):
        with self.lock:
            return CITIES[parcel]


CITIES = {7: "Lima"}


@asynccontextmanager
async def opened():
    log("opened")
    yield {"places": Places(), "lock": threading.Lock()}
    log("closed")


def found(parcel: int, tool_context: ToolContext) -> str:
    with tool_context.state["lock"]:
        return tool_context.state["places"].find(parcel)


found.__name__ = "track"
"""
CONFIRMED = "tools=[FunctionTool(pay, require_confirmation=True)]"
SHIPPED = "tools=[LongRunningFunctionTool(ship)]"
TRACKED = agent(TRACK, '"It is in {result}."', more="tools=[track]")
ASKING = Agent(
    """
answering = LlmAgent(name="a", model=scripted(lambda seen: "It is Lima." if "Lima" in seen else "No city."))
agent = Workflow(name="w", edges=[("START", ask_city), (ask_city, answering)])
"""
)

AGENTS: dict[str, Agent | Lacks] = {
    "last_answer": agent('"Lima."'),
    "tool_call": TRACKED,
    "direct_return": agent('call("quote", city="Lima")', more="tools=[quote_at_once]"),
    "structured_output": agent("City(**CITY).model_dump_json()", more="output_schema=City"),
    "structured_output_after_a_tool": agent(
        TRACK, 'call("set_model_response", **CITY)', more="output_schema=City, tools=[track]"
    ),
    "output_tool": Lacks("ADK names the tool itself by which a model delivers a typed value: set_model_response"),
    "output_tool_refused": Lacks("a model may call set_model_response again until max_llm_calls"),
    "no_answer": agent(TRACK, "LlmResponse()", more="tools=[track]"),
    "no_usage": Agent('agent = LlmAgent(name="a", model=scripted("Lima.", is_counted=False))'),
    "stream": Agent('agent = LlmAgent(name="a", model=scripted("Lima.", is_streamed=True))'),
    "middleware": agent(
        '"Never."', more='before_model_callback=lambda **_: LlmResponse(content=content("From the cache."))'
    ),
    "handoff": handoff(PAY, '"Refunded: {result}"'),
    "conversation_after_handoff": handoff('"Refunded."'),
    "nested_agent": manager(TRACK, '"Lima"'),
    "nested_run": Agent(
        f"""
inner = InMemoryRunner(tracker_of({TRACK}, "Lima"), app_name="inner")

async def tracker(request: str) -> str:
    session = await inner.session_service.create_session(app_name="inner", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=request)])
    events = inner.run_async(user_id="u", session_id=session.id, new_message=message)
    return [event async for event in events][-1].content.parts[0].text

agent = LlmAgent(name="a", model=scripted(call("tracker", request="parcel 7"), "It is in Lima."), tools=[tracker])
"""
    ),
    "nested_agents_at_once": manager(
        TRACK, '"Lima"', calls='[call("tracker", request="parcel 7"), call("tracker", request="parcel 7")]'
    ),
    "nested_agent_fails": manager(LOST),
    "parallel_tools": agent(f"[{TRACK}, {TRACK_8}]", '"Lima and Quito."', more="tools=[track]"),
    "failing_tool": agent(LOST, '"I do not know."', more=HANDLED),
    "raising_tool": agent(LOST, more="tools=[track]"),
    "parallel_tools_one_fails": agent(f"[{TRACK}, {LOST}]", '"One is in Lima."', more=HANDLED),
    "retried_tool": agent(LOST, TRACK, '"It is in Lima."', more=HANDLED),
    "wrong_arguments": agent('call("track", parcel="seven")', TRACK, '"It is in Lima."', more=HANDLED),
    "mcp_server": agent('call("add", a=2, b=3)', '"It is 5."', more="tools=[mcp_tools()]"),
    "mcp_failing_tool": agent('call("add", a=10, b=3)', '"I cannot add."', more="tools=[mcp_tools()]"),
    "approval": agent(PAY, DONE, more=CONFIRMED),
    "approval_given": agent(PAY, DONE, more=CONFIRMED),
    "approval_denied": agent(PAY, '"Not paid."', more=CONFIRMED),
    "approval_edited": agent(PAY, DONE, more=CONFIRMED),
    "approvals_at_once": agent(f"[{PAY}, {PAY_6}]", DONE, more=CONFIRMED),
    "approvals_one_after_the_other": agent(PAY, PAY_6, DONE, more=CONFIRMED),
    "approval_in_a_nested_agent": Agent(
        f"""
replies = scripted({PAY}, "{{result}}")
payer = LlmAgent(name="payer", description="Pays.", mode="single_turn", model=replies, {CONFIRMED})
agent = LlmAgent(name="manager", model=scripted(call("payer", request="Pay 5"), {DONE}), sub_agents=[payer])
"""
    ),
    "conversation_after_approval": agent(PAY, DONE, more=CONFIRMED),
    "static_interrupt": Lacks("only graphs of LangGraph have breakpoints"),
    "static_interrupt_passed": Lacks("only graphs of LangGraph have breakpoints"),
    "question_to_a_person": ASKING,
    "question_answered": ASKING,
    "long_running_tool": agent('call("ship", parcel=7)', DONE, more=SHIPPED),
    "long_running_tool_answered": agent('call("ship", parcel=7)', DONE, more=SHIPPED),
    "limit": agent(TRACK, more="tools=[track]", max_llm_calls=3),
    "input_guardrail": agent('"Never."', more="before_model_callback=blocked"),
    "output_guardrail": agent('"A secret."', more="after_model_callback=blocked"),
    "refusal": agent('LlmResponse(error_code="SAFETY", error_message="no")'),
    **{f"model_{code}": agent(f"refused({code})") for code in (400, 401, 404, 422, 429, 503)},
    "model_fails_later": agent(TRACK, "refused(503)", more="tools=[track]"),
    "timeout": agent(TRACK, 'call("hang")', more="tools=[track, hang]"),
    "timeout_in_a_nested_agent": manager(TRACK, 'call("hang")'),
    "conversation": TRACKED,
    "saver": Agent(f"{TRACKED.source}\nsessions = InMemorySessionService()", {"session_service": "agent.py:sessions"}),
    "store": Agent(
        """
class Keeper(BaseAgent):
    async def _run_async_impl(self, ctx):
        facts = ctx.session.state.get("app:facts", 0) + ctx.session.state.get("user:facts", 0)
        known = content(f"I know {facts // 2} facts.")
        facts = facts // 2 + 1
        yield Event(author=self.name, content=known, state={"app:facts": facts, "user:facts": facts})

agent = InMemoryRunner(Keeper(name="keeper"), app_name="keeper")
"""
    ),
    "lifespan": Agent(LIFESPAN + TRACKED.source.replace("[track]", "[found]"), {"lifespan": "agent.py:opened"}),
    "lifespan_per_case": Agent(
        LIFESPAN + TRACKED.source.replace("[track]", "[found]"),
        {"lifespan": "agent.py:opened", "lifespan_per": "case"},
    ),
    "turn_that_cannot_be_held": Lacks("a session holds the turns of every agent"),
}
