"""Many questions at once to an agent with nested agents: nothing passes between conversations, all is counted once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.answers import calls
from tests.frameworks.behaviours.test_behaviours import FRAMEWORKS

import assay
from assay.model.answers.agent_response import Usage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.client.api.evaluation import Evaluation
    from assay.model.answers.agent_response import AgentResponse

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated"),  # of ADK's AgentTool itself
]

REPLIES = '''
import re


def words_in(said):
    return sorted(set(re.findall(r"W\\d+", said)))


def desk(said):
    """Note the word of the first question, have it checked after the second; the answer is every word in sight."""
    if "noted" not in said:
        return call("note", word=words_in(said)[0])
    if "second" in said and "checked" not in said:
        return call("checker", **{REQUEST: f"check {words_in(said)[0]}"})
    return " ".join(words_in(said))


def cashier(said):
    """Ask to pay what the first question names, and again after the second; the answer is the payment in sight."""
    if "pay" in said and "second" not in said:
        return "Denied."
    if "paid" in said:
        return " ".join(sorted(set(re.findall(r"paid \\d+", said))))
    return call("pay", amount=int(words_in(said)[0][1:]))


def check(said):
    return f"checked {' '.join(words_in(said))}"


def note(word: str) -> str:
    """Note a word."""
    return f"noted {word}"


def level(number):
    """Return the replies of an agent that calls the next level as often as T:… says, each time with the rest of it."""

    def reply(said):
        log("model")
        count, _, rest = re.search(r"T:([\\d:]+)", said)[1].partition(":")
        if "done" in said or count == "0":
            return "done"
        return [call(f"level{number + 1}", **{REQUEST: f"T:{rest or 0}"}) for _ in range(int(count))]

    return reply
'''
"""What the models say, whatever the framework."""

TEAMS = {
    "adk": """
REQUEST = "request"

def nested(name, replies, tools=()):
    return AgentTool(LlmAgent(name=name, description=name, model=scripted(replies), tools=list(tools)))

team = LlmAgent(name="desk", model=scripted(desk), tools=[note, nested("checker", check)])
tree = LlmAgent(name="desk", model=scripted(level(0)), tools=[
    nested("level1", level(1), [nested("level2", level(2))])
])
cashbox = LlmAgent(name="cashbox", model=scripted(cashier), tools=[FunctionTool(pay, require_confirmation=True)])
""",
    "langgraph": '''
REQUEST = "request"

def nested(name, replies, tools=()):
    inner = loop(scripted(replies), list(tools)).compile()

    def run(request: str) -> str:
        """Ask another agent."""
        return inner.invoke({"messages": [("user", request)]})["messages"][-1].text

    return tool(name)(run)

team = loop(scripted(desk), [note, nested("checker", check)]).compile(InMemorySaver())
tree = loop(scripted(level(0)), [nested("level1", level(1), [nested("level2", level(2))])]).compile()

@tool("pay")
def pay_if_allowed(amount: int) -> str:
    """Pay an amount."""
    return pay(amount) if interrupt(f"{amount}?") else "no"

cashbox = loop(scripted(cashier), [pay_if_allowed]).compile()
''',
    "openai_agents": """
REQUEST = "input"

def nested(name, replies, tools=()):
    return Agent(name, model=scripted(replies), tools=list(tools)).as_tool(name, name)

team = Agent("desk", model=scripted(desk), tools=[function_tool(note), nested("checker", check)])
tree = Agent("desk", model=scripted(level(0)), tools=[nested("level1", level(1), [nested("level2", level(2))])])
cashbox = Agent("cashbox", model=scripted(cashier), tools=[function_tool(pay, needs_approval=True)])
""",
    "pydantic_ai": '''
REQUEST = "request"

def nested(name, replies, tools=()):
    inner = Agent(scripted(replies), tools=list(tools))

    async def run(request: str) -> str:
        """Ask another agent."""
        return (await inner.run(request)).output

    return Tool(run, name=name)

team = Agent(scripted(desk), tools=[note, nested("checker", check)])
tree = Agent(scripted(level(0)), tools=[nested("level1", level(1), [nested("level2", level(2))])])
payer = Tool(pay, requires_approval=True)
cashbox = Agent(scripted(cashier), tools=[payer], output_type=[str, DeferredToolRequests])
''',
}


@pytest.fixture
def evaluate(
    request: pytest.FixtureRequest, tmp_path: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Evaluation]:
    """Return what evaluates an agent of a framework through the orchestrator, as a user's script does."""
    monkeypatch.setenv("ASSAY_HOME", str(shared_home))
    monkeypatch.chdir(tmp_path)

    def run(framework: str, name: str, cases: list[dict[str, Any]], **spec: Any) -> Evaluation:
        source = f"{FRAMEWORKS[framework].PRELUDE}\n{REPLIES}\n{TEAMS[framework]}"
        (tmp_path / "agent.py").write_text(source, encoding="utf-8")
        agent = {"adapter": framework, "target": f"agent.py:{name}", "concurrency": 16, "retries": 0}
        return assay.evaluate({"agent": agent, **spec}, dataset=cases, progress=False)

    return run


def spent(requests: int) -> Usage:
    """Return what a number of calls of scripted models cost."""
    return Usage(10 * requests, 5 * requests, 15 * requests, requests=requests)


def calls_of(answer: AgentResponse | None) -> list[tuple[str, bool]]:
    assert answer is not None
    return [(call.name, call.is_error) for call in calls(answer)]


@pytest.mark.parametrize("framework", TEAMS)
def test_conversations_at_once_do_not_meet(evaluate: Callable[..., Evaluation], framework: str) -> None:
    """20 conversations, three times each, 16 at once: each knows its own word alone, has its own calls and tokens."""
    turns = ["my first question is about {}", "and the second one?"]
    cases = [
        {"id": f"W{n}", "turns": [{"input": text.format(f"W{n}"), "references": [f"W{n}"]} for text in turns]}
        for n in range(20)
    ]
    rows = evaluate(framework, "team", cases, repeats=3, metrics=["exact_match"]).rows
    assert len(rows) == 60
    for row in rows:
        first, second = (turn.response for turn in row.turns)
        assert first is not None
        assert second is not None
        assert (first.text, second.text) == (row.case_id, row.case_id)
        assert (calls_of(first), calls_of(second)) == ([("note", False)], [("checker", False)])
        assert f'"noted {row.case_id}"' in calls(first)[0].result_json
        assert f"checked {row.case_id}" in calls(second)[0].result_json
        assert (first.usage, second.usage) == (spent(2), spent(3))


@pytest.mark.parametrize("framework", TEAMS)
def test_decisions_at_once_do_not_meet(evaluate: Callable[..., Evaluation], framework: str) -> None:
    """20 conversations, three times each, 16 at once: each stop takes the decision of its own case and turn."""
    cases = [
        {
            "id": f"W{n}",
            "turns": [
                {"input": f"my first question is about W{n}", "references": ["Denied."]},
                {"input": "and the second one?", "references": [f"paid {n}"]},
            ],
            "approvals": [{"tool": "pay", "deny": f"no to W{n}"}, {"tool": "pay", "approve": True}],
        }
        for n in range(20)
    ]
    rows = evaluate(framework, "cashbox", cases, repeats=3, metrics=["exact_match"]).rows
    assert len(rows) == 60
    for row in rows:
        wanted = (("deny", "Denied."), ("approve", f"paid {row.case_id[1:]}"))
        for turn, (decision, text) in zip(row.turns, wanted, strict=True):
            assert turn.response is not None
            assert turn.response.text == text
            assert [(stop.tool, stop.decision) for stop in turn.response.interrupts] == [("pay", decision)]
            assert [name for name, _ in calls_of(turn.response)] == ["pay"]
            assert turn.response.usage == spent(2)


def calls_of_models(shape: str) -> int:
    """Return how many calls of models a tree of agents makes."""
    count, _, rest = shape.partition(":")
    return 1 if count in ("", "0") else 2 + int(count) * calls_of_models(rest)


@pytest.mark.parametrize("framework", TEAMS)
def test_costs_are_those_of_an_own_count(evaluate: Callable[..., Evaluation], tmp_path: Path, framework: str) -> None:
    """Trees of agents of every shape: the run costs what its models were called, each row what its own tree is."""
    shapes = [f"{first}:{second}" for first in range(4) for second in range(3)]
    cases = [{"id": shape.replace(":", "-"), "question": f"T:{shape}", "answer": "done"} for shape in shapes]
    metrics = ["exact_match", {"cost": {"input_price": 1, "output_price": 2}}]
    rows = evaluate(framework, "tree", cases, repeats=2, metrics=metrics).rows
    for row in rows:
        assert row.response is not None
        assert (row.response.text, row.response.error) == ("done", None)
        assert row.response.usage == spent(calls_of_models(row.case_id.replace("-", ":")))
        assert len(calls_of(row.response)) == tools_of(row.case_id)
    own_count = (tmp_path / "log").read_text().count("model")
    cost = sum(score.value or 0 for row in rows for score in row.scores if score.metric == "cost")
    assert own_count == 2 * sum(map(calls_of_models, shapes))
    assert cost == pytest.approx(own_count * (10 * 1 + 5 * 2) / 1e6)


def tools_of(case_id: str) -> int:
    """Return how many agents a tree of agents calls as tools."""
    first, second = map(int, re.findall(r"\d+", case_id))
    return first + first * second
