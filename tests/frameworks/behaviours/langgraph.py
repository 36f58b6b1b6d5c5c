"""The behaviours' agents in LangGraph and LangChain."""

from __future__ import annotations

from typing import Any

from tests.frameworks.behaviours.behaviour import Agent, Lacks
from tests.frameworks.behaviours.world import WORLD

PRELUDE = (
    WORLD
    + '''
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

import httpx
import openai
from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, tools_condition
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel


def call(name, **arguments):
    return {"name": name, "args": arguments}


class Scripted(BaseChatModel):
    """Replies with its steps, one a reply: texts, calls, lists of calls, exceptions. Counts later questions."""

    steps: tuple
    is_counted: bool = True

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **options):
        return self.bind(**options)

    def _generate(self, messages, stop=None, run_manager=None, **_):
        questions = sum(message.type == "human" for message in messages)
        step = self.steps[min(sum(message.type == "ai" for message in messages), len(self.steps) - 1)]
        if questions > 1:
            step = "{questions} questions"
        step = self.steps[0](str(messages)) if callable(self.steps[0]) else step
        if isinstance(step, Exception):
            raise step
        if isinstance(step, AIMessage):
            reply = step.model_copy()
        elif isinstance(step, str):
            reply = AIMessage(step.format(result=messages[-1].text, questions=questions))
        else:
            calls = step if isinstance(step, list) else [step]
            names = [one | {"id": f"c{len(messages)}-{index}"} for index, one in enumerate(calls)]
            reply = AIMessage("", tool_calls=names)
        reply.usage_metadata = USAGE if self.is_counted else None
        return ChatResult(generations=[ChatGeneration(message=reply)])


class Streaming(Scripted):
    """Replies with its steps as the pieces of one text."""

    def _stream(self, messages, stop=None, run_manager=None, **_):
        for piece in self.steps:
            yield ChatGenerationChunk(message=AIMessageChunk(piece))
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=USAGE))


USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


class City(BaseModel):
    answer: str
    people: int


class Typed(MessagesState):
    structured_response: City


def scripted(*steps, **more):
    return Scripted(steps=steps, **more)


def refused(status):
    response = httpx.Response(status, request=httpx.Request("POST", "https://model.example"))
    return openai.APIStatusError("refused", response=response, body=None)


def line(state, **nodes):
    """Return a graph, not compiled, of some nodes in a row."""
    return StateGraph(state).add_sequence(list(nodes.items())).add_edge(START, next(iter(nodes)))


def asks(model):
    return lambda state: {"messages": [model.invoke(state["messages"])]}


def loop(model, tools, *, handled=False):
    """Return a graph, not compiled, of a model and its tools in turn; a tool that raises ends it unless handled."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", asks(model))
    tools = [one if isinstance(one, BaseTool) else tool(one) for one in tools]
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=handled))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph


def reviewed(model, *tools, allowed=("approve", "edit", "reject")):
    """Return a graph, not compiled, whose calls of tools a person reviews, as by HumanInTheLoopMiddleware."""

    def review(state):
        message = state["messages"][-1]
        if not message.tool_calls:
            return Command(goto=END)
        requests = [{"name": call["name"], "args": call["args"]} for call in message.tool_calls]
        configs = [{"action_name": one["name"], "allowed_decisions": list(allowed)} for one in requests]
        decisions = interrupt({"action_requests": requests, "review_configs": configs})["decisions"]
        calls, answers = [], []
        for call, decision in zip(message.tool_calls, decisions, strict=True):
            calls.append(call | {"args": decision["edited_action"]["args"]} if decision["type"] == "edit" else call)
            if decision["type"] in ("reject", "respond"):
                status = "error" if decision["type"] == "reject" else "success"
                answers.append(ToolMessage(decision["message"], tool_call_id=call["id"], status=status))
        edited = message.model_copy(update={"tool_calls": calls})
        return Command(update={"messages": [edited, *answers]}, goto="model" if answers else "tools")

    graph = StateGraph(MessagesState)
    graph.add_node("model", asks(model))
    graph.add_node("review", review)
    graph.add_node("tools", ToolNode([tool(one) for one in tools]))
    graph.add_edge(START, "model")
    graph.add_edge("model", "review")
    graph.add_edge("tools", "model")
    return graph


def ship(parcel: int) -> str:
    """Ship a parcel: something outside does."""
    raise NotImplementedError


def running(inner, name):
    """Return a tool that runs an agent itself."""

    async def run(request: str) -> str:
        """Ask the agent."""
        state = await inner.ainvoke({"messages": [("user", request)]})
        return state["messages"][-1].text

    return tool(name)(run)


@tool
def transfer_to_refunds(
    state: Annotated[dict, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
) -> Command:
    """Hand the conversation over."""
    done = ToolMessage("transferred", tool_call_id=tool_call_id)
    return Command(goto="refunds", update={"messages": [*state["messages"], done]}, graph=Command.PARENT)
'''
)


def agent(*steps: str, tools: str = "", more: str = "", compiled: str = "", **options: Any) -> Agent:
    return Agent(f"agent = loop(scripted({', '.join(steps)}), [{tools}], {more}).compile({compiled})", options)


def reviewed(*steps: str, tools: str = "pay") -> Agent:
    return Agent(f"agent = reviewed(scripted({', '.join(steps)}), {tools}).compile()")


def manager(*tracker: str, calls: str = 'call("tracker", request="parcel 7")') -> Agent:
    return Agent(
        f"""
inner = loop(scripted({", ".join(tracker)}), [track, hang]).compile()
agent = loop(scripted({calls}, "It is in Lima."), [running(inner, "tracker")]).compile()
"""
    )


def handoff(*refunds: str) -> Agent:
    return Agent(
        f"""
support = loop(scripted(call("transfer_to_refunds")), [transfer_to_refunds]).compile()
refunds = loop(scripted("unused", {", ".join(refunds)}), [pay]).compile()
graph = StateGraph(MessagesState).add_node("support", support, destinations=("refunds",)).add_node("refunds", refunds)
agent = graph.add_edge(START, "support").compile()
""",
        names={"transfer_to_refunds": "handoff"},
    )


TRACK, TRACK_8, LOST = (f'call("track", parcel={parcel})' for parcel in (7, 8, 9))
PAY, PAY_6 = (f'call("pay", amount={amount})' for amount in (5, 6))
DONE = '"Done: {result}"'
TRACKED = agent(TRACK, '"It is in {result}."', tools="track")
TYPED = """
def typed(state):
    return {"structured_response": scripted(call("City", **CITY)).with_structured_output(City).invoke("...")}
"""
DELIVERED = """
def typed(state):
    call = state["messages"][-1].tool_calls[0]
    done = ToolMessage("Returning structured response", tool_call_id=call["id"])
    return {"structured_response": City(**call["args"]), "messages": [done]}

agent = line(Typed, model=asks(scripted(call("deliver", **CITY))), typed=typed).compile()
"""
STOPPED = Agent(
    """
nodes = {"draft": asks(scripted("DRAFT")), "send": asks(scripted("unused", "Sent."))}
agent = line(MessagesState, **nodes).compile(interrupt_before=["send"])
"""
)
ASKING = Agent(
    """
def ask(state):
    return {"messages": [("user", f"City: {interrupt('Which city?')}")]}

answering = scripted(lambda seen: "It is Lima." if "City: Lima" in seen else "No city.")
agent = line(MessagesState, ask=ask, model=asks(answering)).compile(InMemorySaver())
"""
)
SHIPPED = Agent(f'agent = reviewed(scripted(call("ship", parcel=7), {DONE}), ship, allowed=["respond"]).compile()')
LIFESPAN = f"""
@asynccontextmanager
async def opened():
    log("opened")
    yield {{7: "Lima"}}
    log("closed")


def find(parcel: int, config: RunnableConfig) -> str:
    \"\"\"Return where a parcel is.\"\"\"
    return config["configurable"]["lifespan"][parcel]


agent = loop(scripted({TRACK}, "It is in {{result}}."), [tool("track")(find)]).compile()
"""
NO_MCP = Lacks("LangGraph connects to no MCP server: langchain-mcp-adapters makes tools like any other of them")
NO_GUARDRAIL = Lacks("LangGraph has no guardrails: a node raises what it likes")

AGENTS: dict[str, Agent | Lacks] = {
    "last_answer": agent('"Lima."'),
    "tool_call": TRACKED,
    "direct_return": Agent(
        """
nodes = {"model": asks(scripted(call("quote", city="Lima"))), "tools": ToolNode([tool(quote, return_direct=True)])}
agent = line(MessagesState, **nodes).compile()
"""
    ),
    "structured_output": Agent(f"{TYPED}\nagent = line(Typed, typed=typed).compile()"),
    "structured_output_after_a_tool": Agent(
        f"""
{TYPED}
agent = line(Typed, model=asks(scripted({TRACK})), tools=ToolNode([tool(track)]), typed=typed).compile()
"""
    ),
    "output_tool": Agent(DELIVERED),
    "output_tool_refused": Lacks("LangGraph checks no typed values: a graph that does asks its model in its own way"),
    "no_answer": Agent(
        f"""agent = loop(scripted({TRACK}, "unused"), [track]).compile() | RunnableLambda(lambda state: None)"""
    ),
    "no_usage": Agent('agent = loop(scripted("Lima.", is_counted=False), []).compile()'),
    "stream": Agent(
        """
def model(state):
    pieces = list(Streaming(steps=("Li", "ma.")).stream(state["messages"]))
    return {"messages": [sum(pieces[1:], pieces[0])]}

agent = line(MessagesState, model=model).compile()
"""
    ),
    "middleware": Agent(
        """
def before_model(state):
    return Command(update={"messages": [AIMessage("From the cache.")]}, goto=END)

graph = loop(scripted("Never."), [])
graph.add_node(before_model, destinations=("model", END)).add_edge(START, "before_model")
graph.edges.discard((START, "model"))
agent = graph.compile()
"""
    ),
    "handoff": handoff(PAY, '"Refunded: {result}"'),
    "conversation_after_handoff": handoff('"Refunded."'),
    "nested_agent": Agent(
        f"""
inner = loop(scripted({TRACK}, "Lima"), [track]).compile()
with suppress_langchain_beta_warning():
    tracker = inner.as_tool(name="tracker", description="Ask the agent.", arg_types={{"messages": list}})
agent = loop(scripted(call("tracker", messages=["parcel 7"]), "It is in Lima."), [tracker]).compile()
"""
    ),
    "nested_run": manager(TRACK, '"Lima"'),
    "nested_agents_at_once": manager(
        TRACK, '"Lima"', calls='[call("tracker", request="parcel 7"), call("tracker", request="parcel 7")]'
    ),
    "nested_agent_fails": manager(LOST),
    "parallel_tools": agent(f"[{TRACK}, {TRACK_8}]", '"Lima and Quito."', tools="track"),
    "failing_tool": agent(LOST, '"I do not know."', tools="track", more="handled=True"),
    "raising_tool": agent(LOST, tools="track"),
    "parallel_tools_one_fails": agent(f"[{TRACK}, {LOST}]", '"One is in Lima."', tools="track", more="handled=True"),
    "retried_tool": agent(LOST, TRACK, '"It is in Lima."', tools="track", more="handled=True"),
    "wrong_arguments": agent(
        'call("track", parcel="seven")', TRACK, '"It is in Lima."', tools="track", more="handled=True"
    ),
    "mcp_server": NO_MCP,
    "mcp_failing_tool": NO_MCP,
    "approval": reviewed(PAY, DONE),
    "approval_given": reviewed(PAY, DONE),
    "approval_denied": reviewed(PAY, '"Not paid."'),
    "approval_edited": reviewed(PAY, DONE),
    "approvals_at_once": reviewed(f"[{PAY}, {PAY_6}]", DONE),
    "approvals_one_after_the_other": reviewed(PAY, PAY_6, DONE),
    "approval_in_a_nested_agent": Agent(
        f"""
inner = reviewed(scripted({PAY}, "{{result}}"), pay).compile()
agent = loop(scripted(call("payer", request="Pay 5"), {DONE}), [running(inner, "payer")]).compile()
"""
    ),
    "conversation_after_approval": reviewed(PAY, DONE),
    "static_interrupt": STOPPED,
    "static_interrupt_passed": STOPPED,
    "question_to_a_person": ASKING,
    "question_answered": ASKING,
    "long_running_tool": SHIPPED,
    "long_running_tool_answered": SHIPPED,
    "limit": agent(TRACK, tools="track", recursion_limit=6),
    "input_guardrail": NO_GUARDRAIL,
    "output_guardrail": NO_GUARDRAIL,
    "refusal": agent('AIMessage("", additional_kwargs={"refusal": "no"})'),
    **{f"model_{code}": agent(f"refused({code})") for code in (400, 401, 404, 422, 429, 503)},
    "model_fails_later": agent(TRACK, "refused(503)", tools="track"),
    "timeout": agent(TRACK, 'call("hang")', tools="track, hang"),
    "timeout_in_a_nested_agent": manager(TRACK, 'call("hang")'),
    "conversation": TRACKED,
    "saver": agent(TRACK, '"It is in {result}."', tools="track", compiled="InMemorySaver()"),
    "store": Agent(
        """
def remember(state, *, store):
    facts = store.search(("user",), limit=100)
    store.put(("user",), str(len(facts)), {"said": state["messages"][-1].text})
    return {"messages": [AIMessage(f"I know {len(facts)} facts.")]}

agent = line(MessagesState, remember=remember).compile(store=InMemoryStore())
"""
    ),
    "turn_that_cannot_be_held": Agent(
        """
class State(TypedDict):
    question: str
    answer: str

agent = line(State, node=lambda state: {"answer": "One."}).compile()
""",
        {"output": "answer"},
    ),
    "lifespan": Agent(LIFESPAN, {"lifespan": "agent.py:opened"}),
    "lifespan_per_case": Agent(LIFESPAN, {"lifespan": "agent.py:opened", "lifespan_per": "case"}),
}
