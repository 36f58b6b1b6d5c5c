"""What conversations keep from turn to turn and from case to case: messages, sessions of chains, stores of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frameworks.answers import calls
from tests.frameworks.asking import ask, opened
from tests.frameworks.test_langgraph import CHAIN

from assay.agent_host.user_code import open_caller
from assay.errors import InvalidInputError
from assay.model.answers.agent_request import Message
from assay.model.answers.agent_response import AgentErrorKind, Usage
from assay.model.run import AgentSpec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks


MESSAGES_STATE = """
import operator
from typing import Annotated, TypedDict
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages


class State(TypedDict):
    FIELD


def node(state):
    count = len(state["NAME"])
    return {"NAME": [REPLY]}


agent = StateGraph(State).add_node("node", node).add_edge(START, "node").compile(SAVER)
"""


@pytest.mark.parametrize("saver", ["", "InMemorySaver()"])
@pytest.mark.parametrize(
    ("field", "texts"),
    [
        ("messages: list", ["n=1", "n=2", "n=2"]),  # without a reducer a node's messages replace all others
        ("messages: Annotated[list, operator.add]", ["n=1", "n=3", "n=5"]),
        ("messages: Annotated[list, add_messages]", ["n=1", "n=3", "n=5"]),
        ("chat: Annotated[list[AnyMessage], add_messages]", ["n=1", "n=3", "n=5"]),
    ],
)
@pytest.mark.parametrize(
    "reply", ["AIMessage(f'n={count}')", "('ai', f'n={count}')", "{'role': 'assistant', 'content': f'n={count}'}"]
)
async def test_conversations_of_every_state_of_messages(
    tmp_path: Path, saver: str, field: str, texts: list[str], reply: str
) -> None:
    """Messages without ids, of any form, in a field of any name: each turn sees those before, and answers anew."""
    name = field.partition(":")[0]
    source = MESSAGES_STATE.replace("FIELD", field).replace("NAME", name).replace("REPLY", reply)
    caller = opened(tmp_path, "langgraph", source.replace("SAVER", saver))
    said: tuple[Message, ...] = ()
    for text in texts:
        answer = await ask(caller, "same", history=said)
        assert (answer.error, answer.text, answer.output) == (None, text, None)
        said += (Message("user", "same"), Message("assistant", answer.text))


@pytest.mark.filterwarnings("ignore:.*MessageHistory")  # the newest LangChain advises against it, and still has it
@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("remembering", ["seen 1", "seen 3", "seen 5"]),
        ("asked | StrOutputParser()", ["seen 1", "seen 3", "seen 5"]),
        ("with_field", ["seen 1", "seen 3", "seen 5"]),
        ("short", ["Human: q in Peru", None]),
    ],
)
async def test_conversations_with_chains(tmp_path: Path, name: str, texts: list[str | None]) -> None:
    """A chain with a history of its own has a session for each case, and one that cannot know earlier turns says so."""
    source = f"""{CHAIN}
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models.fake_chat_models import SimpleChatModel
from langchain_core.runnables.history import RunnableWithMessageHistory

class Counting(SimpleChatModel):
    _llm_type = "counting"

    def _call(self, messages, stop=None, run_manager=None, **_):
        return f"seen {{len(messages)}}"

asked, histories = Counting(), {{}}
with_field = ChatPromptTemplate.from_messages([("placeholder", "{{history}}"), ("human", "{{query}}")]) | asked
remembering = RunnableWithMessageHistory(
    with_field,
    lambda session_id: histories.setdefault(session_id, InMemoryChatMessageHistory()),
    input_messages_key="query",
    history_messages_key="history",
)
agent = {name}
"""
    caller = opened(tmp_path, "langgraph", source)
    for session in ("run/0/0", "run/0/1"):
        said: tuple[Message, ...] = ()
        for text in texts:
            answer = await ask(caller, "q", session, history=said, variables={"country": "Peru"})
            if text is None:
                assert answer.error is not None
                assert "cannot know the earlier turns" in answer.error.message
                assert not answer.error.retryable
            else:
                assert (answer.error, answer.text) == (None, text)
            said += (Message("user", "q"), Message("assistant", answer.text))


STORES = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore


class Remote(BaseStore):
    def batch(self, ops):
        return kept.batch(ops)

    async def abatch(self, ops):
        return await kept.abatch(ops)


def remember(state, *, store):
    facts = store.search(("facts",), limit=100)
    store.put(("facts",), state["messages"][-1].text, {"n": len(facts)})
    if state["messages"][-1].text == "fail":
        raise ValueError("failed")
    return {"messages": [AIMessage(str(len(facts)))]}


kept, remote = InMemoryStore(), Remote()
kept.put(("facts",), "first", {"n": 0})
agent = StateGraph(MessagesState).add_node(remember).add_edge(START, "remember").compile(store=USED)
"""


@pytest.mark.parametrize(
    ("used", "option", "texts"),
    [
        ("kept", "", ["1", "2", "1", "2"]),
        ("kept", "agent.py:kept", ["1", "2", "3", "4"]),
        ("kept", "agent.py:InMemoryStore", ["0", "1", "0", "1"]),
        ("remote", "agent.py:remote", ["1", "2", "3", "4"]),
    ],
)
async def test_stores_are_fresh_or_declared_shared(tmp_path: Path, used: str, option: str, texts: list[str]) -> None:
    """A store begins in each case as it is in the module, and a failed attempt leaves nothing in it."""
    caller = opened(tmp_path, "langgraph", STORES.replace("USED", used), **({"store": option} if option else {}))
    found = []
    for session in ("run/0/0", "run/0/1"):
        first = await ask(caller, f"a {session}", session)
        said = (Message("user", f"a {session}"), Message("assistant", first.text))
        if not option:
            assert (await ask(caller, "fail", session, history=said)).error is not None
        second = await ask(caller, f"b {session}", session, history=said)
        found += [first.text, second.text]
    assert found == texts


def test_a_store_that_cannot_be_made_anew_is_refused(tmp_path: Path) -> None:
    """All cases would share it unseen; the message names the option that says so."""
    (tmp_path / "agent.py").write_text(STORES.replace("USED", "remote"))
    with pytest.raises(InvalidInputError) as caught:
        open_caller(AgentSpec("langgraph", "agent.py:agent"), tmp_path)
    assert "agent.target: is a graph with a store of the type Remote" in str(caught.value)
    assert "option `store`" in str(caught.value)


PRIVATE = """
from typing import TypedDict
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph


class Output(TypedDict):
    answer: str


class State(MessagesState):
    answer: str
    extra: object


def node(state):
    call = {"name": "look", "args": {}, "id": f"c{len(state['messages'])}"}
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    asked = AIMessage("", tool_calls=[call], usage_metadata=usage)
    circle = {}
    circle["circle"] = circle
    state = {"messages": [asked, ToolMessage("seen", tool_call_id=call["id"])], "extra": EXTRA}
    return state | {"answer": f"n={len(state['messages'])}"}


agent = StateGraph(State, output_schema=OUTPUT).add_node("node", node).add_edge(START, "node").compile(SAVER)
"""


ASKED = """
import operator
from typing import Annotated, TypedDict
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages


class Input(TypedDict):
    FIELD


class State(TypedDict):
    question: str
    messages: Annotated[list, REDUCER]


def node(state):
    call = {"name": "look", "args": {}, "id": f"c{len(state.get('messages') or [])}"}
    seen = ToolMessage("seen", tool_call_id=call["id"])
    return {"messages": [AIMessage("", tool_calls=[call]), seen, AIMessage("same")]}


agent = StateGraph(State, input_schema=Input).add_node("node", node).add_edge(START, "node").compile(SAVER)
"""


@pytest.mark.parametrize(
    ("field", "saver", "ids"),
    [
        ("question: str", "InMemorySaver()", ["c0", "c3"]),
        ("messages: list", "", ["c1", "c5"]),
        ("messages: list", "InMemorySaver()", ["c1", "c5"]),
    ],
)
@pytest.mark.parametrize("reducer", ["add_messages", "operator.add"])
async def test_a_turn_lists_its_own_calls_alone(
    tmp_path: Path, field: str, saver: str, ids: list[str], reducer: str
) -> None:
    """Whether the graph is asked with a text or with messages, and whether these have ids."""
    source = ASKED.replace("FIELD", field).replace("REDUCER", reducer).replace("SAVER", saver)
    caller = opened(tmp_path, "langgraph", source)
    said = (Message("user", "q"), Message("assistant", "same"))
    turns = [await ask(caller, "q"), await ask(caller, "q", history=said)]
    assert [answer.text for answer in turns] == ["same", "same"]
    assert [[call.id for call in calls(answer)] for answer in turns] == [[one] for one in ids]


@pytest.mark.parametrize("saver", ["", "InMemorySaver()"])
async def test_messages_that_a_graph_keeps_to_itself(tmp_path: Path, saver: str) -> None:
    """They are not in the result of a graph with an output schema, but count, and the next turn has them."""
    source = PRIVATE.replace("SAVER", saver).replace("EXTRA", "None").replace("OUTPUT", "Output")
    caller = opened(tmp_path, "langgraph", source)
    said: tuple[Message, ...] = ()
    for call in ("c1", "c4"):
        answer = await ask(caller, "q", history=said)
        assert (answer.error, answer.text, answer.output) == (None, "n=2", {"answer": "n=2"})
        assert [(one.id, one.result_json) for one in calls(answer)] == [(call, '"seen"')]
        assert answer.usage == Usage(1, 2, 3, requests=1)
        said += (Message("user", "q"), Message("assistant", answer.text))


async def test_a_state_that_cannot_be_written_keeps_its_trace(tmp_path: Path) -> None:
    """One that holds itself fails where the answer is read, and is not asked for again."""
    source = PRIVATE.replace("SAVER", "").replace("EXTRA", "circle").replace("OUTPUT", "State")
    answer = await ask(opened(tmp_path, "langgraph", source), "q")
    assert answer.error is not None
    assert (answer.error.kind, answer.error.retryable) == (AgentErrorKind.MALFORMED, False)
    assert (len(calls(answer)), answer.usage) == (1, Usage(1, 2, 3, requests=1))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.booleans()), max_size=6), st.integers(0, 3))
def test_new_messages_are_those_that_were_added(earlier: list[tuple[str, bool, bool]], count: int) -> None:
    """A graph may keep any of the earlier ones, with ids or without: their number distinguishes equal texts."""
    from langchain_core.messages import AIMessage

    from assay.agent_host.frameworks.langchain_messages import new_messages

    before = [AIMessage(text, id=f"{n}" if named else None) for n, (text, named, _) in enumerate(earlier)]
    kept = [message for message, (_, _, stays) in zip(before, earlier, strict=True) if stays]
    added = [AIMessage(f"new {n}", id=f"new {n}" if n % 2 else None) for n in range(count)]
    assert new_messages([*(one.model_copy() for one in kept), *added], before) == added
    if all(stays for _, _, stays in earlier):
        repeated = [one.model_copy(update={"id": None}) for one in before]
        assert new_messages([*before, *repeated], before) == repeated
