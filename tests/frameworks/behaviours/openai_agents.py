"""The behaviours' agents in the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

from tests.frameworks.behaviours.behaviour import Agent, Lacks
from tests.frameworks.behaviours.world import WORLD

PRELUDE = (
    WORLD
    + '''
import json

import httpx
import openai
from agents import Agent, Runner, function_tool, handoff
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


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


def agent(*steps: str, more: str = "", **options: Any) -> Agent:
    return Agent(f'agent = Agent("a", model=scripted({", ".join(steps)}), {more})', options)


AGENTS: dict[str, Agent | Lacks] = {
    "last_answer": agent('"Lima."'),
    "conversation": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[function_tool(track)]"),
    "tool_call": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[function_tool(track)]"),
    "static_interrupt": Lacks("only graphs of LangGraph have breakpoints"),
    "static_interrupt_passed": Lacks("only graphs of LangGraph have breakpoints"),
}
