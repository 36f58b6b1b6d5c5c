"""The python adapter's options in a spec: `map` has the rules of an http agent's `response`."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import SpecError
from assay.model.run import AgentSpec
from assay.model.trace_settings import TraceSettings, without_traces
from assay.specs.agents import check_hosted
from assay.specs.loader import spec_from_mapping


def agent_of(value: object) -> Any:
    """Return the settings of a Python agent with a map."""
    data = {"metrics": ["latency"], "agent": {"adapter": "python", "target": "agent:answer", "map": value}}
    return spec_from_mapping(data, needs_dataset=False).settings.agent


def test_a_map_names_answer_fields_and_expressions() -> None:
    """Every field of an answer may be found by an expression."""
    expressions = {"text": "reply.body", "sources": "docs[].{title: name, uri: url}", "usage": "{input_tokens: n}"}
    assert agent_of(expressions).options == {"map": expressions}


@pytest.mark.parametrize(
    ("value", "field", "message"),
    [
        ("text", "agent.map", "must be a mapping of names to strings"),
        ({"text": 1 < 2}, "agent.map.text", "must be a string"),
        ({"text": "a["}, "agent.map.text", "is not valid JMESPath"),
        ({"txt": "a"}, "agent.map.txt", "unknown answer field 'txt'; did you mean 'text'?"),
        ({"usage": "u"}, "agent.map", "must say where the answer's text is: add text: EXPRESSION"),
        ({}, "agent.map", "must say where the answer's text is"),
        ({"text": "|".join(["[@, @]"] * 30)}, "agent.map.text", "may produce too large a result"),
    ],
)
def test_a_wrong_map_is_refused_with_its_field(value: object, field: str, message: str) -> None:
    """What is wrong is found before anything is started, and says where."""
    with pytest.raises(SpecError) as refusal:
        agent_of(value)
    (problem,) = refusal.value.problems
    assert problem.field == field
    assert message in problem.message


PYTHON = {"adapter": "python", "target": "agent:answer"}


def agent(traces: object, **more: Any) -> AgentSpec:
    """Return the settings of an agent with traces."""
    data = {"dataset": "d", "metrics": ["exact_match"], "agent": {**PYTHON, **more, "traces": traces}}
    return spec_from_mapping(data).settings.agent


def problems(traces: object, **more: Any) -> list[str]:
    """Return what is wrong with traces in a spec."""
    with pytest.raises(SpecError) as caught:
        agent(traces, **more)
    return [f"{problem.field}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("traces", "expected"),
    [
        ("otlp", TraceSettings()),
        ({}, TraceSettings()),
        ({"wait": "500ms"}, TraceSettings(wait_s=0.5)),
        ({"file": "spans.jsonl", "wait": "1m"}, TraceSettings("spans.jsonl", 60.0)),
    ],
)
@pytest.mark.parametrize(
    "more",
    [{}, {"adapter": "command", "target": "x", "mode": "per_question"}, {"adapter": "adk", "target": "agent:root"}],
)
def test_agents_on_the_users_side_may_have_traces(
    traces: object, expected: TraceSettings, more: dict[str, Any]
) -> None:
    """Every kind of them, beside options of its own."""
    found, option = without_traces(agent(traces, **more))
    assert TraceSettings.from_option(option, []) == expected
    assert "traces" not in found.options


@pytest.mark.parametrize(
    "more",
    [
        {"adapter": "http", "target": "http://a.test/"},
        {"adapter": "grpc", "target": "a.test:1"},
        {"adapter": "replay", "target": ""},
        {"adapter": "openai", "target": "m", "prompt": "{{input}}"},
    ],
)
def test_other_agents_may_have_none_and_the_reason_is_said(more: dict[str, Any]) -> None:
    """Other agents run elsewhere and would not send spans to the user's machine."""
    (problem,) = problems("otlp", **more)
    assert problem == (
        "agent.traces: traces are read of agents that run on the user's side (python, command and frameworks), and the "
        f"{more['adapter']} adapter reaches one elsewhere or none: remove it"
    )


def test_every_mistake_is_named() -> None:
    """All mistakes are reported at once, by the orchestrator as well."""
    assert problems({"file": "", "wait": "2h", "port": 1}) == [
        "agent.traces.port: unknown field of agent.traces 'port'; known: file, wait",
        "agent.traces.file: must be the name of a file, not ''",
        "agent.traces.wait: must be a duration from 0s to 1m, e.g. 2s, not '2h'",
    ]
    (problem,) = problems("zipkin")
    assert problem == "agent.traces: must be otlp, or a mapping such as {file: spans.jsonl, wait: 2s}, not 'zipkin'"
    assert problems({"file": 7}) == ["agent.traces.file: must be a string, not 7"]
    (found,) = check_hosted(AgentSpec("python", "m:f", options={"traces": 3}))
    assert found.field == "agent.traces"
