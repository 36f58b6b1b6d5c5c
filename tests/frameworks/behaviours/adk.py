"""The behaviours' agents in Google ADK."""

from __future__ import annotations

from typing import Any

from tests.frameworks.behaviours.behaviour import Agent, Lacks
from tests.frameworks.behaviours.world import WORLD

PRELUDE = (
    WORLD
    + '''
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from google.genai import errors, types


def call(name, **arguments):
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments))


class Scripted(BaseLlm):
    """Replies with its steps, one for each reply since the last question: texts, calls, lists of calls, exceptions."""

    model: str = "scripted"
    steps: tuple = ()

    async def generate_content_async(self, request, stream=False):
        asked = [content.role == "user" and any(part.text for part in content.parts) for content in request.contents]
        last = max((index for index, is_question in enumerate(asked) if is_question), default=0)
        replies = sum(content.role == "model" for content in request.contents[last:])
        step = self.steps[min(replies, len(self.steps) - 1)]
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str):
            results = [part.function_response for part in request.contents[-1].parts if part.function_response]
            result = results[-1].response.get("result", results[-1].response) if results else None
            parts = [types.Part(text=step.format(result=result, questions=sum(asked)))]
        else:
            parts = step if isinstance(step, list) else [step]
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=10, candidates_token_count=5,
                                                           total_token_count=15)
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=usage)


def scripted(*steps):
    return Scripted(steps=steps)
'''
)


def agent(*steps: str, more: str = "", **options: Any) -> Agent:
    return Agent(f'agent = LlmAgent(name="a", model=scripted({", ".join(steps)}), {more})', options)


AGENTS: dict[str, Agent | Lacks] = {
    "last_answer": agent('"Lima."'),
    "tool_call": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[track]"),
    "static_interrupt": Lacks("only graphs of LangGraph have breakpoints"),
    "static_interrupt_passed": Lacks("only graphs of LangGraph have breakpoints"),
}
