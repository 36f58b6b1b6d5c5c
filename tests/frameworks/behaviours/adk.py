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
    """Replies with its steps, one a reply: texts, calls, lists of calls, exceptions. Counts later questions."""

    model: str = "scripted"
    steps: tuple = ()

    async def generate_content_async(self, request, stream=False):
        texts = [[part.text for part in content.parts if part.text] for content in request.contents]
        users = [text for content, text in zip(request.contents, texts) if content.role == "user"]
        questions = sum(bool(text) and text[0] != "For context:" for text in users)
        replies = sum(content.role == "model" for content in request.contents)
        step = self.steps[min(replies, len(self.steps) - 1)] if questions == 1 else "{questions} questions"
        step = self.steps[0](str(request.contents)) if callable(self.steps[0]) else step
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str):
            results = [part.function_response for part in request.contents[-1].parts if part.function_response]
            result = results[-1].response.get("result", results[-1].response) if results else None
            parts = [types.Part(text=step.format(result=result, questions=questions))]
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
    "conversation": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[track]"),
    "tool_call": agent('call("track", parcel=7)', '"It is in {result}."', more="tools=[track]"),
    "static_interrupt": Lacks("only graphs of LangGraph have breakpoints"),
    "static_interrupt_passed": Lacks("only graphs of LangGraph have breakpoints"),
}
