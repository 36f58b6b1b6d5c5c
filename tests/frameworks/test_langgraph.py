"""The langgraph adapter against real LangGraph and LangChain, with their own test models."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.answers import calls
from tests.frameworks.asking import ask, opened

from assay.agent_host.user_code import open_caller
from assay.client.api.loop_thread import run_to_end
from assay.errors import InvalidInputError
from assay.model.answers.agent_request import Message
from assay.model.answers.agent_response import AgentStatus, Source, Usage
from assay.model.run import AgentSpec

if TYPE_CHECKING:
    from pathlib import Path

    from assay.model.answers.agent_response import AgentResponse

pytestmark = pytest.mark.frameworks

GRAPH = """
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt


@tool(response_format="content_and_artifact")
def search(query: str):
    "Search."
    if query == "broken":
        raise ValueError("the index is broken")
    found = Document(f"all about {query}", metadata={"title": query, "source": f"https://{query}.example", "year": 1})
    return f"found {query}", [found, found]


def reply(text, **fields):
    usage = {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14, "input_token_details": {"cache_read": 3}}
    details = {"model_name": "scripted", "finish_reason": "stop"}
    message = AIMessage(text, usage_metadata=usage, response_metadata=details, **fields)
    return GenericFakeChatModel(messages=iter([message]))


def model(state):
    last = state["messages"][-1]
    if last.text == "what was said":
        return {"messages": [reply("|".join(f"{m.type}:{m.text}" for m in state["messages"])).invoke("")]}
    if last.text == "approve":
        interrupt("may I?")
    if last.type == "human" or last.text.endswith("loop"):
        calls = [{"name": "search", "args": {"query": word}, "id": f"{word}-{len(state['messages'])}"} for word in
                 last.text.removeprefix("found ").split()]
        return {"messages": [reply("", tool_calls=calls).invoke(state["messages"])]}
    return {"messages": [reply("It is 42.").invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("model", model)
graph.add_node("tools", ToolNode([search], handle_tool_errors=HANDLED))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
agent = graph.compile(SAVER)
"""

SYNC_SAVER = """
class SyncSaver(InMemorySaver):
    # As langgraph-checkpoint-sqlite's: it has no asynchronous methods.
    async def aget_tuple(self, config):
        raise NotImplementedError
    aput = aput_writes = alist = aget_tuple
"""


def graph(saver: str = "", *, handled: bool = True) -> str:
    source = GRAPH.replace("HANDLED", str(handled)).replace("SAVER", saver)
    return source.replace("\n\n\n@tool", f"\n\n{SYNC_SAVER}\n\n@tool", 1)


@pytest.mark.parametrize("saver", ["", "InMemorySaver()", "SyncSaver()"])
async def test_an_answer_has_text_tool_calls_sources_usage_and_model(tmp_path: Path, saver: str) -> None:
    """A graph of messages, with a checkpointer and without: each call has its result, and whether it failed."""
    answer = await ask(opened(tmp_path, "langgraph", graph(saver)), "peru broken")
    assert (answer.status, answer.text, answer.output) == (AgentStatus.SUCCESS, "It is 42.", None)
    found, failed = calls(answer)
    assert (found.name, found.id, found.arguments_json) == ("search", "peru-1", '{"query": "peru"}')
    assert (found.result_json, found.is_error) == ('"found peru"', False)
    assert failed.is_error
    assert "the index is broken" in failed.result_json
    assert answer.sources == (
        Source(title="peru", uri="https://peru.example", content="all about peru", metadata={"year": 1}),
    )
    assert answer.usage == Usage(20, 8, 28, cache_read_tokens=6, requests=2)
    assert (answer.model, answer.finish_reason) == ("scripted", "stop")


@pytest.mark.parametrize("saver", ["", "InMemorySaver()", "SyncSaver()"])
async def test_a_conversation_keeps_its_messages(tmp_path: Path, saver: str) -> None:
    """The second turn sees the first with its tool calls and repeats none; another session sees none of it."""
    caller = opened(tmp_path, "langgraph", graph(saver))
    first = await ask(caller, "peru")
    said = (Message("user", "peru"), Message("assistant", first.text))
    for _ in range(2):  # a repeated turn continues from where the first attempt at it did
        second = await ask(caller, "what was said", history=said)
        assert second.text == "human:peru|ai:|tool:found peru|ai:It is 42.|human:what was said"
        assert second.tool_calls == ()
        assert second.usage == Usage(10, 4, 14, cache_read_tokens=3, requests=1)
    assert (await ask(caller, "what was said", session="run/0/1")).text == "human:what was said"
    elsewhere = await ask(caller, "what was said", session="run/0/2", history=(Message("system", "Be brief."), *said))
    assert elsewhere.text == "system:Be brief.|human:peru|ai:It is 42.|human:what was said"


@pytest.mark.parametrize("saver", ["", "InMemorySaver()"])
async def test_a_failed_turn_leaves_no_trace_in_the_conversation(tmp_path: Path, saver: str) -> None:
    """A turn that is asked again after it failed sees the turns before, and nothing of the failure."""
    caller = opened(tmp_path, "langgraph", graph(saver, handled=False))
    first = await ask(caller, "peru")
    said = (Message("user", "peru"), Message("assistant", first.text))
    failed = await ask(caller, "broken", history=said)
    assert failed.error is not None
    again = await ask(caller, "what was said", history=said)
    assert again.text == "human:peru|ai:|tool:found peru|ai:It is 42.|human:what was said"


@pytest.mark.parametrize("saver", ["", "InMemorySaver()", "SyncSaver()"])
async def test_questions_at_once_do_not_meet(tmp_path: Path, saver: str) -> None:
    """Each of many questions at once has its own tool calls, its own tokens and its own thread."""
    caller = opened(tmp_path, "langgraph", graph(saver))
    answers = await asyncio.gather(*(ask(caller, f"w{i}", session=f"run/{i}/0") for i in range(50)))
    assert [calls(answer)[0].arguments_json for answer in answers] == [f'{{"query": "w{i}"}}' for i in range(50)]
    assert {(len(calls(answer)), answer.usage) for answer in answers} == {
        (1, Usage(20, 8, 28, cache_read_tokens=6, requests=2))
    }


CHAIN = """
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough, chain
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.messages import AIMessage

shown = RunnableLambda(lambda prompt: AIMessage(prompt.to_string()))


class Retriever(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document("text", id="7", metadata={"score": 0.5}), Document("other", metadata={"url": "https://o"})]


@chain
def raising(question):
    raise KeyError(question)


short = ChatPromptTemplate.from_template("{question} in {country}") | shown | StrOutputParser()
several = ChatPromptTemplate.from_template("{topic} in {country}") | shown
past = ChatPromptTemplate.from_messages([("placeholder", "{history}"), ("human", "{query}")]) | shown
rag = {"context": Retriever(), "question": RunnablePassthrough()} | RunnablePassthrough.assign(
    answer=ChatPromptTemplate.from_template("{question}") | shown | StrOutputParser()
)
model = FakeListChatModel(responses=["hello"])
length = RunnableLambda(lambda text: {"length": len(text), "sql": "SELECT 1", "data_rows": 0})
nothing = RunnableLambda(lambda text: None)
number = 3
"""


def runnable(name: str) -> str:
    return f"{CHAIN}\nagent = {name}\n"


@pytest.mark.parametrize(
    ("name", "options", "fields", "text"),
    [
        ("short", {}, {"variables": {"country": "Peru"}}, "Human: q in Peru"),
        ("several", {"input": "topic"}, {"variables": {"country": "Peru"}}, "Human: q in Peru"),
        ("past", {}, {"history": (Message("user", "a"), Message("assistant", "b"))}, "Human: a\nAI: b\nHuman: q"),
        ("rag", {}, {}, "Human: q"),
        ("rag", {"output": "question"}, {}, "q"),
        ("model", {}, {}, "hello"),
    ],
)
async def test_other_runnables(
    tmp_path: Path, name: str, options: dict[str, str], fields: dict[str, Any], text: str
) -> None:
    """The question goes to the field that takes it, beside the case's variables; the text comes from any result."""
    answer = await ask(opened(tmp_path, "langgraph", runnable(name), **options), "q", **fields)
    assert (answer.error, answer.text) == (None, text)


async def test_a_mapping_is_structured_output(tmp_path: Path) -> None:
    """Its fields are those of an answer."""
    answer = await ask(opened(tmp_path, "langgraph", runnable("length")), "four")
    assert answer.output == {"length": 4, "sql": "SELECT 1", "data_rows": 0}
    assert (answer.sql, answer.data_rows) == ("SELECT 1", 0)


async def test_documents_of_retrievers_are_sources(tmp_path: Path) -> None:
    """Documents that a chain retrieved are the sources, in their order, and no output."""
    found = await ask(opened(tmp_path, "langgraph", runnable("rag")), "q")
    assert found.output == {"question": "q", "answer": "Human: q"}
    assert found.sources == (Source(id="7", content="text", score=0.5), Source(uri="https://o", content="other"))


@pytest.mark.parametrize(
    ("metadata", "source"),
    [
        ({"file_name": "a.pdf", "page": 2}, Source(title="a.pdf", content="text", metadata={"page": 2})),
        ({"document_id": 7, "file_path": "docs/a.pdf"}, Source(id="7", uri="docs/a.pdf", content="text")),
        (
            {"source": "a.pdf", "url": "https://a", "similarity": 0.5},
            Source(uri="a.pdf", content="text", score=0.5, metadata={"url": "https://a"}),
        ),
        ({"source": "", "link": "https://a"}, Source(uri="https://a", content="text", metadata={"source": ""})),
    ],
)
def test_documents_have_the_names_that_answers_have(metadata: dict[str, Any], source: Source) -> None:
    """What answers call a title, an address, an id or a score is one in a document's metadata, too."""
    from langchain_core.documents import Document

    from assay.agent_host.frameworks.langchain_trace import TraceCallbacks

    assert TraceCallbacks().trace(documents=[Document("text", metadata=metadata)]).sources == (source,)


def test_usage_is_read_as_answers_have_it() -> None:
    """Tokens written to a cache for a time are counted, and those of a model that reports them for all generations."""
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, LLMResult

    from assay.agent_host.frameworks.langchain_trace import TraceCallbacks

    trace = TraceCallbacks()
    details = {"cache_read": 10, "cache_creation": 0, "ephemeral_5m_input_tokens": 20}
    usage: Any = {"input_tokens": 40, "output_tokens": 5, "total_tokens": 45, "input_token_details": details}
    older = {"prompt_tokens": 4, "completion_tokens": 2}
    for message, output in ((AIMessage("a", usage_metadata=usage), None), (AIMessage("b"), {"token_usage": older})):
        result = LLMResult(generations=[[ChatGeneration(message=message)]], llm_output=output)
        trace.on_llm_end(result, run_id=uuid.uuid4())
    assert trace.trace().usage == Usage(44, 7, 51, cache_read_tokens=10, cache_write_tokens=20, requests=2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("several", "the runnable's input has the fields country, topic: name the one that receives the question"),
        ("raising", "KeyError: 'q'"),
        ("nothing", "the agent ended without a final output"),
    ],
)
async def test_runnables_that_do_not_answer(tmp_path: Path, name: str, message: str) -> None:
    """The row says why."""
    answer = await ask(opened(tmp_path, "langgraph", runnable(name)), "q")
    assert answer.error is not None
    assert message in answer.error.message


async def test_the_parameters_of_a_case_configure_the_graph(tmp_path: Path) -> None:
    """They are `configurable`, and the context of a graph that declares one; variables are fields of its input."""
    source = """
        from dataclasses import dataclass
        from typing import TypedDict
        from langchain_core.runnables import RunnableConfig
        from langgraph.graph import START, StateGraph
        from langgraph.runtime import Runtime

        @dataclass
        class Context:
            area: str

        class State(TypedDict):
            question: str
            year: int
            answer: str

        def node(state: State, config: RunnableConfig, runtime: Runtime[Context]):
            return {"answer": f"{config['configurable']['area']} {runtime.context.area} {state['year']}"}

        agent = StateGraph(State, context_schema=Context).add_node("node", node).add_edge(START, "node").compile()
    """
    answer = await ask(opened(tmp_path, "langgraph", source), "q", parameters={"area": "S"}, variables={"year": 7})
    assert (answer.error, answer.text, answer.output) == (None, "S S 7", {"answer": "S S 7"})


async def test_the_state_says_which_documents_are_sources(tmp_path: Path) -> None:
    """A graph that sorted what it retrieved has its order; typed output stands beside the last message."""
    source = f"""{CHAIN}
from dataclasses import dataclass
from langgraph.graph import START, MessagesState, StateGraph


@dataclass
class Verdict:
    sure: bool


class State(MessagesState):
    context: list[Document]
    structured_response: Verdict


def node(state):
    found = Retriever().invoke(state["messages"][-1].text)
    return {{"context": found[:0:-1], "messages": [AIMessage("Yes.")], "structured_response": Verdict(sure=True)}}


agent = StateGraph(State).add_node("node", node).add_edge(START, "node").compile()
"""
    answer = await ask(opened(tmp_path, "langgraph", source), "q")
    assert (answer.error, answer.text, answer.output) == (None, "Yes.", {"sure": True})
    assert answer.sources == (Source(uri="https://o", content="other"),)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("number", {}, "agent.target: names a builtins.int, not a compiled graph (graph.compile()) or"),
        ("short", {"input": "questin"}, "agent.input: unknown field of the input of the runnable 'questin'"),
        ("rag", {"output": "anser"}, "agent.output: unknown field of the output of the runnable 'anser'; did you mean"),
    ],
)
def test_wrong_objects_are_refused(tmp_path: Path, name: str, options: dict[str, str], message: str) -> None:
    """Before a question is asked, at the field that names the object or the field of its input."""
    (tmp_path / "agent.py").write_text(CHAIN)
    with pytest.raises(InvalidInputError) as caught:
        open_caller(AgentSpec("langgraph", f"agent.py:{name}", options=options), tmp_path)
    assert message in str(caught.value)


async def test_models_and_tools_that_are_not_langchains(tmp_path: Path) -> None:
    """A message that a node writes itself counts where it has a usage; a tool that a node runs by hand stands once."""
    source = """
        from langchain_core.messages import AIMessage, ToolMessage
        from langchain_core.tools import tool
        from langgraph.graph import START, MessagesState, StateGraph

        @tool
        def add(a: int, b: int) -> int:
            "Add."
            return a + b

        def node(state):
            call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}
            by_hand = {"name": "look", "args": {}, "id": "c2"}
            usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
            return {"messages": [
                AIMessage("", tool_calls=[call, by_hand], usage_metadata=usage),
                ToolMessage(str(add.invoke(call["args"])), tool_call_id="c1"),
                ToolMessage("seen", tool_call_id="c2", status="error"),
                {"role": "assistant", "content": "3"},
            ]}

        agent = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    """
    answer = await ask(opened(tmp_path, "langgraph", source), "1 + 2?")
    assert answer.text == "3"
    assert [(call.name, call.id, call.result_json, call.is_error) for call in calls(answer)] == [
        ("add", "c1", '"3"', False),
        ("look", "c2", '"seen"', True),
    ]
    assert answer.usage == Usage(1, 2, 3, requests=1)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ('AIMessage([{"type": "refusal", "refusal": "no"}])', "no"),
        ('AIMessage("", additional_kwargs={"refusal": "no"})', "no"),
        ('AIMessage("", response_metadata={"stop_reason": "refusal"})', ""),
        ('AIMessage("I beg", response_metadata={"finish_reason": "content_filter"})', "I beg"),
    ],
)
async def test_refusals(tmp_path: Path, reply: str, said: str) -> None:
    """In each form that providers have it is an error that is not retried, with what the model said."""
    source = f"""
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

agent = StateGraph(MessagesState).add_node("node", lambda state: {{"messages": [{reply}]}})
agent = agent.add_edge(START, "node").compile()
"""
    answer = await ask(opened(tmp_path, "langgraph", source), "q")
    assert answer.error is not None
    assert (answer.error.type, answer.error.retryable, answer.text) == ("refusal", False, said)


async def test_tools_that_a_provider_runs(tmp_path: Path) -> None:
    """Calls of hosted tools are calls, with their results; what was found in files and cited are the sources."""
    source = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

PARTS = [
    {"type": "file_search_call", "id": "f", "queries": ["q"],
     "results": [{"file_id": "1", "filename": "a.pdf", "text": "Lima", "score": 0.5}]},
    {"type": "mcp_call", "id": "m", "name": "add", "server_label": "s", "arguments": "{}", "output": None,
     "error": "no"},
    {"type": "text", "text": "Lima.", "annotations": [{"type": "url_citation", "url": "https://a", "title": "A"}]},
]
reply = AIMessage(PARTS, response_metadata={"model_provider": "openai"})
agent = StateGraph(MessagesState).add_node("node", lambda state: {"messages": [reply]})
agent = agent.add_edge(START, "node").compile()
"""
    answer = await ask(opened(tmp_path, "langgraph", source), "q")
    assert answer.text == "Lima."
    search, add = calls(answer)
    assert (search.name, search.id, search.arguments_json) == ("file_search", "f", '{"queries": ["q"]}')
    assert (add.name, add.result_json, add.is_error) == ("add", '"no"', True)
    assert answer.sources == (
        Source(id="1", title="a.pdf", content="Lima", score=0.5),
        Source(title="A", uri="https://a"),
    )


async def test_a_tool_that_is_run_again_for_the_same_call_stands_once(tmp_path: Path) -> None:
    """A retried node, such as one with a RetryPolicy, shows the last run of the call; its models count each time."""
    source = """
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy

runs = []

@tool
def track(parcel: int) -> str:
    "Track."
    runs.append(parcel)
    return f"run {len(runs)}"

def node(state):
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    call = {"name": "track", "args": {"parcel": 7}, "id": "c1", "type": "tool_call"}
    reply = AIMessage("", tool_calls=[call], usage_metadata=usage)
    reply = GenericFakeChatModel(messages=iter([reply])).invoke(state["messages"])
    result = track.invoke(call)
    if len(runs) == 1:
        raise ConnectionError
    return {"messages": [reply, result, AIMessage("done")]}

policy = RetryPolicy(initial_interval=0.001, jitter=False)
agent = StateGraph(MessagesState).add_node("node", node, retry_policy=policy).add_edge(START, "node").compile()
"""
    answer = await ask(opened(tmp_path, "langgraph", source), "q")
    assert answer.text == "done"
    assert [(call.id, call.result_json) for call in calls(answer)] == [("c1", '"run 2"')]
    assert answer.usage == Usage(2, 4, 6, requests=2)


BLOCKING = """
import threading
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

MEETING = threading.Barrier(20)


def node(state):
    question = state["messages"][-1].text
    if question == "hang":
        threading.Event().wait()
    if question == "meet":
        MEETING.wait(60)
    return {"messages": [("ai", f"{question}: done")]}


graph = StateGraph(MessagesState)
graph.add_node("node", node)
graph.add_edge(START, "node")
agent = graph.compile(SAVER)
"""


@pytest.fixture(params=["", "InMemorySaver()", "SyncSaver()"], ids=["ainvoke", "checkpointer", "invoke"])
def blocking(request: pytest.FixtureRequest) -> str:
    source = BLOCKING.replace("SAVER", request.param)
    return source.replace("\n\ndef node", SYNC_SAVER + "\n\ndef node") if request.param == "SyncSaver()" else source


def test_synchronous_nodes_run_all_at_once(tmp_path: Path, blocking: str) -> None:
    """Twenty questions that each wait for all others are answered, however few processors there are."""
    caller = opened(tmp_path, "langgraph", blocking)

    async def questions() -> list[AgentResponse]:
        return await asyncio.gather(*(ask(caller, "meet", f"run/{n}/0", timeout_s=100) for n in range(20)))

    assert [response.text for response in run_to_end(questions())] == ["meet: done"] * 20


@pytest.mark.parametrize(
    "runs",
    [
        "from assay.client.api.loop_thread import run_to_end as run",
        "from assay_cli.options.shared import run_async as run",
    ],
)
def test_nodes_that_hang_hold_up_neither_further_questions_nor_the_end(
    tmp_path: Path, blocking: str, runs: str
) -> None:
    """Ninety-nine calls that hang leave room for the next one; one more and the agent is not called again; it ends."""
    (tmp_path / "agent.py").write_text(blocking, encoding="utf-8")
    program = f"""
import asyncio, sys
from pathlib import Path

from tests.frameworks.asking import ask

from assay.agent_host.user_code import open_caller
from assay.model.run import AgentSpec
{runs}


async def main():
    caller = open_caller(AgentSpec("langgraph", "agent.py:agent"), Path(sys.argv[1]))

    async def hang(count):
        asked = [ask(caller, "hang", f"run/{{number}}/{{count}}", timeout_s=2) for number in range(count)]
        print(*{{response.error.kind for response in await asyncio.gather(*asked)}})

    await hang(99)
    print((await ask(caller, "next")).text)
    await hang(1)
    print((await ask(caller, "last")).error.message)


run(main())
"""
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    *rest, last = found.stdout.splitlines()
    assert rest == ["timeout", "next: done", "timeout"]
    assert last.startswith("100 earlier calls of the agent still hang")
