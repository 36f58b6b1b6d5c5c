"""Traces of real instrumentations: the SDK of OpenTelemetry and its exporter, pydantic-ai and Google ADK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.docs.guides import blocks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

ASK = """\
import asyncio, json, sys
from pathlib import Path
from assay.agent_host.user_code import open_caller
from assay.model.answers.agent_response import AgentRequest, response_to_json
from assay.model.run import AgentSpec

async def main(adapter, target, options, texts):
    caller = open_caller(AgentSpec(adapter, target, options=options), Path.cwd())
    asked = [AgentRequest(request_id=text, run_id="r", case_id=text, input=text, timeout_s=120) for text in texts]
    found = await asyncio.gather(*map(caller.call, asked))
    await caller.aclose()
    print(json.dumps([response_to_json(one) for one in found]))

asyncio.run(main(*json.loads(sys.argv[1])))
"""
PROVIDER = """\
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""
PROGRAM = """\
import json, sys
from agent import answer
from types import SimpleNamespace
from opentelemetry import context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

for line in sys.stdin:
    question = json.loads(line)
    token = context.attach(TraceContextTextMapPropagator().extract(question))
    text = answer(question["input"])
    context.detach(token)
    print(json.dumps({"request_id": question["request_id"], "text": text}), flush=True)
"""
PYDANTIC_AI = """\
import json
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

Agent.instrument_all()
agent = Agent(TestModel())

@agent.tool_plain
def lookup(city: str) -> str:
    return "42"

async def answer(question):
    result = await agent.run(question)
    usage = result.usage
    return json.dumps([result.output, {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}])
"""
ADK = """\
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=11, candidates_token_count=3)
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            part = types.Part(text="sunny")
        else:
            part = types.Part(function_call=types.FunctionCall(id="c1", name="weather", args={"city": "Oslo"}))
        parts = [part] if part.text else [part, types.Part(
            function_call=types.FunctionCall(id="c2", name="weather", args={"city": "Bergen"}))]
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=usage)

def weather(city: str) -> dict:
    return {"sky": "clear"}

runner = InMemoryRunner(LlmAgent(name="teller", model=Scripted(model="scripted"), tools=[weather]), app_name="app")

async def answer(question):
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=question)])
    text = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        if event.is_final_response():
            text = event.content.parts[0].text
    return text
"""


def ask(
    folder: Path, adapter: str, target: str, *texts: str, variables: dict[str, str] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Return the answers of an agent of a folder, asked in a process of its own."""
    given = json.dumps([adapter, target, {"traces": {"wait": "1m"}, **options}, texts])
    environ = {**os.environ, **(variables or {})}
    done = subprocess.run(
        [sys.executable, "-c", ASK, given], cwd=folder, env=environ, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert not any("problems" in one["metadata"]["assay_trace"] for one in found), found
    return found


@pytest.mark.parametrize("adapter", ["python", "command"])
def test_the_agent_of_the_guide(tmp_path: Path, adapter: str) -> None:
    """docs/spec.md: an agent that the SDK instruments by hand, in this process and as a program."""
    (code,) = (block.text for block in blocks("docs/spec.md", "python") if "opentelemetry" in block.text)
    (tmp_path / "agent.py").write_text(code, encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    target = "agent:answer" if adapter == "python" else f"{sys.executable} program.py"
    for one, text in zip(ask(tmp_path, adapter, target, "Oslo", "Bergen"), ("Oslo", "Bergen"), strict=True):
        assert one["text"] == f"It is cold in {text}."
        (call,) = one["tool_calls"]
        assert call["name"] == "weather"
        assert json.loads(call["arguments_json"]) == {"city": text}
        assert json.loads(call["result_json"]) == "cold"
        assert [source["id"] for source in one["sources"]] == ["climate", "map"]
        assert one["usage"] == {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}


def test_pydantic_ai(tmp_path: Path) -> None:
    """Its own instrumentation: the agent's span repeats the sum of its calls, which counts once."""
    (tmp_path / "agent.py").write_text(PROVIDER + PYDANTIC_AI)
    found = ask(tmp_path, "python", "agent:answer", "a", "bb")
    for one in found:
        text, usage = json.loads(one["text"])
        assert text == '{"lookup":"42"}'
        assert {name: one["usage"][name] for name in ("input_tokens", "output_tokens")} == usage
        (call,) = one["tool_calls"]
        assert (call["name"], json.loads(call["arguments_json"]), call["result_json"]) == (
            "lookup",
            {"city": "a"},
            "42",
        )


def test_adk(tmp_path: Path) -> None:
    """Its own instrumentation: two calls at once are two, however it sums them up; arguments where it writes them."""
    (tmp_path / "agent.py").write_text(PROVIDER + ADK)
    shown = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}
    for variables in ({}, shown):
        for one in ask(tmp_path, "python", "agent:answer", "a", "b", variables=variables):
            assert one["text"] == "sunny"
            assert one["usage"] == {"input_tokens": 22, "output_tokens": 6, "total_tokens": 28}
            assert sorted((call["name"], call["id"]) for call in one["tool_calls"]) == [
                ("weather", "c1"),
                ("weather", "c2"),
            ]
            cities = {
                json.loads(call["arguments_json"])["city"] for call in one["tool_calls"] if "arguments_json" in call
            }
            assert cities == ({"Oslo", "Bergen"} if variables else set())
