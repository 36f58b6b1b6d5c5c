"""Whole replies of a scripted provider, in each protocol."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.testing.messages import Reply

_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def reply_body(path: str, reply: Reply) -> dict[str, Any]:
    """Return a whole reply in the protocol of a path.

    Args:
        path: The path of the request; what follows a question mark is no part of it.
        reply: The reply.
    """
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return _completion(reply)
    if path.endswith("/responses"):
        return _response(reply)
    if path.endswith("/messages"):
        return _message(reply)
    return {"error": {"type": "not_found_error", "message": f"no such path: {path}"}}


def _completion(reply: Reply) -> dict[str, Any]:
    if reply.status != 200:
        return {"error": {"message": reply.text, "type": "scripted_error", "param": None, "code": None, **reply.error}}
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.cites:
        message["annotations"] = [
            {"type": "url_citation", "url_citation": {"url": url, "title": title}} for url, title in reply.cites
        ]
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for i, (name, arguments) in enumerate(reply.tool_calls)
        ]
    data: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": reply.stop}],
    }
    if reply.usage is not None:
        data["usage"] = {
            "prompt_tokens": reply.usage.input,
            "completion_tokens": reply.usage.output,
            "total_tokens": reply.usage.input + reply.usage.output,
            "prompt_tokens_details": {
                "cached_tokens": reply.usage.cache_read,
                "cache_write_tokens": reply.usage.cache_write,
            },
            "completion_tokens_details": {"reasoning_tokens": reply.usage.reasoning},
        }
    return data if reply.raw_usage is ... else {**data, "usage": reply.raw_usage}


def _response(reply: Reply) -> dict[str, Any]:
    if reply.status != 200:
        return _completion(reply)  # errors are those of the other API
    output: list[dict[str, Any]] = []
    if reply.thinking:
        thought = [{"type": "summary_text", "text": reply.thinking}]
        output.append({"type": "reasoning", "id": "rs_1", "summary": thought})
    if reply.text:
        cited = [{"type": "url_citation", "url": url, "title": title} for url, title in reply.cites]
        part = {"type": "output_text", "text": reply.text, "annotations": cited}
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]})
    output += [
        {"type": "function_call", "id": f"fc_{i}", "call_id": f"call_{i}", "name": name,
         "arguments": json.dumps(arguments), "status": "completed"}
        for i, (name, arguments) in enumerate(reply.tool_calls)
    ]  # fmt: skip
    reason = _INCOMPLETE.get(reply.stop)
    data: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "scripted",
        "status": "completed" if reason is None else "incomplete",
        "incomplete_details": None if reason is None else {"reason": reason},
        "error": None,
        "output": output,
    }
    if reply.usage is not None:
        used = reply.usage
        data["usage"] = {
            "input_tokens": used.input,
            "input_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
            "output_tokens": used.output,
            "output_tokens_details": {"reasoning_tokens": used.reasoning},
            "total_tokens": used.input + used.output,
        }
    return data if reply.raw_usage is ... else {**data, "usage": reply.raw_usage}


def _message(reply: Reply) -> dict[str, Any]:
    if reply.status != 200:
        return {"type": "error", "error": {"type": "scripted_error", "message": reply.text, **reply.error}}
    content: list[dict[str, Any]] = []
    if reply.thinking:
        content.append({"type": "thinking", "thinking": reply.thinking, "signature": "s"})
    if reply.text:
        cited = [{"type": "web_search_result_location", "url": url, "title": title} for url, title in reply.cites]
        content.append({"type": "text", "text": reply.text, **({"citations": cited} if cited else {})})
    content += [
        {"type": "tool_use", "id": f"toolu_{i}", "name": name, "input": dict(arguments)}
        for i, (name, arguments) in enumerate(reply.tool_calls)
    ]
    data: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": _STOPS.get(reply.stop, reply.stop),
        "stop_sequence": None,
    }
    if reply.usage is not None:
        used = reply.usage
        data["usage"] = {
            "input_tokens": used.input - used.cache_read - used.cache_write,
            "output_tokens": used.output,
            "cache_read_input_tokens": used.cache_read,
            "cache_creation_input_tokens": used.cache_write,
            "output_tokens_details": {"thinking_tokens": used.reasoning},
        }
    return data if reply.raw_usage is ... else {**data, "usage": reply.raw_usage}
