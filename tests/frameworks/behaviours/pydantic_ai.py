"""The behaviours' agents in pydantic-ai."""

from __future__ import annotations

from typing import Any

from tests.frameworks.behaviours.behaviour import Agent, Lacks
from tests.frameworks.behaviours.world import WORLD

PRELUDE = (
    WORLD
    + '''
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RequestUsage


class City(BaseModel):
    answer: str
    people: int


def call(name, **arguments):
    return (name, arguments)


def scripted(*steps):
    """Return a model that replies with its steps, one for each reply since the last question: texts, calls, lists of
    calls, exceptions."""

    def reply(messages, info):
        asked = [any(part.part_kind == "user-prompt" for part in message.parts) for message in messages]
        last = max(index for index, is_question in enumerate(asked) if is_question)
        step = steps[min(sum(message.kind == "response" for message in messages[last:]), len(steps) - 1)]
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str):
            result = getattr(messages[-1].parts[-1], "content", None)
            parts = [TextPart(step.format(result=result, questions=sum(asked)))]
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


def agent(*steps: str, more: str = "", **options: Any) -> Agent:
    return Agent(f"agent = Agent(scripted({', '.join(steps)}), {more})", options)


AGENTS: dict[str, Agent | Lacks] = {
    "last_answer": agent('"Lima."'),
    "tool_call": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[track]"),
    "static_interrupt": Lacks("only graphs of LangGraph have breakpoints"),
    "static_interrupt_passed": Lacks("only graphs of LangGraph have breakpoints"),
}
