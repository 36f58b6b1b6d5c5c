"""Answers as JSON: what is accepted, what is refused, what comes back."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from assay.agent.v1 import agent_pb2
from assay.datasets.cases.case_rules import case_problems
from assay.model.answers import agent_response as answers
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Attempt,
    MalformedAnswerError,
    Source,
    ToolCall,
    Usage,
    clean_text,
    error_response,
    json_text,
    response_from_json,
    response_to_json,
)
from assay.model.answers.response_text import TEXT_KEYS
from assay.model.case import Case, Turn
from assay.wire.agent import plain_response, response_from_wire, response_to_wire

LONE = "a\ud800b"


def nested(depth: int) -> Any:
    """Return lists inside one another."""
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def test_a_text_is_an_answer() -> None:
    """A plain text is the answer's text."""
    assert response_from_json("نعم") == AgentResponse(text="نعم")


@pytest.mark.parametrize("name", ["retrieved", "events", "retrieved_items"])
def test_retrieved_items_have_three_names(name: str) -> None:
    """`events` and `retrieved_items` are read as `retrieved`, and a plain text as a title."""
    response = response_from_json({"text": "t", name: ["One", {"title": "Two", "score": 0}]})
    assert response.retrieved == (Source(title="One"), Source(title="Two", score=0.0))


def test_an_empty_retrieval_is_not_an_absent_one() -> None:
    """An agent that retrieved nothing differs from one that does not retrieve, also under another name."""
    assert response_from_json({"text": "t", "events": []}).retrieved == ()
    assert response_from_json({"text": "t"}).retrieved is None
    assert response_from_json({"retrieved": None, "events": ["x"]}).retrieved == (Source(title="x"),)


def test_an_error_may_be_a_text_and_makes_the_status() -> None:
    """An error without a status sets status ERROR; status ERROR without an error gets one."""
    answer = response_from_json({"error": "down"})
    assert (answer.status, answer.error) == (AgentStatus.ERROR, AgentError(AgentErrorKind.RAISED, "down"))
    unsaid = response_from_json({"status": " ERROR "})
    assert unsaid.error is not None
    assert "without saying why" in unsaid.error.message


@pytest.mark.parametrize("nothing", [None, "", False])
def test_no_error_may_be_said_in_several_ways(nothing: object) -> None:
    """None, an empty text and False all mean no error."""
    response = response_from_json({"text": "t", "error": nothing})
    assert (response.status, response.error) == (AgentStatus.SUCCESS, None)


@pytest.mark.parametrize("kind", ["no such kind", [], 3, None])
def test_an_unknown_kind_of_error_is_an_error_all_the_same(kind: object) -> None:
    """An unknown kind of error, of any type, is read as RAISED."""
    error = response_from_json({"error": {"kind": kind, "message": "m"}}).error
    assert error == AgentError(AgentErrorKind.RAISED, "m")


def test_unknown_names_are_kept_as_metadata() -> None:
    """Unknown fields go to the metadata; those of a source to the source's."""
    response = response_from_json(
        {"text": "t", "trace": {"id": 1}, "metadata": {"a": 1}, "sources": [{"id": 1, "page": 3}]}
    )
    assert response.metadata == {"a": 1, "trace": {"id": 1}}
    assert response.sources == (Source("1", metadata={"page": 3}),)


def test_tool_calls_take_values_or_json_texts() -> None:
    """Arguments and results come as values or as texts that are JSON already."""
    calls = response_from_json(
        {"tool_calls": [{"name": "a", "arguments": {"q": "س"}, "result_json": "[1]"}, {"name": "b", "duration_ms": 0}]}
    ).tool_calls
    assert calls == (ToolCall("a", arguments_json='{"q": "س"}', result_json="[1]"), ToolCall("b", duration_ms=0.0))


@pytest.mark.parametrize("value", [0, 0.0, 1.5, True])
def test_a_scalar_text_is_written_as_text(value: object) -> None:
    """Numbers and truth values are texts, 0 included."""
    assert response_from_json({"text": value}).text == str(value)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (None, "not nothing (None or null)"),
        (["text"], "list"),
        (b"text", "bytes"),
        ({"text": {"a": 1}}, "text"),
        ({"text": ["a"]}, "text"),
        ({"status": "fine"}, "status"),
        ({"status": ["success"]}, "status"),
        ({"error": 3}, "error"),
        ({"error": {"message": []}}, "error.message"),
        ({"error": {"message": "m", "http_status": 2**32}}, "error.http_status"),
        ({"data_rows": -1}, "data_rows"),
        ({"data_rows": True}, "data_rows"),
        ({"data_rows": 1.5}, "data_rows"),
        ({"data_rows": 2**53}, "data_rows"),
        ({"data_rows": "3"}, "data_rows"),
        ({"sql": ["select"]}, "sql"),
        ({"tool_calls": {"name": "a"}}, "tool_calls"),
        ({"tool_calls": ["a"]}, "tool_calls[0]"),
        ({"tool_calls": [{"name": "a"}, {}]}, "tool_calls[1].name"),
        ({"tool_calls": [{"name": "a", "arguments": {1, 2}}]}, "tool_calls[0].arguments"),
        ({"sources": "one"}, "sources"),
        ({"sources": [3]}, "sources[0]"),
        ({"events": [{"score": "high"}]}, "events[0].score"),
        ({"usage": [1]}, "usage"),
        ({"usage": {"input_tokens": -5}}, "usage.input_tokens"),
        ({"latency_ms": float("nan")}, "latency_ms"),
        ({"latency_ms": float("inf")}, "latency_ms"),
        ({"latency_ms": 10**400}, "latency_ms"),
        ({"latency_ms": -1}, "latency_ms must be at least 0, not -1"),
        ({"reported_latency_ms": -0.5}, "reported_latency_ms must be at least 0"),
        ({"time_to_first_token_ms": -1}, "time_to_first_token_ms must be at least 0"),
        ({"attempts": [{"latency_ms": -1}]}, "attempts[0].latency_ms must be at least 0"),
        ({"tool_calls": [{"name": "a", "duration_ms": -1}]}, "tool_calls[0].duration_ms must be at least 0"),
        ({"usage": {"cost_usd": -1}}, "usage.cost_usd must be at least 0"),
        ({"data_rows": -1}, "data_rows must be a whole number from 0"),
        ({"usage": {"cost_usd": float("nan")}}, "usage.cost_usd"),
        ({"sources": [{"score": float("-inf")}]}, "sources[0].score"),
        ({"output": {"x": float("nan")}}, "output"),
        ({"output": object()}, "output"),
        ({"output": {(1, 2): 3}}, "output"),
        ({"output": nested(101)}, "output"),
        ({"output": nested(100_000)}, "output"),
        ({"metadata": "m"}, "metadata"),
        ({"metadata": {"x": float("inf")}}, "metadata"),
        ({"text": "t", "trace": {1, 2}}, "metadata"),
        ({"reply": "t"}, "no text found; its fields are 'reply'; put the text into 'text'"),
        ({}, "no text found; its fields are none"),
        ({"answer": None, "usage": {}}, "no text found; its fields are 'answer', 'usage'"),
        ({"message": {"content": "t"}}, "no text found; its fields are 'message'"),
        ({"sql": "select 1", "data_rows": 1, "insights": "One."}, "its fields are 'sql', 'data_rows', 'insights'"),
        ({"usage": {"prompt_tokens": "many"}}, "usage.prompt_tokens"),
        ({"t" * 100: 1, 5: 2}, "'text'"),
        ({"sources": [{"id": 1, "page": float("nan")}]}, "sources[0].metadata"),
        ({"attempts": [3]}, "attempts[0]"),
    ],
)
def test_a_wrong_shape_is_refused_with_its_field(data: object, field: str) -> None:
    """Whatever is not an answer is refused, and the message names the field or the type."""
    with pytest.raises(MalformedAnswerError) as caught:
        response_from_json(data)
    assert field in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("latency_ms", [-5000.0, float("nan"), float("inf")])
def test_no_way_around_for_a_wrong_latency(latency_ms: float) -> None:
    """An answer from a client or an uploaded case is held to the same rules."""
    message = response_to_wire(AgentResponse(text="t", latency_ms=latency_ms))
    assert plain_response(message) is None
    case = Case("a", (Turn("Q", (), (), ()),), recordings=((response_from_wire(message),),))
    assert [problem.field for problem in case_problems(case)] == ["recordings[0].turns[0]"]


@pytest.mark.parametrize("key", TEXT_KEYS)
def test_the_text_has_several_names(key: str) -> None:
    """A text, or a number, under any of the usual names is the answer's text and nothing else."""
    assert response_from_json({key: "نعم"}) == AgentResponse(text="نعم")
    assert response_from_json({key: 42}) == AgentResponse(text="42")


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise(TEXT_KEYS)))
def test_the_first_name_of_the_text_wins(first: str, second: str) -> None:
    """Of two texts the first name's is the answer; the other becomes metadata or output."""
    response = response_from_json({second: "two", first: "one"})
    assert response.text == "one"
    assert response.output == ("two" if second == "output" else None)
    assert response.metadata == ({} if second == "output" else {second: "two"})
    assert response_from_json({second: "two", first: None}).text == "two"


def test_structured_output_is_no_text() -> None:
    """An object under `output` stays structured output, with or without a text."""
    assert response_from_json({"output": {"a": 1}}) == AgentResponse(output={"a": 1})
    assert response_from_json({"output": {"a": 1}, "answer": "t"}) == AgentResponse(text="t", output={"a": 1})


@pytest.mark.parametrize(
    "data",
    [{"text": ""}, {"answer": ""}, {"sql": "select 1"}, {"events": []}, {"tool_calls": []}, {"status": "out_of_scope"},
     {"data_rows": 0, "trace": {"id": 1}}],
)  # fmt: skip
def test_an_answer_may_have_no_text(data: dict[str, Any]) -> None:
    """An empty text, structured parts and a refusal are answers."""
    assert response_from_json(data).text == ""


def test_usage_may_have_other_names() -> None:
    """Token counts under OpenAI's names are read, those in details too; the own name comes first."""
    usage = {
        "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    assert response_from_json({"text": "t", "usage": usage}).usage == Usage(
        input_tokens=10, output_tokens=5, total_tokens=15, cache_read_tokens=4, reasoning_tokens=0
    )
    of_responses = {"input_tokens": 3, "prompt_tokens": 7, "input_tokens_details": {"cached_tokens": 1}}
    assert response_from_json({"text": "t", "usage": of_responses}).usage == Usage(input_tokens=3, cache_read_tokens=1)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"input_tokens": 9, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200, "output_tokens": 50},
         Usage(1209, 50, None, 1000, 200)),  # Anthropic
        ({"inputTokens": 4, "outputTokens": 354, "totalTokens": 2145, "cacheReadInputTokens": 1787},
         Usage(1791, 354, 2145, 1787)),  # Bedrock
        ({"input_tokens": 100, "output_tokens": 10, "total_tokens": 110, "input_token_details": {"cache_read": 80},
          "output_token_details": {"reasoning": 3}}, Usage(100, 10, 110, 80, reasoning_tokens=3)),  # LangChain
        ({"input_tokens": 100, "output_tokens": 10, "input_token_details": {
            "cache_creation": 0, "ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30}},
         Usage(100, 10, cache_write_tokens=50)),  # LangChain, of Anthropic
        ({"prompt_tokens": 100, "completion_tokens": 10, "prompt_cache_hit_tokens": 60, "prompt_cache_miss_tokens": 40},
         Usage(100, 10, None, 60)),  # DeepSeek
        ({"prompt_tokens": 1209, "completion_tokens": 50, "total_tokens": 1259, "cache_read_input_tokens": 1000,
          "prompt_tokens_details": {"cached_tokens": 1000}}, Usage(1209, 50, 1259, 1000)),  # LiteLLM
        ({"prompt_tokens": 9, "completion_tokens": 50, "total_tokens": 1059,
          "prompt_tokens_details": {"cached_tokens": 1000}}, Usage(1009, 50, 1059, 1000)),  # beside
        ({"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 6010,
          "completion_tokens_details": {"reasoning_tokens": 5000}},
         Usage(1000, 5010, 6010, reasoning_tokens=5000)),  # xAI
        ({"promptTokenCount": 40, "toolUsePromptTokenCount": 2, "candidatesTokenCount": 10, "thoughtsTokenCount": 5,
          "totalTokenCount": 57, "cachedContentTokenCount": 30}, Usage(42, 15, 57, 30, reasoning_tokens=5)),  # Gemini
        ({"prompt_token_count": 40, "candidates_token_count": 15, "thoughts_token_count": 5, "total_token_count": 55},
         Usage(40, 15, 55, reasoning_tokens=5)),  # Google ADK through LiteLLM
        ({"prompt_eval_count": 26, "eval_count": 290}, Usage(26, 290)),  # Ollama
        ({"inputTokens": 20, "outputTokens": 5, "totalTokens": 25, "cachedInputTokens": 8, "reasoningTokens": 2},
         Usage(20, 5, 25, 8, reasoning_tokens=2)),  # Vercel's AI SDK
        ({"inputTokens": {"total": 20, "cacheRead": 8}, "outputTokens": {"total": 5}}, Usage(20, 5, None, 8)),
        ({"billed_units": {"input_tokens": 5, "output_tokens": 4}, "tokens": {"input_tokens": 71, "output_tokens": 9}},
         Usage(71, 9)),  # Cohere
        ({"request_tokens": 7, "response_tokens": 3, "total_tokens": 10}, Usage(7, 3, 10)),  # pydantic-ai
        ({"a": {"input_tokens": 1, "output_tokens": 2}, "b": {"prompt_tokens": 3, "completion_tokens": 4}},
         Usage(4, 6)),  # by model
        ({"total_token_usage": {"input_tokens": 9, "output_tokens": 2}, "last_token_usage": {"input_tokens": 4}},
         Usage(9, 2)),  # Codex
        ({"request_tokens": 100, "response_tokens": 10, "details": {"cached_tokens": 80}}, Usage(100, 10, None, 80)),
        ({"input": 20, "output": 10, "input_cached_tokens": 80, "total": 110}, Usage(100, 10, 110, 80)),  # Langfuse
        ({"input_tokens": 0, "output_tokens": 0, "prompt_tokens": 11, "completion_tokens": 2}, Usage(11, 2)),
        ({"input_tokens": 10, "output_tokens": 5, "total_tokens": 45}, Usage(10, 5, 45)),  # our own names, as they are
    ],
)  # fmt: skip
def test_usage_of_providers_and_frameworks(usage: dict[str, Any], read: Usage) -> None:
    """Cached tokens are part of the input and thoughts part of the output, wherever a service counts them."""
    response = response_from_json({"text": "t", "usage": usage})
    assert (response.usage, response.metadata) == (read, {})
    assert response_from_json(response_to_json(response)) == response


@pytest.mark.parametrize("key", ["usage_metadata", "usageMetadata", "token_usage", "tokenUsage"])
def test_usage_may_be_a_field_of_another_name(key: str) -> None:
    """Other fields of these names that are no mapping stay in the metadata."""
    assert response_from_json({"text": "t", key: {"input_tokens": 1, "output_tokens": 2}}).usage == Usage(1, 2)
    assert response_from_json({"text": "t", key: "none"}).metadata == {key: "none"}


@pytest.mark.parametrize(
    "call",
    [
        {"name": "f", "arguments": '{"q": "a"}'},
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"q": "a"}'}},  # OpenAI
        {"function": {"name": "f", "arguments": {"q": "a"}}},  # Ollama
        {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "arguments": '{"q": "a"}'},  # Responses
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"q": "a"}, "caller": {"type": "direct"}},  # Anthropic
        {"name": "f", "args": {"q": "a"}, "id": "c1", "type": "tool_call"},  # LangChain
        {"functionCall": {"name": "f", "args": {"q": "a"}}},  # Gemini
        {"toolUse": {"toolUseId": "c1", "name": "f", "input": {"q": "a"}}},  # Bedrock
        {"type": "tool-call", "toolCallId": "c1", "toolName": "f", "input": {"q": "a"}},  # Vercel's AI SDK
        {"tool_name": "f", "arguments": {"q": "a"}, "id": None, "extra": None},  # Haystack
        {"tool_id": "c1", "tool_name": "f", "tool_kwargs": {"q": "a"}},  # LlamaIndex
        {"part_kind": "tool-call", "tool_name": "f", "args": '{"q": "a"}', "tool_call_id": "c1"},  # pydantic-ai
        {"tool": "f", "tool_input": {"q": "a"}, "log": "…"},  # LangChain's actions
        {"name": "f", "parameters": {"q": "a"}},  # Cohere, Llama
        {"name": "f", "input_parameters": {"q": "a"}},  # DeepEval
        {"tool_name": "f", "raw_input": {"args": [], "kwargs": {"q": "a"}}, "raw_output": "r"},  # LlamaIndex's outputs
        {"function": "f", "parameters": [{"name": "q", "type": "string", "value": "a"}]},  # agents of Bedrock
        {
            "raw_item": {"type": "function_call", "name": "f", "arguments": '{"q": "a"}', "call_id": "c1"}
        },  # OpenAI's SDK
        {"name": "f", "arguments": {}, "input": {"q": "a"}},
        {"name": "f", "arguments": "{}", "args": '{"q": "a"}'},
        {"name": "f", "arguments": json.dumps('{"q": "a"}')},
        {"name": "f", "arguments": "{'q': 'a'}"},
    ],
)
def test_calls_of_tools_as_others_write_them(call: dict[str, Any]) -> None:
    """The name, the arguments and the id are found in all of them."""
    (read,) = response_from_json({"tool_calls": [call]}).tool_calls or ()
    assert (read.name, json.loads(read.arguments_json), read.id in ("", "c1")) == ("f", {"q": "a"}, True)


@pytest.mark.parametrize(
    ("call", "read"),
    [
        ({"name": "f", "arguments": ""}, ToolCall("f")),
        ({"name": "f", "arguments": "not JSON"}, ToolCall("f", arguments_json='"not JSON"')),
        ({"name": "f", "args": {}, "output": "42"}, ToolCall("f", arguments_json="{}", result_json='"42"')),
        ({"name": "f", "error": "down"}, ToolCall("f", result_json='"down"', is_error=True)),
        ({"name": "f", "result": 1, "error": None, "status": "error"}, ToolCall("f", result_json="1", is_error=True)),
        ({"name": "f", "error": False, "metadata": {"a": 1}}, ToolCall("f")),
    ],
)
def test_results_and_errors_of_tools(call: dict[str, Any], read: ToolCall) -> None:
    """Arguments that are no JSON stay a text; a call may say in several ways that it failed."""
    assert response_from_json({"tool_calls": [call]}).tool_calls == (read,)


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ({"url": "https://x/Tides"}, Source(uri="https://x/Tides")),
        ({"title": None, "link": "https://x/Tides"}, Source(uri="https://x/Tides")),
        ({"source": "tides.pdf", "page": 3}, Source(uri="tides.pdf", metadata={"page": 3})),
        ({"name": "Tides", "document_id": 7}, Source("7", "Tides")),
        ({"page_content": "High.", "metadata": {"source": "tides.pdf"}},
         Source(uri="tides.pdf", content="High.", metadata={"source": "tides.pdf"})),  # LangChain
        ({"node": {"id_": "n1", "text": "High.", "metadata": {"file_name": "tides.pdf"}}, "score": 0.5},
         Source("n1", "tides.pdf", content="High.", score=0.5,
                metadata={"node": {"id_": "n1", "text": "High.", "metadata": {"file_name": "tides.pdf"}}})),
        ({"web": {"uri": "https://x/", "title": "X"}},
         Source("", "X", "https://x/", metadata={"web": {"uri": "https://x/", "title": "X"}})),  # Gemini
        ({"document": "High tide.\nLow tide."}, Source(content="High tide.\nLow tide.")),
        ({"URL": "https://x/Tides", "id": 7}, Source("7", uri="https://x/Tides", metadata={})),
        ({"content": "High.", "sourcefile": "tides.pdf"}, Source(title="tides.pdf", content="High.")),  # Azure
        ({"id": "1", "attributes": {"title": "Tides"}},
         Source("1", "Tides", metadata={"attributes": {"title": "Tides"}})),
        ({}, Source()),
    ],
)  # fmt: skip
def test_sources_as_others_write_them(source: dict[str, Any], read: Source) -> None:
    """What names a source is found under the usual names, in its document and its metadata too."""
    assert response_from_json({"text": "t", "sources": [source]}).sources == (read,)


def test_passages_and_calls_under_other_names() -> None:
    """A list of texts is what was retrieved, one of another kind stays in the metadata."""
    reply = response_from_json({"answer": "t", "contexts": ["High."], "toolCalls": [{"name": "f"}], "citations": ["A"]})
    assert reply == AgentResponse(
        text="t", retrieved=(Source(content="High."),), tool_calls=(ToolCall("f"),), sources=(Source(title="A"),)
    )
    assert response_from_json({"text": "t", "sources": [], "citations": ["A"]}).sources == (Source(title="A"),)
    assert response_from_json({"text": "t", "contexts": 3, "citations": [1]}).metadata == {
        "contexts": 3, "citations": [1],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            {"tool_calls": [{"f": {"room": "hall"}}]},
            "tool_calls[0].name is missing; its fields are 'f'",
        ),
        ({"tool_calls": [{"name": "f", "payload": {"q": 1}}]}, "tool_calls[0].arguments is missing: rename 'payload'"),
        ({"tool_calls": [{"name": "f", "data": '{"q": 1}'}]}, "tool_calls[0].arguments is missing: rename 'data'"),
        ({"sources": [{"page": 3, "title": None}]}, "sources[0] has no name: its fields are 'page';"),
        ({"contexts": [{"rank": 1}]}, "contexts[0] has no name: its fields are 'rank';"),
    ],
)
def test_a_part_under_unknown_names_is_malformed(part: dict[str, Any], message: str) -> None:
    """A part with unknown names would silently score 0: the message names the valid fields."""
    with pytest.raises(MalformedAnswerError) as problem:
        response_from_json({"text": "t", **part})
    assert str(problem.value).startswith(message)


def test_what_no_store_takes_is_replaced_everywhere() -> None:
    """Lone surrogates and NUL become U+FFFD in texts and structured data; valid pairs stay."""
    response = response_from_json(
        {"text": f"{LONE}\0😀", "output": {LONE: [LONE]}, "extra": LONE, "tool_calls": [{"name": "n", "result": LONE}]}
    )
    assert response.text == "a\ufffdb\ufffd😀"
    assert response.output == {"a\ufffdb": ["a\ufffdb"]}
    assert response.metadata == {"extra": "a\ufffdb"}
    assert (response.tool_calls or ())[0].result_json == '"a\ufffdb"'
    json.dumps(response_to_json(response), ensure_ascii=False).encode()


def test_clean_text_leaves_good_text_alone() -> None:
    """A text without a fault comes back as the same object."""
    text = "مرحبا 😀 \n"
    assert clean_text(text) is text


def test_json_text_refuses_what_json_cannot_hold() -> None:
    """NaN and circular data are refused under the name that was given."""
    circle: list[object] = []
    circle.append(circle)
    for value in (float("nan"), circle, {1, 2}):
        with pytest.raises(MalformedAnswerError, match="place cannot be written"):
            json_text(value, "place")


def test_structured_output_is_as_json_gives_it_back() -> None:
    """Tuples become lists and number keys texts at once, so that the first reading equals every later one."""
    assert response_from_json({"output": {1: (1, 2)}}).output == {"1": [1, 2]}


FULL = AgentResponse(
    text="t",
    output={"rows": [1, None, 0.5]},
    sql="select 1",
    data_rows=0,
    tool_calls=(ToolCall("a", id="1", arguments_json="{}", result_json="2", is_error=True, duration_ms=0.0),),
    sources=(Source(id="i", title="T", uri="u", content="c", score=0.0, metadata={"p": 0}),),
    retrieved=(),
    usage=Usage(input_tokens=0, output_tokens=5, cost_usd=0.0),
    latency_ms=0.0,
    reported_latency_ms=1.5,
    time_to_first_token_ms=0.5,
    cold=True,
    finish_reason="stop",
    model="m",
    attempts=(Attempt(0.0, AgentError(AgentErrorKind.HTTP_STATUS, "no", "E", 503, True)),),
    metadata={"k": [False, 0, ""]},
)


@pytest.mark.parametrize(
    "response",
    [
        AgentResponse(),
        FULL,
        AgentResponse(status=AgentStatus.OUT_OF_SCOPE, text="no", sql="", output=0),
        error_response(AgentErrorKind.TIMEOUT, "late", retryable=True),
    ],
)
def test_a_round_trip_through_json_loses_nothing(response: AgentResponse) -> None:
    """What is written is read back equal: 0 stays 0, empty stays empty, absent stays absent."""
    assert response_from_json(json.loads(json.dumps(response_to_json(response)))) == response


def test_what_is_absent_is_left_out() -> None:
    """An answer with a text alone is a small object."""
    assert response_to_json(AgentResponse(text="t")) == {"status": "success", "text": "t"}


@pytest.mark.parametrize("name", answers.__all__)
def test_all_about_an_answer_comes_from_one_module(name: str) -> None:
    """The author of an agent imports from assay.model.answers.agent_response, wherever a name is defined."""
    assert getattr(answers, name).__module__.startswith("assay.")


def test_no_calls_are_not_unknown_calls() -> None:
    """An empty list of tool calls is kept in JSON and on the wire; an answer without one says nothing of its calls."""
    for data, calls in (({"text": "a"}, None), ({"text": "a", "tool_calls": None}, None), ({"tool_calls": []}, ())):
        answer = response_from_json(data)
        assert answer.tool_calls == calls
        assert response_from_json(response_to_json(answer)).tool_calls == calls
        assert response_from_wire(response_to_wire(answer)).tool_calls == calls
    assert response_from_json("a").tool_calls is None
    foreign = agent_pb2.AgentResponse(tool_calls=[agent_pb2.ToolCall(name="search")])
    assert response_from_wire(foreign).tool_calls == (ToolCall("search"),), "a call says that calls are reported"


@pytest.mark.parametrize("status", ["success", "out_of_scope", "error", "Success", None, ["success"]])
@pytest.mark.parametrize("text", ["a", "", "a\0b", "\ud800", 5])
@pytest.mark.parametrize("timed", [{}, {"latency_ms": None}, {"latency_ms": 3}, {"latency_ms": -1}])
def test_the_short_cut_for_plain_answers_agrees_with_the_long_way(
    status: object, text: object, timed: dict[str, Any]
) -> None:
    """A field without a value, which takes the long way, changes neither the answer nor the refusal."""

    def read(**more: Any) -> object:
        try:
            return response_from_json({"status": status, "text": text, **timed, **more})
        except MalformedAnswerError as problem:
            return str(problem)

    assert read() == read(error=None)
