"""Hosted tools, which a provider runs while its model answers: their calls, results and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.providers.messages import text_in, tool_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_NO_ARGUMENTS = ("id", "type", "status", "output", "outputs", "results", "result", "error", "name", "call_id",
                 "server_label", "approval_request_id", "agent", "created_by")  # fmt: skip
_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call",
           "tool_search_call")  # fmt: skip
_RESULTS = ("output", "outputs", "results")
"""Where an item of the Responses API has its result. An image that was made, in `result`, is larger than an answer."""


def response_calls(output: Iterable[object]) -> Iterator[dict[str, Any]]:
    """Yield the tool calls among a response's items, in order, unchecked.

    Those that the provider ran have a `result`. A tool of a server of MCP has its own name, another one that of its
    item's type.
    """
    items = [item for item in output if isinstance(item, dict)]
    outputs = {item.get("call_id"): item.get("output") for item in items if _kind(item).endswith("_call_output")}
    for item in items:
        kind = _kind(item)
        if kind == "function_call":
            yield tool_call(item.get("call_id"), item.get("name"), item.get("arguments"))
        elif kind == "mcp_approval_request":
            yield tool_call(item.get("id"), item.get("name"), item.get("arguments"))
        elif kind.endswith("_call"):
            given = {name: value for name, value in item.items() if name not in _NO_ARGUMENTS and value is not None}
            call_id = item.get("call_id") or item.get("id")
            call = tool_call(call_id, item.get("name") or kind.removesuffix("_call"), given.pop("arguments", given))
            result = next((item[name] for name in _RESULTS if item.get(name) is not None), outputs.get(call_id))
            if kind in _HOSTED or result is not None:
                call = _with_result(call, result, item.get("error"), is_error=item.get("status") == "failed")
            yield call


def waiting_calls(output: Iterable[object]) -> list[dict[str, Any]]:
    """Return the calls of a response that await a person's approval, as interrupts."""
    return [
        {"kind": "approval", **tool_call(item.get("id"), item.get("name"), item.get("arguments"))}
        for item in output
        if isinstance(item, dict) and _kind(item) == "mcp_approval_request"
    ]


def message_calls(content: Iterable[object]) -> Iterator[dict[str, Any]]:
    """Yield the calls of tools among the blocks of a message of Anthropic's protocol, as `response_calls` does."""
    blocks = [block for block in content if isinstance(block, dict)]
    results = {block.get("tool_use_id"): block for block in blocks if _kind(block).endswith("_tool_result")}
    for block in blocks:
        if _kind(block).endswith("tool_use"):
            # Arguments that came in pieces are a text, which is no JSON where the reply was cut off.
            call = tool_call(block.get("id"), block.get("name"), block.get("input"))
            if (answer := results.get(block.get("id"))) is not None:
                result = _readable(answer.get("content"))
                failed = answer.get("is_error") is True or (
                    isinstance(result, dict) and _kind(result).endswith("_error")
                )
                call = _with_result(call, result, None, is_error=failed)
            elif _kind(block) != "tool_use":
                call["result"] = None
            yield call


def is_hosted(call: Mapping[str, Any]) -> bool:
    """Return whether the provider ran a tool, whose result the client need not send."""
    return "result" in call


def pages_found(values: object) -> Iterator[dict[str, Any]]:
    """Yield the pages and files in search results, each once and in order."""
    seen = set()
    for value in _mappings(values):
        place = {"uri": text_in(value.get("url")), "id": text_in(value.get("file_id"))}
        if any(place.values()) and tuple(place.values()) not in seen:
            seen.add(tuple(place.values()))
            title = text_in(value.get("title")) or text_in(value.get("filename"))
            yield {**place, "title": title, "content": text_in(value.get("text") or value.get("snippet"))}


def _with_result(call: dict[str, Any], result: object, error: object, *, is_error: bool) -> dict[str, Any]:
    return {**call, "result": error or result, "is_error": bool(error) or is_error}


def _kind(item: Mapping[str, Any]) -> str:
    return text_in(item.get("type"))


def _readable(value: object) -> Any:
    """Return a value without the parts that only the provider can read."""
    if isinstance(value, dict):
        return {name: _readable(item) for name, item in value.items() if not str(name).startswith("encrypted_")}
    return [_readable(item) for item in value] if isinstance(value, list) else value


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings within lists and mappings, and a text in a list as a mapping with it as the URL."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _mappings(item) if isinstance(item, list | dict) else ()
    elif isinstance(value, list):
        for item in value:
            yield from _mappings({"url": item} if isinstance(item, str) else item)
