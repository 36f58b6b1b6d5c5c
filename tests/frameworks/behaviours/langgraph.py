"""The behaviours' agents in LangGraph and LangChain."""

from __future__ import annotations

from typing import Any

from tests.frameworks.behaviours.behaviour import Agent, Lacks
from tests.frameworks.behaviours.world import WORLD

PRELUDE = (
    WORLD
    + '''
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt


def call(name, **arguments):
    return {"name": name, "args": arguments}


class Scripted(BaseChatModel):
    """Replies with its steps, one a reply: texts, calls, lists of calls, exceptions. Counts later questions."""

    steps: tuple

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        questions = sum(message.type == "human" for message in messages)
        step = self.steps[min(sum(message.type == "ai" for message in messages), len(self.steps) - 1)]
        if questions > 1:
            step = "{questions} questions"
        step = self.steps[0](str(messages)) if callable(self.steps[0]) else step
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str):
            reply = AIMessage(step.format(result=messages[-1].text, questions=questions))
        else:
            calls = step if isinstance(step, list) else [step]
            names = [one | {"id": f"c{len(messages)}-{index}"} for index, one in enumerate(calls)]
            reply = AIMessage("", tool_calls=names)
        reply.usage_metadata = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return ChatResult(generations=[ChatGeneration(message=reply)])


def scripted(*steps):
    return Scripted(steps=steps)


def loop(model, tools, *, handled=False):
    """Return a graph, not compiled, of a model and its tools in turn; a tool that raises ends it unless handled."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    tools = [one if isinstance(one, BaseTool) else tool(one) for one in tools]
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=handled))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph
'''
)


def agent(*steps: str, tools: str = "", more: str = "", compiled: str = "", **options: Any) -> Agent:
    return Agent(f"agent = loop(scripted({', '.join(steps)}), [{tools}], {more}).compile({compiled})", options)


AGENTS: dict[str, Agent | Lacks] = {
    "last_answer": agent('"Lima."'),
    "conversation": agent('call("track", parcel=7)', '"It is in {result}."', tools="track"),
    "tool_call": agent('call("track", parcel=7)', '"It is in {result}."', tools="track"),
}
