"""Calls of tools in the replies of models: those that the provider runs, those that wait, and older forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.test_provider_streams import anthropic

from assay.model.answers.agent_response import AgentStatus, Source
from assay.providers import chat_completions, responses
from assay_orchestrator.agents.prompt_response import response_from_reply

TEXT = {"type": "message", "content": [{"type": "output_text", "text": "Lima", "annotations": []}]}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "Peru", "sources": [{"type": "url", "url": "https://a.example"}]},
}
MCP = {"type": "mcp_call", "id": "mcp_1", "name": "add", "server_label": "sums", "arguments": '{"a": 2}', "output": "5",
       "error": None, "status": "completed"}  # fmt: skip
REFUSED = {**MCP, "output": None, "error": {"type": "http_error", "code": 500}, "status": "failed"}
SHELL: list[dict[str, Any]] = [
    {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}, "status": "completed"},
    {"type": "shell_call_output", "call_id": "c1", "output": [{"stdout": "a"}]},
]
RESPONSES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, Any, Any, bool]]]] = {
    "web search": ([SEARCH, TEXT], [("web_search", {"action": SEARCH["action"]}, None, False)]),
    "mcp": ([MCP, TEXT], [("add", {"a": 2}, "5", False)]),
    "mcp failed": ([REFUSED, TEXT], [("add", {"a": 2}, {"type": "http_error", "code": 500}, True)]),
    "code": (
        [{"type": "code_interpreter_call", "id": "ci", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]}, TEXT],
        [("code_interpreter", {"code": "1"}, [{"type": "logs", "logs": "1"}], False)],
    ),
    "image": ([{"type": "image_generation_call", "id": "ig", "result": "AAAA" * 9}, TEXT],
              [("image_generation", {}, None, False)]),
    "shell": ([*SHELL, TEXT], [("shell", {"action": {"commands": ["ls"]}}, [{"stdout": "a"}], False)]),
    "in order": (
        [MCP, {"type": "function_call", "call_id": "f", "name": "track", "arguments": "{}"}, SEARCH],
        [("add", {"a": 2}, "5", False), ("track", {}, None, False),
         ("web_search", {"action": SEARCH["action"]}, None, False)],
    ),
    "listed tools": ([{"type": "mcp_list_tools", "id": "l", "tools": []}, {"type": "reasoning", "id": "r"}, TEXT], []),
}  # fmt: skip


def read(calls: Any) -> list[tuple[str, Any, Any, bool]]:
    """Return the calls of an answer with plain arguments and results."""
    return [
        (call.name, json.loads(call.arguments_json), json.loads(call.result_json) if call.result_json else None,
         call.is_error)
        for call in calls
    ]  # fmt: skip


def streamed(assembly: Any, events: list[dict[str, Any]]) -> Any:
    """Return the reply that comes as events."""
    for event in events:
        assembly.add(event)
    return assembly.whole(ended=True)


@pytest.mark.parametrize("name", RESPONSES)
def test_tools_that_openai_runs_are_tool_calls(name: str) -> None:
    """In the order of the response, with what they returned; whole or in pieces."""
    output, wanted = RESPONSES[name]
    whole = {"output": output, "status": "completed", "model": "m"}
    pieces = [{"type": "response.output_item.done", "item": item} for item in output]
    last = {"type": "response.completed", "response": {**whole, "output": []}}
    for data in (whole, streamed(responses.Events(), [*pieces, last])):
        answer = response_from_reply(responses.reply_from(data), None)
        assert answer.status is AgentStatus.SUCCESS
        assert read(answer.tool_calls) == wanted


def test_a_response_of_hosted_calls_alone_is_no_answer() -> None:
    """The model gave no answer; its hosted calls are in the row and are not run again."""
    answer = response_from_reply(responses.reply_from({"output": [SEARCH], "status": "completed"}), None)
    assert answer.error is not None
    assert (answer.error.type, [call.name for call in answer.tool_calls or ()]) == ("empty", ["web_search"])


def test_a_response_that_asks_for_approval_waits() -> None:
    """A tool of a server of MCP that needs a person's approval."""
    item = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "server_label": "s", "arguments": '{"a":5}'}
    answer = response_from_reply(responses.reply_from({"output": [item], "status": "completed"}), None)
    assert (answer.status, answer.error) == (AgentStatus.INTERRUPTED, None)
    assert [(wait.kind, wait.id, wait.tool, wait.arguments_json) for wait in answer.interrupts] == [
        ("approval", "mcpr_1", "pay", '{"a":5}')
    ]
    assert read(answer.tool_calls) == [("pay", {"a": 5}, None, False)]


FOUND = [{"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "x" * 99}]
MESSAGES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, Any, Any, bool]]]] = {
    "web search": (
        [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "Peru"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": FOUND},
        ],
        [("web_search", {"query": "Peru"}, [{k: v for k, v in FOUND[0].items() if k != "encrypted_content"}], False)],
    ),
    "web search failed": (
        [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s1",
                "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
            },
        ],
        [("web_search", {}, {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}, True)],
    ),
    "mcp": (
        [
            {"type": "mcp_tool_use", "id": "m1", "name": "add", "server_name": "sums", "input": {"a": 2}},
            {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": True, "content": [{"text": "n"}]},
            {"type": "tool_use", "id": "t1", "name": "track", "input": {"parcel": 7}},
        ],
        [("add", {"a": 2}, [{"text": "n"}], True), ("track", {"parcel": 7}, None, False)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_tools_that_anthropic_runs_are_tool_calls(name: str) -> None:
    """In the order of the blocks, with their results but what only the service can read; whole or in pieces."""
    blocks, wanted = MESSAGES[name]
    content = [*blocks, {"type": "text", "text": "Lima"}]
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"model": "m"}}]
    for index, block in enumerate(content):
        start: dict[str, Any] = {"type": "content_block_start", "index": index}
        if "input" in block:
            events.append({**start, "content_block": {**block, "input": {}}})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        else:
            events.append({**start, "content_block": block})
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    for data in ({"content": content, "stop_reason": "end_turn"}, streamed(anthropic().Events(), events)):
        answer = response_from_reply(anthropic().reply_from(data), None)
        assert (answer.status, answer.text) == (AgentStatus.SUCCESS, "Lima")
        assert read(answer.tool_calls) == wanted


def test_pages_that_a_search_found_are_sources_where_none_is_cited() -> None:
    """Of all three protocols; a citation says more exactly what the answer rests on."""
    cited = {"type": "url_citation", "url": "https://b.example", "title": "B"}
    quoting = {"type": "message", "content": [{"type": "output_text", "text": "Lima", "annotations": [cited]}]}
    replies = [
        (responses.reply_from({"output": [SEARCH, TEXT]}), [Source(uri="https://a.example")]),
        (responses.reply_from({"output": [SEARCH, quoting]}), [Source(uri="https://b.example", title="B")]),
        (
            anthropic().reply_from({"content": [*MESSAGES["web search"][0], {"type": "text", "text": "Lima"}]}),
            [Source(uri="https://a.example", title="A")],
        ),
    ]
    for found, source in (
        ({"search_results": [{"title": "P", "url": "https://p.example"}], "citations": ["https://q.example"]},
         Source(uri="https://p.example", title="P")),
        ({"citations": ["https://q.example", "https://q.example"]}, Source(uri="https://q.example")),
    ):  # fmt: skip
        whole = {"choices": [{"message": {"content": "Lima"}}], **found}
        chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"content": "Li"}}], **found},
                  {"choices": [{"delta": {"content": "ma"}, "finish_reason": "stop"}]}]  # fmt: skip
        replies += [
            (chat_completions.reply_from(data), [source])
            for data in (whole, streamed(chat_completions.Chunks(), chunks))
        ]
    for reply, sources in replies:
        assert list(response_from_reply(reply, None).sources) == sources


def test_a_call_in_the_first_form_of_chat_completions_is_a_tool_call() -> None:
    """Services that know one `function_call` beside the message; whole or in pieces."""
    whole = {"choices": [{"message": {"content": None, "function_call": {"name": "track", "arguments": '{"p": 7}'}}}]}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"delta": {"function_call": {"name": "track", "arguments": '{"p"'}}}]},
        {"choices": [{"delta": {"function_call": {"arguments": ": 7}"}}, "finish_reason": "function_call"}]},
    ]
    for data in (whole, streamed(chat_completions.Chunks(), chunks)):
        answer = response_from_reply(chat_completions.reply_from(data), None)
        assert answer.error is None
        assert read(answer.tool_calls) == [("track", {"p": 7}, None, False)]
