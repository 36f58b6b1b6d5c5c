"""Streamed replies of a scripted provider: the server-sent events of each protocol."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from assay.testing.reply_bodies import reply_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.testing.messages import Reply

_PIECE = re.compile(r"\S*\s*")


def reply_events(path: str, reply: Reply) -> list[bytes]:
    """Return a reply as the events of a stream, its texts word by word.

    Args:
        path: The path of the request.
        reply: The reply, without an HTTP error.
    """
    whole = reply_body(path, reply)
    if "choices" in whole:
        return [*(_event(chunk) for chunk in _chunks(whole)), b"data: [DONE]\n\n"]
    events = _response_events(whole) if "output" in whole else _message_events(whole)
    return [b"event: " + event["type"].encode() + b"\n" + _event(event) for event in events]


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _pieces(text: str) -> list[str]:
    return [piece for piece in _PIECE.findall(text) if piece]


def _chunks(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    frame = {"id": whole["id"], "object": "chat.completion.chunk", "created": 1, "model": whole["model"]}
    (choice,) = whole["choices"]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _pieces(message.get("reasoning_content") or "")]
    deltas += [{"content": piece} for piece in _pieces(message["content"] or "")]
    deltas += [{"annotations": [annotation]} for annotation in message.get("annotations", ())]
    for index, call in enumerate(message.get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        opening = {**call, "index": index, "function": {"name": name, "arguments": ""}}
        rest = [{"index": index, "function": {"arguments": piece}} for piece in _pieces(arguments)]
        deltas += [{"tool_calls": [piece]} for piece in (opening, *rest)]
    for delta in deltas:
        yield {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if "usage" in whole:
        yield {**frame, "choices": [], "usage": whole["usage"]}


def _response_events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    for index, item in enumerate(whole["output"]):
        kind, place = item["type"], {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": index, "item": item | {"content": []}}
        if kind == "reasoning":
            for piece in _pieces(item["summary"][0]["text"]):
                yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
        elif kind == "message":
            for piece in _pieces(item["content"][0]["text"]):
                yield {"type": "response.output_text.delta", **place, "content_index": 0, "delta": piece}
        else:
            for piece in _pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _message_events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage = whole.get("usage") or {}
    start = {**whole, "content": [], "stop_reason": None}
    if usage:
        start["usage"] = {**usage, "output_tokens": 1}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(whole["content"]):
        deltas: list[dict[str, Any]]
        opening: dict[str, Any]
        if block["type"] == "text":
            opening = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
            deltas += [{"type": "citations_delta", "citation": cited} for cited in block.get("citations", ())]
        elif block["type"] == "thinking":
            opening = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}]
        else:
            opening = {**block, "input": {}}
            pieces = _pieces(json.dumps(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
        yield {"type": "content_block_start", "index": index, "content_block": opening}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stopped = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stopped, **({"usage": usage} if usage else {})}
    yield {"type": "message_stop"}
