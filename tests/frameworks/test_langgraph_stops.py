"""Graphs that stop for a person, in the forms that LangGraph and LangChain have, and what each decision resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.answers import calls
from tests.frameworks.asking import ask, opened
from tests.frameworks.behaviours.langgraph import PRELUDE

from assay.model.answers.agent_response import AgentStatus, Usage
from assay.model.answers.approvals import read_approvals

if TYPE_CHECKING:
    from pathlib import Path

    from assay.model.answers.agent_response import AgentResponse

pytestmark = pytest.mark.frameworks

SAVERS = ["None", "InMemorySaver()", "SyncSaver()"]
SYNC_SAVER = """
class SyncSaver(InMemorySaver):
    # As langgraph-checkpoint-sqlite's: it has no asynchronous methods.
    async def aget_tuple(self, config):
        raise NotImplementedError
    aput = aput_writes = alist = aget_tuple
"""


async def answer_of(folder: Path, source: str, *decisions: dict[str, Any]) -> AgentResponse:
    """Return the answer of an agent whose case has some approvals."""
    approvals, problems = read_approvals(decisions, times=1)
    assert not problems
    return await ask(opened(folder, "langgraph", f"{PRELUDE}{SYNC_SAVER}{source}"), "q", approvals=approvals)


def waits(answer: AgentResponse) -> list[tuple[str, ...]]:
    return [(one.kind, one.tool, one.arguments_json, one.message, one.decision) for one in answer.interrupts]


BEFORE_TOOLS = """
model = scripted([call("pay", amount=5), call("pay", amount=6)], "Done.")
inner = loop(model, [pay]).compile(interrupt_before=["tools"])
agent = line(MessagesState, inner=inner).compile(SAVER)
"""


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize(
    ("decisions", "made"),
    [
        (({"approve": True}, {"approve": True}), [("5", "paid 5", False), ("6", "paid 6", False)]),
        (({"edit": {"amount": 1}}, {"approve": True}), [("1", "paid 1", False), ("6", "paid 6", False)]),
        (({"deny": "no"}, {"deny": "never"}), [("5", "no", True), ("6", "never", True)]),
        (({"approve": True}, {"deny": "no"}), [("5", "paid 5", False), ("6", "no", True)]),
        (({"deny": "no"}, {"edit": {"amount": 2}}), [("5", "no", True), ("2", "paid 2", False)]),
    ],
)
async def test_calls_at_a_breakpoint_are_decided_one_by_one(
    tmp_path: Path, saver: str, decisions: tuple[dict[str, Any], ...], made: list[tuple[str, str, bool]]
) -> None:
    """A breakpoint before the node of the tools, here of a subgraph, asks about each call; denied ones do not run."""
    answer = await answer_of(tmp_path, BEFORE_TOOLS.replace("SAVER", saver), *decisions)
    assert (answer.status, answer.text, answer.usage) == (AgentStatus.SUCCESS, "Done.", Usage(20, 10, 30, requests=2))
    shown = [(f'{{"amount": {amount}}}', f'"{result}"', failed) for amount, result, failed in made]
    assert [(call.arguments_json, call.result_json, call.is_error) for call in calls(answer)] == shown
    where = "the graph stopped before tools"
    assert waits(answer) == [
        ("approval", "pay", f'{{"amount": {amount}}}', where, next(iter(decision)))
        for amount, decision in zip((5, 6), decisions, strict=True)
    ]


FEEDBACK = """
class State(MessagesState):
    feedback: str

def send(state):
    return {"messages": [AIMessage(f"sent: {state['messages'][-1].text} {state.get('feedback')}")]}

nodes = {"draft": asks(scripted("draft")), "human": lambda state: None, "send": send}
agent = line(State, **nodes).compile(SAVER, BREAK)
"""


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("stop", ['interrupt_before=["human"]', 'interrupt_after=["draft"]'])
@pytest.mark.parametrize(
    ("decision", "text"),
    [
        ({"approve": True}, "sent: draft None"),
        ({"answer": {"feedback": "good"}}, "sent: draft good"),
        ({"answer": "shorter"}, "sent: shorter None"),
        ({"deny": "no"}, "draft"),
    ],
)
async def test_any_other_breakpoint_is_passed_answered_or_kept(
    tmp_path: Path, saver: str, stop: str, decision: dict[str, Any], text: str
) -> None:
    """An answer is written to the state: its fields, or a message; a denied breakpoint ends the run there."""
    answer = await answer_of(tmp_path, FEEDBACK.replace("SAVER", saver).replace("BREAK", stop), decision)
    assert (answer.status, answer.text) == (AgentStatus.SUCCESS, text)
    assert waits(answer) == [("input", "", "", "the graph stopped before human", next(iter(decision)))]


IN_A_TOOL = """
def book(hotel: str) -> str:
    "Book."
    answer = interrupt({"text": f"Book {hotel}?"})
    return f"booked {answer['hotel']}"

agent = loop(scripted([call("book", hotel="Ritz"), call("track", parcel=7)], "Done."), [book, track]).compile(SAVER)
"""


@pytest.mark.parametrize("saver", SAVERS)
async def test_a_question_of_a_tool_names_the_tool(tmp_path: Path, saver: str) -> None:
    """The tool beside it runs once in the trace, though LangGraph runs the node of both again; none has failed."""
    source = IN_A_TOOL.replace("SAVER", saver)
    open_question = await answer_of(tmp_path, source)
    assert waits(open_question) == [("input", "book", '{"hotel": "Ritz"}', "Book Ritz?", "")]
    assert [(call.name, call.is_error) for call in calls(open_question)] == [("book", False), ("track", False)]
    answer = await answer_of(tmp_path, source, {"tool": "book", "answer": {"hotel": "Inn"}})
    assert [(call.name, call.result_json) for call in calls(answer)] == [("book", '"booked Inn"'), ("track", '"Lima"')]
    assert (answer.text, answer.usage) == ("Done.", Usage(20, 10, 30, requests=2))


async def test_a_node_that_is_run_again_asks_for_its_calls_once(tmp_path: Path) -> None:
    """The tokens of each of its calls of a model are counted: LangGraph repeats the node after each answer."""
    answer = await answer_of(
        tmp_path,
        """
model = scripted(call("pay", amount=5))

def node(state):
    reply = model.invoke(state["messages"])
    first = interrupt({"question": "May I?", "tool_call": reply.tool_calls[0]})
    done = f"{pay(5)} {first} {interrupt('Sure?')}"
    return {"messages": [reply, ToolMessage(done, tool_call_id=reply.tool_calls[0]["id"])]}

agent = line(MessagesState, node=node).compile()
""",
        {"approve": True},
        {"answer": ["really"]},
    )
    assert (answer.text, answer.usage) == ("paid 5 ['really'] True", Usage(30, 15, 45, requests=3))
    assert [(call.name, call.result_json) for call in calls(answer)] == [("pay", "\"paid 5 ['really'] True\"")]
    assert [(one.tool, one.message, one.decision) for one in answer.interrupts] == [
        ("pay", "May I?", "answer"),
        ("", "Sure?", "approve"),
    ]


AT_ONCE = """
class State(MessagesState):
    number: int

def ask(state):
    return {"messages": [AIMessage(f"{state['number']}: {interrupt({'number': state['number']})}")]}

def everyone(state):
    return [Send("inner", {"number": number, "messages": []}) for number in range(3)]

from langgraph.types import Send
inner = line(State, ask=ask).compile()
graph = StateGraph(MessagesState).add_node("inner", inner).add_conditional_edges(START, everyone, ["inner"])
agent = graph.compile()
"""


async def test_several_interrupts_at_once_are_answered_each_with_its_own(tmp_path: Path) -> None:
    """They come from subgraphs that run at the same time; as long as one has no decision the graph is not resumed."""
    open_questions = await answer_of(tmp_path, AT_ONCE, {"answer": "a"}, {"answer": "b"})
    assert [(one.message, one.decision) for one in open_questions.interrupts] == [
        ('{"number": 0}', "answer"),
        ('{"number": 1}', "answer"),
        ('{"number": 2}', ""),
    ]
    answer = await answer_of(tmp_path, AT_ONCE, {"answer": "a"}, {"answer": "b"}, {"answer": "c"})
    assert (answer.status, answer.text) == (AgentStatus.SUCCESS, "2: c")


REQUEST = """
def node(state):
    config = {"allow_ignore": True, "allow_respond": RESPOND, "allow_edit": True, "allow_accept": True}
    request = {"action_request": {"action": "pay", "args": {"amount": 5}}, "config": config, "description": "Pay?"}
    return {"messages": [AIMessage(str(interrupt(REQUEST)))]}

agent = line(MessagesState, node=node).compile()
"""


@pytest.mark.parametrize("form", ["request", "[request]"])
@pytest.mark.parametrize(
    ("decision", "can_respond", "response"),
    [
        ({"approve": True}, True, {"type": "accept", "args": None}),
        ({"deny": "no"}, True, {"type": "response", "args": "no"}),
        ({"deny": "no"}, False, {"type": "ignore", "args": None}),
        ({"edit": {"amount": 1}}, True, {"type": "edit", "args": {"action": "pay", "args": {"amount": 1}}}),
    ],
)
async def test_requests_of_an_agent_inbox(
    tmp_path: Path, form: str, decision: dict[str, Any], can_respond: bool, response: dict[str, Any]
) -> None:
    """The form of LangGraph's prebuilt `HumanInterrupt`, alone and in a list, is an approval of its tool."""
    source = REQUEST.replace("RESPOND", str(can_respond)).replace("REQUEST", form)
    answer = await answer_of(tmp_path, source, decision)
    assert answer.text == str(response if form == "request" else [response])
    assert waits(answer) == [("approval", "pay", '{"amount": 5}', "Pay?", next(iter(decision)))]


async def test_a_chain_around_a_graph_stops_and_ends_with_it(tmp_path: Path) -> None:
    """What follows the graph in a chain receives its last state alone, and is not called before."""
    source = """
graph = line(MessagesState, ask=lambda state: {"messages": [AIMessage(f"city: {interrupt('Which?')}")]})
agent = RunnableLambda(lambda text: {"messages": [("user", text)]}) | graph.compile().with_config(tags=["x"]) | (
    lambda state: state["messages"][-1].text.upper()
)
"""
    assert (await answer_of(tmp_path, source)).status is AgentStatus.INTERRUPTED
    assert (await answer_of(tmp_path, source, {"answer": "Lima"})).text == "CITY: LIMA"


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(
    ("decision", "made"),
    [
        ({"approve": True}, ('{"amount": 5}', "paid 5", False)),
        ({"edit": {"amount": 3}}, ('{"amount": 3}', "paid 3", False)),
        ({"deny": "too much"}, ('{"amount": 5}', "too much", True)),
    ],
)
async def test_the_middleware_of_langchain(
    tmp_path: Path, mode: str, decision: dict[str, Any], made: tuple[str, str, bool]
) -> None:
    """HumanInTheLoopMiddleware itself, not a node that does the same; calls beside the reviewed one run."""
    pytest.importorskip("langchain", reason="no langchain goes with the oldest LangGraph and LangChain together")
    answer = await answer_of(
        tmp_path,
        f"""
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware

review = HumanInTheLoopMiddleware(interrupt_on={{"pay": True}}, interrupt_mode="{mode}")
model = scripted([call("pay", amount=5), call("track", parcel=7)], "Done.")
agent = create_agent(model, [pay, track], middleware=[review])
""",
        decision,
    )
    assert (answer.status, answer.text, answer.usage) == (AgentStatus.SUCCESS, "Done.", Usage(20, 10, 30, requests=2))
    paid, tracked = calls(answer)
    assert (paid.arguments_json, paid.is_error) == (made[0], made[2])
    assert made[1] in paid.result_json
    assert (tracked.name, tracked.result_json) == ("track", '"Lima"')
    assert [(one.kind, one.tool, one.decision) for one in answer.interrupts] == [
        ("approval", "pay", next(iter(decision)))
    ]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_a_decision_that_the_middleware_does_not_allow(tmp_path: Path, mode: str) -> None:
    """It is an error that names the allowed ones and is not asked for again; what is only answered is a call."""
    pytest.importorskip("langchain", reason="no langchain goes with the oldest LangGraph and LangChain together")
    source = f"""
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware

only = {{"allowed_decisions": ["ALLOWED"]}}
review = HumanInTheLoopMiddleware(interrupt_on={{"pay": only}}, interrupt_mode="{mode}")
agent = create_agent(scripted(call("pay", amount=5), "Done: {{result}}"), [pay], middleware=[review])
"""
    refused = await answer_of(tmp_path, source.replace("ALLOWED", "approve"), {"edit": {"amount": 1}})
    assert refused.error is not None
    assert "the agent's review of pay allows approve, not edit" in refused.error.message
    assert (refused.error.type, refused.error.retryable) == ("UnusableDecision", False)
    (tmp_path / "call").mkdir()
    answered = await answer_of(tmp_path / "call", source.replace("ALLOWED", "respond"), {"answer": "paid by hand"})
    assert answered.text == "Done: paid by hand"
    assert [(one.kind, one.decision) for one in answered.interrupts] == [("call", "answer")]
