"""Evaluations of agents as teams have them, as users run them: each row says what the agent did, whatever it did."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.answers import calls
from tests.frameworks.behaviours.test_behaviours import FRAMEWORKS
from tests.frameworks.test_adk_api_server import serving as serving_adk
from tests.frameworks.test_otel import PROVIDER

import assay
from assay.model.answers.agent_response import Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from tests.e2e.conftest import Cli

    from assay.client.api.evaluation import Evaluation
    from assay.model.run import RowResult

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated"),  # of ADK's AgentTool itself
    pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL:UserWarning"),  # of what ADK's server uses itself
]

EXACT_CALLS = {"tool_calls": {"trajectory": "exact"}}
PAY = {"id": "a", "question": "Pay 5", "answer": "Done: paid 5", "expected_tools": ["pay"]}
MAIL = (
    {"id": "one", "question": "Mail Ann", "answer": "sent"},
    {"id": "two", "turns": [{"input": "Mail Ann", "references": ["DRAFT"]}, {"input": "ok", "references": ["sent"]}]},
)


@pytest.fixture
def evaluate(
    tmp_path: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[Evaluation]]:
    """Return what evaluates an agent through the orchestrator, as a user's script does."""
    monkeypatch.setenv("ASSAY_HOME", str(shared_home))
    monkeypatch.chdir(tmp_path)

    async def run(agent: Mapping[str, Any], cases: Sequence[dict[str, Any]], **spec: Any) -> Evaluation:
        defaults = {"metrics": ["exact_match"], "max_agent_errors": "100%"}
        given = {**defaults, **spec, "agent": {"target": "agent.py:agent", **agent}}
        return await assay.evaluate_async(given, dataset=list(cases), progress=False)

    return run


@dataclass(frozen=True)
class Team:
    """An agent, and what its evaluation says.

    Args:
        framework: The framework.
        source: The agent, below the framework's `PRELUDE`.
        cases: What it is asked.
        rows: The status of each row and the values of its metrics.
        agent: More keys of the agent.
        spec: More keys of the spec.
        usage: Of each row; None where it is not what the evaluation is about.
        calls: Of each row: the tool, whether it failed, and a part of its result; None as with `usage`.
        logged: How many lines its models and tools wrote.
    """

    framework: str
    source: str
    cases: tuple[dict[str, Any], ...]
    rows: tuple[tuple[str, dict[str, Any]], ...]
    agent: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    usage: Usage | None = None
    calls: tuple[tuple[str, bool, str], ...] | None = None
    logged: int | None = None


ADK_PAYER = """LlmAgent(name="payer", model=scripted(call("pay", amount=5), "Done: {result}"),
    tools=[FunctionTool(pay, require_confirmation=True)])"""
DRAFTS = """
graph = StateGraph(MessagesState)
graph.add_node("draft", lambda state: {"messages": [AIMessage("DRAFT")]})
graph.add_node("send", lambda state: {"messages": [AIMessage("sent")]})
graph.add_edge(START, "draft")
graph.add_edge("draft", "send")
agent = graph.compile(InMemorySaver(), interrupt_before=["send"])
"""
WAITED = ("interrupted", {"exact_match": 0.0})
FAILED = ("error", {"exact_match": 0.0})
RIGHT = ("success", {"exact_match": 1.0})

TEAMS = {
    "adk: the tokens of an agent in a tool are counted, so a gate on them fails": Team(
        "adk",
        """
inner = LlmAgent(name="inner", description="tracks", model=scripted(call("track", parcel=7), "Lima"), tools=[track])
agent = LlmAgent(name="manager", model=scripted(call("inner", request="parcel 7"), "It is in Lima."),
                 tools=[AgentTool(inner)])
""",
        ({"id": "a", "question": "Parcel 7?", "answer": "It is in Lima.", "expected_tools": ["inner", "track"]},),
        (("success", {"exact_match": 1.0, "tool_calls": 1.0, "tokens": 60.0}),),
        spec={"metrics": ["exact_match", EXACT_CALLS, "tokens"], "gates": ["tokens < 40"]},
        usage=Usage(40, 20, 60, requests=4),
    ),
    "adk: a call that waits for a confirmation": Team("adk", f"agent = {ADK_PAYER}", (PAY,), (WAITED,)),
    "adk: a call that is confirmed": Team(
        "adk",
        f"agent = {ADK_PAYER}",
        (PAY | {"approvals": [{"tool": "pay", "approve": True}]},),
        (("success", {"exact_match": 1.0, "tool_calls": 1.0}),),
        spec={"metrics": ["exact_match", EXACT_CALLS]},
    ),
    "adk: the result of a tool that skips the summary is the answer": Team(
        "adk",
        """
def offer(city: str, tool_context: ToolContext) -> dict:
    "Return a price."
    tool_context.actions.skip_summarization = True
    return {"result": quote(city)}

agent = LlmAgent(name="quoter", model=scripted(call("offer", city="Lima")), tools=[offer])
""",
        ({"id": "a", "question": "Lima", "answer": "Lima: 5 EUR"},),
        (RIGHT,),
    ),
    "langgraph: messages that a node copies without their ids are counted once": Team(
        "langgraph",
        """
worker = loop(scripted(call("track", parcel=7), "It is in {result}."), [track]).compile()

def team(state):
    new = worker.invoke({"messages": state["messages"]})["messages"][1:]
    return {"messages": [
        AIMessage(one.content, tool_calls=one.tool_calls, name="worker") if one.type == "ai" else one for one in new
    ]}

agent = StateGraph(MessagesState).add_node("team", team).add_edge(START, "team").compile()
""",
        (
            {
                "id": "a",
                "question": "Parcel 7?",
                "answer": "It is in Lima.",
                "expected_tools": [{"name": "track", "arguments": {"parcel": 7}}],
            },
        ),
        (("success", {"exact_match": 1.0, "tool_calls": 1.0, "tokens": 30.0}),),
        spec={"metrics": ["exact_match", EXACT_CALLS, "tokens"]},
        usage=Usage(20, 10, 30, requests=2),
    ),
    "langgraph: the result of a tool that returns directly is the answer": Team(
        "langgraph",
        """
direct = tool(return_direct=True)(quote)

def after(state):
    return END if state["messages"][-1].name == "quote" else "model"

graph = StateGraph(MessagesState)
model = scripted(call("quote", city="Lima"))
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("tools", ToolNode([direct]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_conditional_edges("tools", after)
from langgraph.graph import END
agent = graph.compile()
""",
        ({"id": "a", "question": "Lima", "answer": "Lima: 5 EUR"},),
        (RIGHT,),
    ),
    "langgraph: a state without a reducer answers the second turn, too": Team(
        "langgraph",
        """
from typing import TypedDict

class State(TypedDict):
    messages: list

def node(state):
    return {"messages": [AIMessage(f"n={len(state['messages'])}")]}

agent = StateGraph(State).add_node("node", node).add_edge(START, "node").compile()
""",
        ({"id": "a", "turns": [{"input": "a", "references": ["n=1"]}, {"input": "b", "references": ["n=2"]}]},),
        (RIGHT,),
    ),
    "langgraph: a draft before a breakpoint is no answer": Team("langgraph", DRAFTS, MAIL, (WAITED, WAITED)),
    "langgraph: a breakpoint that is passed": Team(
        "langgraph",
        DRAFTS,
        (MAIL[0], {"id": "two", "turns": [{"input": text, "references": ["sent"]} for text in ("Mail Ann", "again")]}),
        (RIGHT, RIGHT),
        spec={"approvals": [{"approve": True}]},
    ),
    "langgraph: a store begins empty in each case and repeat": Team(
        "langgraph",
        """
from langgraph.store.memory import InMemoryStore

def remember(state, *, store):
    seen = store.search(("user",), limit=100)
    store.put(("user",), str(len(seen)), {"said": state["messages"][-1].text})
    return {"messages": [AIMessage(f"I know {len(seen)} facts")]}

graph = StateGraph(MessagesState).add_node("remember", remember).add_edge(START, "remember")
agent = graph.compile(store=InMemoryStore())
""",
        tuple({"id": one, "question": one, "answer": "I know 0 facts"} for one in "abc"),
        (RIGHT,) * 6,
        spec={"repeats": 2},
    ),
    "langgraph: a message of a node's own hides no tokens": Team(
        "langgraph",
        """
model = scripted("Lima.")
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("close", lambda state: {"messages": [AIMessage("Lima. Anything else?")]})
graph.add_edge(START, "model")
graph.add_edge("model", "close")
agent = graph.compile()
""",
        ({"id": "a", "question": "Capital?", "answer": "Lima. Anything else?"},),
        (("success", {"exact_match": 1.0, "tokens": 15.0}),),
        spec={"metrics": ["exact_match", "tokens"]},
        usage=Usage(10, 5, 15, requests=1),
    ),
    "openai_agents: a limit is not retried": Team(
        "openai_agents",
        """
def reply(said):
    log("called")
    return call("track", parcel=7)

agent = Agent("loop", model=scripted(reply), tools=[function_tool(track)])
""",
        ({"id": "a", "question": "x", "answer": "x"},),
        (FAILED,),
        agent={"max_turns": 10, "retries": 2},
        usage=Usage(100, 50, 150, requests=10),
        calls=(("track", False, "Lima"),) * 10,
        logged=10,
    ),
    "pydantic_ai: an output that stays wrong is no tool call": Team(
        "pydantic_ai",
        """
agent = Agent(scripted(call("deliver", answer="Lima")), output_type=ToolOutput(City, name="deliver"))
""",
        ({"id": "a", "question": "x", "answer": "x"},),
        (FAILED,),
        agent={"retries": 0},
        spec={"metrics": ["exact_match", {"tool_calls": {"without_expected": "no_calls"}}]},
        calls=(),
    ),
    "pydantic_ai: the call whose tool raised is marked": Team(
        "pydantic_ai",
        'agent = Agent(scripted(call("track", parcel=9)), tools=[track])',
        ({"id": "a", "question": "x", "answer": "x", "expected_tools": ["track"]},),
        (FAILED,),
        agent={"retries": 0},
        spec={"metrics": ["exact_match", "tool_calls"]},
        calls=(("track", True, "no parcel 9"),),
    ),
    "pydantic_ai: a tool call that is approved": Team(
        "pydantic_ai",
        """
payer = Tool(pay, requires_approval=True)
model = scripted(call("pay", amount=5), "Done: {result}")
agent = Agent(model, tools=[payer], output_type=[str, DeferredToolRequests])
""",
        (PAY | {"approvals": [{"approve": True}]}, PAY | {"id": "b", "answer": "x"}),
        (("success", {"exact_match": 1.0, "tool_calls": 1.0}), WAITED),
        spec={"metrics": ["exact_match", EXACT_CALLS]},
    ),
    "openai_agents: a server of MCP is connected": Team(
        "openai_agents",
        """
from agents.mcp import MCPServerStdio

server = MCPServerStdio(params={"command": MCP_COMMAND[0], "args": MCP_COMMAND[1:]})
agent = Agent("sums", model=scripted(call("add", a=2, b=3), "5"), mcp_servers=[server])
""",
        ({"id": "a", "question": "2 + 3", "answer": "5"},),
        (RIGHT,),
    ),
    "openai_agents: a tool call that is approved": Team(
        "openai_agents",
        """
payer = function_tool(pay, needs_approval=True)
agent = Agent("payer", model=scripted(call("pay", amount=5), "Done: {result}"), tools=[payer])
""",
        (PAY | {"approvals": [{"approve": True}]}, PAY | {"id": "b", "answer": "x"}),
        (("success", {"exact_match": 1.0, "tool_calls": 1.0}), WAITED),
        spec={"metrics": ["exact_match", EXACT_CALLS]},
    ),
}


@pytest.mark.parametrize("name", TEAMS)
async def test_an_agent_is_evaluated_by_what_it_did(
    evaluate: Callable[..., Awaitable[Evaluation]], tmp_path: Path, name: str
) -> None:
    """Status and metrics of every row, and its tokens."""
    team = TEAMS[name]
    (tmp_path / "agent.py").write_text(f"{FRAMEWORKS[team.framework].PRELUDE}\n{team.source}", encoding="utf-8")
    found = await evaluate({"adapter": team.framework, **team.agent}, team.cases, **team.spec)
    assert len(found.rows) == len(team.rows)
    for row, (status, values) in zip(found.rows, team.rows, strict=True):
        assert (row.status, {metric: value_of(row, metric) for metric in values}) == (status, values)
        response = row.response or row.turns[-1].response
        assert response is not None
        if team.usage is not None:
            assert response.usage == team.usage
        if team.calls is not None:
            assert [(call.name, call.is_error) for call in calls(response)] == [each[:2] for each in team.calls]
            assert all(said in call.result_json for call, (_, _, said) in zip(calls(response), team.calls, strict=True))
    if team.logged is not None:
        assert len((tmp_path / "log").read_text().splitlines()) == team.logged
    if "gates" in team.spec:
        assert found.verdict == "FAIL"


def value_of(row: RowResult, metric: str) -> float | None:
    """Return the value of a metric of a row."""
    (score,) = (score for score in row.scores if score.metric == metric)
    return score.value


@pytest.mark.parametrize("approvals", [[], [{"tool": "pay", "approve": True}]], ids=["waits", "approved"])
async def test_an_adk_server_whose_agent_waits(
    evaluate: Callable[..., Awaitable[Evaluation]], tmp_path: Path, approvals: list[dict[str, Any]]
) -> None:
    """Behind `adk api_server` as in process."""
    source = f"{FRAMEWORKS['adk'].PRELUDE}\nroot_agent = {ADK_PAYER}"
    async with serving_adk(tmp_path, source, "payer") as url:
        agent = {"adapter": "adk", "target": url, "app_name": "payer"}
        found = await evaluate(agent, [PAY], metrics=["exact_match", EXACT_CALLS], approvals=approvals)
    (row,) = found.rows
    assert row.response is not None
    assert row.status == ("success" if approvals else "interrupted")
    assert [call.name for call in calls(row.response)] == ["pay"]
    assert value_of(row, "exact_match") == (1 if approvals else 0)


async def test_an_a2a_agent_that_streams_its_artifact(evaluate: Callable[..., Awaitable[Evaluation]]) -> None:
    """Pieces of one artifact are one text, and an answer may be data alone."""
    from tests.frameworks.a2a_agents import Streaming, app_of
    from tests.frameworks.serving import serving_app

    cases = [
        {"id": "pieces", "question": "pieces", "answer": "The capital is Lima."},
        {"id": "data", "question": "data", "answer": "42"},
    ]
    async with serving_app(lambda url: app_of(Streaming(), url)) as url:
        found = await evaluate({"adapter": "a2a", "target": url}, cases)
    assert [value_of(row, "exact_match") for row in found.rows] == [1, 1]


async def test_errors_of_a_provider_in_a_good_reply(evaluate: Callable[..., Awaitable[Evaluation]]) -> None:
    """OpenRouter's errors under HTTP 200 are retried where they may pass, and else are errors with what they say."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route
    from tests.frameworks.serving import serving_app

    asked: list[str] = []

    async def complete(request: Any) -> Any:
        question = (await request.json())["messages"][-1]["content"]
        asked.append(question)
        if question == "limit" and asked.count("limit") == 1:
            return JSONResponse({"error": {"message": "slow down", "code": 429}})
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fine"}}
        if question == "broken" and asked.count("broken") == 1:
            choice |= {"finish_reason": "error", "error": {"code": 502, "message": "upstream"}}
        reply = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return JSONResponse(reply)

    cases = [{"id": one, "question": one, "answer": "fine"} for one in ("hello", "limit", "broken")]
    async with serving_app(
        lambda url: Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
    ) as url:
        found = await evaluate({"adapter": "openai", "target": "m", "base_url": f"{url}/v1"}, cases)
    assert [row.status for row in found.rows] == ["success"] * 3
    assert sorted(asked) == ["broken", "broken", "hello", "limit", "limit"]


def test_a_command_that_answers_twice(shared_cli: Cli) -> None:
    """A line too many answers no question: the next one is answered as it was."""
    program = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    answer = json.dumps({"request_id": question["request_id"], "text": question["input"]})
    print(answer, flush=True)
    if question["input"] == "one":
        print(answer, flush=True)
"""
    shared_cli.write("program.py", program)
    cases = [{"id": one, "question": one, "answer": one} for one in ("zero", "one", "two", "three")]
    shared_cli.write("cases.jsonl", "\n".join(map(json.dumps, cases)))
    agent = {"adapter": "command", "target": f"{sys.executable} program.py"}
    rows = rows_of_a_run(shared_cli, agent, metrics=["exact_match"])
    assert [(row["status"], row["scores"]["exact_match"]["value"]) for row in rows] == [("success", 1)] * 4


def test_arguments_that_an_instrumentation_wraps(shared_cli: Cli) -> None:
    """OpenLLMetry writes what LangChain's callback is given around the arguments; a right call is right."""
    source = f"""{PROVIDER}
import json

def answer(question):
    wrapped = {{"input_str": "{{'parcel': 7}}", "inputs": {{"parcel": 7}}, "tags": [], "kwargs": {{}}}}
    tracer = trace.get_tracer("opentelemetry.instrumentation.langchain")
    with tracer.start_as_current_span("execute_tool track") as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", "track")
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps(wrapped))
        span.set_attribute("gen_ai.tool.call.result", json.dumps("Lima"))
    return "Lima"
"""
    shared_cli.write("agent.py", source)
    expected = [{"name": "track", "arguments": {"parcel": 7}}]
    shared_cli.write("cases.jsonl", {"id": "a", "question": "?", "answer": "Lima", "expected_tools": expected})
    agent = {"adapter": "python", "target": "agent.py:answer", "traces": "otlp"}
    (row,) = rows_of_a_run(shared_cli, agent, metrics=["exact_match", EXACT_CALLS])
    assert [score["value"] for score in row["scores"].values()] == [1, 1]


def rows_of_a_run(cli: Cli, agent: dict[str, Any], **spec: Any) -> list[dict[str, Any]]:
    """Return the rows of a run by the command, over `cases.jsonl` of its folder."""
    cli.write("assay.yaml", {"dataset": "cases.jsonl", "agent": agent, **spec})
    cli.run("run", "--output-dir", "out")
    rows: list[dict[str, Any]] = json.loads((cli.folder / "out" / "results.json").read_text(encoding="utf-8"))["rows"]
    return rows
