"""One agent as a function, as an agent of Google ADK and as a recording: the same cases have the same scores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.same_scores import results_without_times

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

pytestmark = pytest.mark.frameworks

CASE_COUNT = 200
AGENTS = '''\
"""Two agents that answer alike: a function, and an agent of Google ADK."""

from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types

WORDS = ["Paris", "الرياض عاصمة", "北京", "naïve café", "=1+1", "<b>", "\\U0001f600", "0.1"]


def known(question):
    number = int(question.split()[-1])
    if number % 40 == 7:
        raise RuntimeError("out of luck")
    text = " ".join(WORDS[(number + step) % len(WORDS)] for step in range(number % 5 + 1))
    return text, {"n": number, "deep": [None, 0.5, {"k": "ü"}]}, (number * 3, number + 1)


def function(question):
    text, arguments, (given, made) = known(question)
    call = {"id": "1", "name": "search", "arguments": arguments, "result": {"found": text}}
    return {"text": text, "tool_calls": [call], "usage": {"input_tokens": given, "output_tokens": made}}


class Agent(BaseAgent):
    async def _run_async_impl(self, context):
        text, arguments, (given, made) = known(context.user_content.parts[0].text)
        call = types.FunctionCall(id="1", name="search", args=arguments)
        response = types.FunctionResponse(id="1", name="search", response={"found": text})
        used = types.GenerateContentResponseUsageMetadata(prompt_token_count=given, candidates_token_count=made)
        for part in (types.Part(function_call=call), types.Part(function_response=response)):
            yield Event(author=self.name, content=types.Content(role="model", parts=[part]))
        content = types.Content(role="model", parts=[types.Part(text=text)])
        yield Event(author=self.name, content=content, usage_metadata=used)


agent = Agent(name="agent")
'''
METRICS = ["exact_match", "rouge", "tool_calls", "tokens", {"blend": {"formula": "0.5 * exact_match + 0.5 * rouge"}}]


def test_an_agent_of_adk_scores_as_a_function_does(shared_project: Cli) -> None:
    """The same 200 cases through a function, ADK and a recording of ADK's answers: equal rows and aggregates."""
    cli = shared_project
    cli.write("both.py", AGENTS)
    cases = [
        {"id": f"c{n}", "question": f"Frage nr {n}", "references": [["Paris", "الرياض عاصمة"][n % 2], "0.1"],
         "expected_tools": [{"name": "search", "arguments": {"n": n - n % 2}, "match": "subset"}], "weight": n % 4 + 1}
        for n in range(CASE_COUNT)
    ]  # fmt: skip
    cli.write("qa.jsonl", "\n".join(map(json.dumps, cases)))
    spec = {"name": "same", "dataset": "qa.jsonl", "metrics": METRICS, "max_agent_errors": "100%"}
    targets = {"python": "both:function", "adk": "both:agent", "replay": ""}
    for adapter, target in targets.items():
        agent = {"adapter": adapter, "retries": 0, **({"target": target} if target else {})}
        cli.write("assay.yaml", {**spec, "agent": agent})
        recording = ["--record", "recorded.jsonl"] if adapter == "adk" else []
        cli.run("run", "--output-dir", adapter, *recording, status=1)
        if recording:
            spec["dataset"] = "recorded.jsonl"
    rows, aggregates = results_without_times(cli.folder / "python")
    assert len(rows) == CASE_COUNT
    assert {row["status"] for row in rows} == {"success", "error"}
    for adapter in targets:
        assert results_without_times(cli.folder / adapter) == (rows, aggregates), adapter
