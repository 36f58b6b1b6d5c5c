"""One agent as a function, as an agent of Google ADK and as a recording: the same cases have the same scores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.reports.same_scores import results_without_times

from assay.model.answers.agent_response import MalformedAnswerError
from assay_orchestrator.agents.adk_events import response_from_events, stops_of, whole_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.conftest import Cli

    from assay.model.answers.agent_response import AgentResponse

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


def _event(kind: str, call_id: str, text: str) -> Any:
    """Return an event of a kind; the packages are not in every environment."""
    from google.adk.events import Event, EventActions
    from google.genai import types

    def call(name: str) -> Any:
        return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args={"text": text}))

    def returned(name: str, **response: Any) -> Any:
        return types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response=response))

    original = {"id": call_id, "name": "tool", "args": {"text": text}}
    asked = types.FunctionCall(
        id=f"ask-{call_id}",
        name="adk_request_confirmation",
        args={"originalFunctionCall": original, "toolConfirmation": {"hint": text}},
    )
    parts: dict[str, tuple[Any, dict[str, Any]]] = {
        "text": (types.Part(text=text), {}),
        "thought": (types.Part(text=text, thought=True), {}),
        "partial": (types.Part(text=text), {"partial": True}),
        "call": (call("tool"), {}),
        "result": (returned("tool", result=text), {}),
        "failure": (returned("tool", error="no"), {}),
        "mcp": (returned("tool", content=[], isError=True), {}),
        "direct": (returned("tool", result=text), {"actions": EventActions(skip_summarization=True)}),
        "nothing direct": (returned("tool", result=None), {"actions": EventActions(skip_summarization=True)}),
        "long": (call("slow"), {"long_running_tool_ids": {call_id}}),
        "asks": (types.Part(function_call=asked), {"long_running_tool_ids": {f"ask-{call_id}"}}),
        "error": (types.Part(text=text), {"error_code": "503", "error_message": "later"}),
        "filtered": (types.Part(text=text), {"finish_reason": types.FinishReason.SAFETY}),
        "output": (None, {"output": {"answer": text}}),
        "text and output": (types.Part(text=text), {"output": {"n": 1}}),
        "state": (None, {}),
    }
    part, more = parts[kind]
    used = types.GenerateContentResponseUsageMetadata(prompt_token_count=len(text), candidates_token_count=3)
    content = None if part is None else types.Content(role="model", parts=[part])
    return Event(author="a", content=content, usage_metadata=used if kind in ("text", "call") else None, **more)


KINDS = ("text", "thought", "partial", "call", "result", "failure", "mcp", "direct", "nothing direct", "long", "asks",
         "error", "filtered", "output", "text and output", "state")  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("123"), st.sampled_from(["a", "b c", ""])), max_size=8)
)
def test_events_mean_the_same_in_process_and_behind_a_server(events: list[tuple[str, str, str]]) -> None:
    """Whatever they are: the answer, its calls, tokens and failures, and what waits."""
    from assay.agent_host.frameworks.adk_events import EventReader
    from assay.agent_host.frameworks.adk_trace import Trace

    trace = Trace()
    reader = EventReader(trace)
    made = [_event(*event) for event in events]
    for event in made:
        trace.saw_event("session", event)
        reader.add(event)
    sent = whole_events([json.loads(event.model_dump_json(by_alias=True, exclude_none=True)) for event in made])
    assert [stop.interrupt for stop in reader.stops] == [stop.interrupt for stop in stops_of(sent)]

    def seen(answer: Callable[[], AgentResponse]) -> Any:
        try:
            found = answer()
        except MalformedAnswerError:
            return "no answer"
        calls = [
            (one.name, one.id, json.loads(one.arguments_json), one.result_json and json.loads(one.result_json))
            for one in found.tool_calls or ()
        ]
        failed = [one.is_error for one in found.tool_calls or ()]
        return found.status, found.text, found.output, calls, failed, found.usage, found.error and found.error.type

    assert seen(reader.answer) == seen(lambda: response_from_events(sent, {}))
