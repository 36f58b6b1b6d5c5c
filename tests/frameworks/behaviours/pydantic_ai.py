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


def agent(*steps: str, more: str = "", **options: Any) -> Agent:
    return Agent(f"agent = Agent(scripted({', '.join(steps)}), {more})", options)


AGENTS: dict[str, Agent | Lacks] = {
    "last_answer": agent('"Lima."'),
    "tool_call": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[track]"),
    "timeout": agent('call("track", parcel=7)', 'call("hang")', more="tools=[track, hang]"),
    "model_503": agent('ModelHTTPError(503, "scripted")'),
    "conversation": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[track]"),
    "static_interrupt": Lacks("only graphs of LangGraph have breakpoints"),
    "static_interrupt_passed": Lacks("only graphs of LangGraph have breakpoints"),
}
