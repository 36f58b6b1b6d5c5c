"""Agents of Google ADK with a scripted model, as the file of a user: they answer by the words of the question."""

from __future__ import annotations

ADK_AGENTS = '''\
import asyncio, datetime
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.memory import InMemoryMemoryService, VertexAiMemoryBankService
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import ToolContext, load_memory
from google.adk.workflow import Workflow
from google.genai import types

flaky = set()


def usage(**more):
    counts = dict(prompt_token_count=10, candidates_token_count=3, total_token_count=13) | more
    return types.GenerateContentResponseUsageMetadata(**counts)


def says(*texts, **more):
    parts = [types.Part(text=text) if isinstance(text, str) else text for text in texts]
    more = {"usage_metadata": usage(), "model_version": "scripted-1"} | more
    return LlmResponse(content=types.Content(role="model", parts=parts), **more)


def calls(*names_and_arguments):
    found = (types.FunctionCall(name=name, args=args) for name, args in names_and_arguments)
    return says(*(types.Part(function_call=call) for call in found))


class Scripted(BaseLlm):
    """Answers by the words of the question; "seen" repeats all that it was sent."""

    model: str = "scripted"

    async def generate_content_async(self, request, stream=False):
        texts = [(c.role, p.text) for c in request.contents for p in c.parts if p.text]
        question = texts[-1][1]
        results = [p.function_response for p in request.contents[-1].parts if p.function_response]
        for response in self.answers(question, results, texts, request):
            yield response

    def answers(self, question, results, texts, request):
        match question.split()[0] if question else "":
            case "loop": return [calls(("search", {"query": "x"}))]
            case _ if results: return [says(types.Part(text="hm", thought=True), f"found {results[-1].response}")]
            case "search": return [calls(("search", {"query": question}), ("odd", {}), ("surrogate", {}))]
            case "fail": return [calls(("odd", {}), (question, {}))]
            case "wrong": return [calls(("wrong", {}))]
            case "count": return [calls(("count", {}))]
            case "remember": return [calls(("load_memory", {"query": "blue"}))]
            case "seen": return [says(repr(texts))]
            case "instruction": return [says(str(request.config.system_instruction))]
            case "boom": raise RuntimeError("out of luck")
            case "flaky" if question not in flaky: flaky.add(question); raise RuntimeError("try again")
            case "hang" | "cancel" | "exit": return [calls((question, {}))]
            case "event":
                return [LlmResponse(error_code=question.split()[1], error_message="not now", usage_metadata=usage())]
            case "cut": return [says("The begin", error_code=types.FinishReason.MAX_TOKENS, finish_reason="MAX_TOKENS")]
            case "filtered": return [says("The begin", finish_reason="SAFETY")]
            case "thinks": return [says("deep", usage_metadata=usage(thoughts_token_count=5, total_token_count=22,
                                   cached_content_token_count=4, tool_use_prompt_token_count=4), finish_reason="STOP")]
            case "inclusive": return [says("deep", usage_metadata=usage(thoughts_token_count=2))]
            case "stream": return [says("a", partial=True), says("ab")]
            case "silent": return [says("", usage_metadata=None)]
            case "grounded":
                chunks = [types.GroundingChunk(web=types.GroundingChunkWeb(title="Page", uri="https://p.example")),
                          types.GroundingChunk(retrieved_context=types.GroundingChunkRetrievedContext(
                              title="Doc", uri="gs://d", text="passage", document_name="d1"))]
                cited = types.CitationMetadata(citations=[types.Citation(title="Book", uri="urn:b")])
                grounding = types.GroundingMetadata(grounding_chunks=chunks)
                return [says("yes", grounding_metadata=grounding, citation_metadata=cited)]
        return [says(f"echo {question}")]


def search(query: str) -> dict:
    """Search."""
    return {"hits": [query]}

def odd() -> dict:
    """Return what is no JSON."""
    return {"when": datetime.date(2026, 1, 2), "bytes": b"x", "number": float("nan"), "object": object}

def surrogate() -> dict:
    """Return what UTF-8 cannot hold."""
    return {"cut": "\\ud800"}

def wrong() -> dict:
    """Report an error."""
    return {"error": "no index"}

async def fail() -> dict:
    """Raise."""
    await asyncio.sleep(0)
    raise LookupError("no such table")

async def hang() -> dict:
    """Wait for ever."""
    await asyncio.Event().wait()

async def cancel() -> dict:
    """Cancel this task."""
    asyncio.current_task().cancel()
    await asyncio.sleep(1)

def exit() -> dict:
    """End the process."""
    raise SystemExit(0)

def count(tool_context: ToolContext) -> dict:
    """Count in every scope of the state."""
    for name in ("n", "user:n", "app:n"):
        tool_context.state[name] = tool_context.state.get(name, 0) + 1
    return {name: tool_context.state[name] for name in ("n", "user:n", "app:n")}


class Pair(BaseAgent):
    """Asks its agents one after the other."""

    async def _run_async_impl(self, ctx):
        for each in self.sub_agents:
            async for event in each.run_async(ctx):
                yield event


tools = [search, odd, surrogate, wrong, fail, hang, cancel, exit, count, load_memory]
agent = LlmAgent(name="helper", model=Scripted(), tools=tools)
templated = LlmAgent(name="templated", model=Scripted(), instruction="You live in {city}.")
app = App(name="app", root_agent=agent)
runner = InMemoryRunner(agent, app_name="mine")
pair = Pair(name="pair", sub_agents=[LlmAgent(name=name, model=Scripted()) for name in ("first", "second")])
flow = Workflow(name="flow", edges=[("START", LlmAgent(name="only", model=Scripted()))])
sessions = InMemorySessionService()
memory = InMemoryMemoryService()

def make():
    return agent

def make_runner():
    return InMemoryRunner(app=app)

async def make_later():
    return agent

def make_of(name):
    return agent

def make_badly():
    raise ValueError("no configuration")

def make_nothing():
    return None

def make_other():
    import no_such_package

def make_bank():
    return VertexAiMemoryBankService(project="p", location="l", agent_engine_id="1")
'''
